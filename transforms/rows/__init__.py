"""Rows that come from a pipeline: to Arrow batches, what they are, and refused ones."""
