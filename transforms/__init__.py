"""The reusable library: what turns labelled sources into TFRecord files on Beam.

    errors.py    the exception tree
    files.py     the one file layer: list, open, write-then-rename, exact-path delete
    storage/     what it stands on: paths, local folders, object stores, retries
    core/        pure functions over Arrow arrays and bytes; never Beam
        model.py schema.py boxes.py ...    the vocabulary of all the rest
        rows/ image/ placing/ example/ tfrecord/    a room for each subject
    formats/     one module or package an input format: files -> blocks -> rows; pure
    sidecars/    one module a reader's metadata: TFDS; pure
    stages/      the Beam stages, a verb each
    tfrecord.py  WriteTFRecords and ReadTFRecords, for records that are bytes already;
                 with tfrecord_parameters.py and publishing/renaming.py (all or none)
    store.py     the work folder: segments, reject logs, finished shards
    rejects.py   reject logs, and their merge into one file
    publishing/  the output directory or bucket: who works on it, what may be replaced,
                 and how a whole dataset appears there
    split_ids.py split_locks.py    tables that say splits, and those that keep them
    shard_file.py image_loading.py image_rows.py image_fingerprints.py
                 what the stage `write` does, without Beam
    decoder_pool.py decoder_child.py
                 processes for decoders that may crash: the parent's side, the child's

Imports point one way: stages -> formats, sidecars -> core -> errors. Stages never
import one another. This module imports nothing.
"""
