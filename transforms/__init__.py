"""The reusable library: what turns labelled sources into TFRecord files on Beam.

    errors.py    the exception tree
    files.py     the one file layer: list, open, write-then-rename, exact-path delete
    core/        pure functions over Arrow arrays and bytes; never Beam
    formats/     one module an input format: files -> blocks -> batches; pure
    sidecars/    one module a reader's metadata: TFDS; pure
    list.py read.py place.py census.py write.py commit.py    the Beam stages
    tfrecord.py  WriteTFRecords and ReadTFRecords, for records that are bytes already;
                 with tfrecord_parameters.py and renaming.py (all files or none)
    store.py     the work folder: segments, reject logs, finished shards
    rejects.py   reject logs, and their merge into one file
    target.py    the output directory: what may be replaced, and how
    shard_file.py image_loading.py    what the stage `write` does, without Beam

Imports point one way: stages -> formats, sidecars -> core -> errors. Stages never
import one another. This module imports nothing.
"""
