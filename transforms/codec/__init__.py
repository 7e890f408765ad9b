"""Rows of Python values and of Arrow, to and from serialised tf.train.Examples.

typed.py      what a user may give as a schema -> the features as records hold them;
              mappings and Arrow batches -> Examples, by a schema
examples.py   mappings -> Examples, by the types of their values or by a schema;
              Examples -> dicts, Arrow batches
"""
