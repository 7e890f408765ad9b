"""The transforms for pipelines of one's own: rows to datasets, and back."""
