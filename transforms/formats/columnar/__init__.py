"""Parquet, Arrow IPC and NumPy files: columns that have types already."""
