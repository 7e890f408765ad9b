"""JSON lines: Arrow's parser where it is exact, Python's where it is not."""
