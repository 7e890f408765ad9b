"""Python values as a source: stored once as Arrow IPC, then a table."""
