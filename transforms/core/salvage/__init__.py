"""Sound records in damaged TFRecord files. Serves `repair` alone."""
