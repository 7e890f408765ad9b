"""Existing TFRecord files as a table: ours, TFDS's, and bare ones."""
