"""TFRecord files: writing, reading and checking. The frame is in `frame.py`.

Importing its modules costs NumPy and nothing more: a check of a file starts at once.
"""
