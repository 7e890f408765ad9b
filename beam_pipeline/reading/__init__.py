"""What is read of datasets, and `open_dataset`."""
