"""How one shard is written: its rows, its images, and their decoders."""
