"""tf.train.Example, to and from Arrow columns.

encoder.py    columns -> serialised Examples, a column at a time; with entry.py,
              payload.py, records.py and record_parts.py
decoder.py    serialised Examples -> columns; with example_walk.py
messages.py   the protobuf messages; TFRecord files and datasets -> Examples one by one
"""
