"""Datasets as sequences: `open_dataset`, and what it consists of."""
