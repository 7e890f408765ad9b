"""What `scripts/cluster` does. Standard library alone, and what the program knows."""
