"""Files beside the shards that other readers look for. Never Beam."""
