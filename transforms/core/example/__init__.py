"""tf.train.Example, to and from Arrow columns.

encoder.py    columns -> serialised Examples, a column at a time: `payload.py` makes the
              values of a column, `record_parts.py` what is around them, and
              `records.py` joins all of it
decoder.py    serialised Examples -> columns, with `example_walk.py`
wire.py       numbers and bytes as Protocol Buffers store them
messages.py   the protobuf messages; TFRecord files and datasets -> Examples one by one
"""
