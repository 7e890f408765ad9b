"""TFRecord files: writing, reading and checking. The frame is in `frame.py`.

Importing this costs NumPy and nothing more: a check of a file starts at once.
"""

from transforms.core.tfrecord.reader import PayloadBatch, TFRecordReader
from transforms.core.tfrecord.writer import (
    FrameFacts,
    FrameSink,
    TFRecordWriter,
)

__all__ = [
    "FrameFacts",
    "PayloadBatch",
    "FrameSink",
    "TFRecordReader",
    "TFRecordWriter",
]
