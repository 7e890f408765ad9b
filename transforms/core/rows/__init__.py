"""Values of sources to rows under a schema, and rows to the columns of records.

conform.py   raw columns -> rows, and what does not fit
coerce.py    texts -> one value a cell          infer.py
cast.py      typed columns, lists, tensors      infer_typed.py
values.py    Python and NumPy values            arrow_of.py
binary_layout.py binary_columns.py    bytes under a layout
record_columns.py    rows -> what the Example encoder is given
"""
