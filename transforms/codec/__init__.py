"""Rows of Python values and of Arrow, to and from serialised tf.train.Examples.

schemas.py    what a user may give as a schema -> the features as records hold them
encode.py     mappings -> Examples; with row_error.py, and
  untyped.py    by the Python types of their values
  typed.py      under a schema; also Arrow batches
  plain_row.py  one row of plain values, without Arrow
decode.py     Examples -> dicts, Arrow batches
"""
