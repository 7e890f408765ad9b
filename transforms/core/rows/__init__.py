"""Values of sources to rows under a schema, and rows to the columns of records.

conform.py   raw columns -> rows, what does not fit, what is rounded; with
  text_cells.py     texts -> one value a cell
  typed_cells.py    one value a cell
  nested.py tensors.py        lists, boxes, tensors
column.py    cells, their faults, and messages about them
feature_values.py natural_arrays.py python_kinds.py Python and NumPy values
common_type.py    types of columns that are joined
record_columns.py    rows -> what the Example encoder is given
"""
