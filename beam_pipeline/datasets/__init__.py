"""What is on disk: datasets, TFRecord files of any origin, and their rows."""
