"""Values of sources to rows under a schema, and rows to the columns of records.

conform.py   raw columns -> rows, and what does not fit
coerce.py    texts -> one value a cell
cast.py      typed columns, lists, tensors
values.py arrow_of.py    Python and NumPy values
record_columns.py    rows -> what the Example encoder is given
"""
