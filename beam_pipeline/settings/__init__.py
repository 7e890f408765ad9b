"""What a job may say: the spec, its flags, and the names that were meant."""
