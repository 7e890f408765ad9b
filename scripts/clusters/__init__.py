"""The code of `scripts/cluster`: it imports the standard library and this project."""
