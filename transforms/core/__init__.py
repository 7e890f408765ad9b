"""Pure functions over bytes, types, hashes and names. Never Beam.

model.py schema.py reasons.py    the vocabulary of all other modules
rows/       values of sources -> rows under a schema -> columns of records
infer/      kinds of features, from texts and from typed columns
placing/    row -> hash -> split, shard, order
example/    tf.train.Example, to and from Arrow columns
tfrecord/   the frame of TFRecord files, whole and damaged
image/      encoded images: check, transform
"""
