"""Rows of Python values and of Arrow, to and from serialised tf.train.Examples.

encode.py     mappings -> Examples, by the types of their values; one row of plain
              values without Arrow
typed.py      what a user may give as a schema -> the features as records hold them;
              mappings and Arrow batches -> Examples, by a schema
decode.py     Examples -> dicts, Arrow batches
"""
