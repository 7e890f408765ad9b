"""Rows of Python values and of Arrow, to and from serialised tf.train.Examples.

schemas.py    what a user may give as a schema -> the features as records hold them
encode.py     mappings -> Examples; one row of plain values without Arrow, others by
  untyped.py    the Python types of their values
  typed.py      a schema; also Arrow batches
decode.py     Examples -> dicts, Arrow batches
"""
