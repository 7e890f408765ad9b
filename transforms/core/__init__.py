"""What is known of bytes, types, hashes and names. Never Beam."""
