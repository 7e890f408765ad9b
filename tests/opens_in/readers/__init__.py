"""A program for each library: `python -m tests.opens_in.readers.NAME PHOTOS TABLE`."""
