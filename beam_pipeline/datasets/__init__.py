"""What is on disk: datasets, and TFRecord files of any origin. Never a terminal."""
