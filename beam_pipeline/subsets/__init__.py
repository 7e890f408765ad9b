"""A part of a dataset as a dataset of its own, its records copied as they are."""
