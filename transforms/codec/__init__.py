"""Rows of Python values and of Arrow, to and from serialised tf.train.Examples.

schemas.py    what a user may give as a schema -> the features as records hold them
encode.py     mappings, Arrow batches -> Examples
plain_row.py  one mapping of plain values, without Arrow
decode.py     Examples -> dicts, Arrow batches
"""
