"""The reusable library: what turns labelled sources into TFRecord files on Beam.

    errors.py    the exception tree
    files.py     the one file layer: list, open, write-then-rename, exact-path delete
    core/        pure functions over Arrow arrays and bytes; never Beam
    formats/     one module an input format: files -> blocks -> batches; pure
    sidecars/    one module a reader's metadata: TFDS; pure
    list.py read.py place.py write.py tfrecord.py    the Beam stages, a verb each

Imports point one way: stages -> formats, sidecars -> core -> errors. Stages never
import one another. This module imports nothing.
"""
