"""The reusable library: what turns labelled sources into TFRecord files on Beam.

    errors.py    the exception tree
    files.py     the one file layer: list, open, write then rename, delete by exact path
    storage/     what it is built on: paths, local folders, object stores, retries
    core/        pure functions over Arrow arrays and bytes; never Beam
    formats/     source formats, one module or package each: files -> blocks -> rows
    sidecars/    files beside the shards for other readers, such as TFDS
    codec/       rows of Python values and of Arrow <-> serialised Examples
    rows/        rows of pipelines: to Arrow, counted, refused; what they are known by
    work/        the work folder: segments, receipts, rejects, tables of splits
    shards/      how one shard is written: rows, images, their decoders
    publishing/  the output: who works on it, what is replaced, how it appears whole
    stages/      the Beam stages, one verb each
    tfrecord/    WriteTFRecords and ReadTFRecords, for records that are bytes already
    lazy_names.py    how a package imports its public names when they are asked for

Imports point one way: stages -> formats, shards, work -> core -> errors. Stages never
import one another. This module gives the public names; each is imported when it is
first asked for, so that `import transforms` loads neither Beam nor Arrow.
"""

from typing import TYPE_CHECKING

from transforms.lazy_names import lazy_names

__all__ = [
    # Stages
    "ListBlocks",
    "ReadBlocks",
    "PlaceRows",
    "CountShards",
    "WriteShards",
    "CommitDataset",
    "ReadTFRecords",
    "ReadAllTFRecords",
    "WriteTFRecords",
    # What own steps get and give
    "Batch",
    "Schema",
    "Feature",
    "Kind",
    "rows_of",
    # tf.train.Example without TensorFlow
    "encode_example",
    "decode_example",
    "EncodeExamples",
    "DecodeExamples",
    "encode_examples",
    "decode_examples",
    # Errors
    "BeamTFRecordError",
    "UsageError",
    "SpecError",
    "SourceError",
    "InputError",
    "TargetError",
    "BusyError",
    "RejectLimitError",
    "RecordCountError",
    "DamageError",
    "TFRecordError",
    "ExampleError",
    "EncodingError",
    "StorageError",
    "WorkerError",
    "ConservationError",
    "CommitError",
    "RaceError",
]

if TYPE_CHECKING:
    from transforms.codec.examples import decode_example, encode_example
    from transforms.core.example.decoder import decode_examples
    from transforms.core.example.encoder import encode_examples
    from transforms.core.model import Batch
    from transforms.core.rows.feature_values import rows_of
    from transforms.core.schema import Feature, Kind, Schema
    from transforms.errors import *
    from transforms.stages.commit import CommitDataset
    from transforms.stages.examples import DecodeExamples, EncodeExamples
    from transforms.stages.place import CountShards, PlaceRows
    from transforms.stages.read import ListBlocks, ReadBlocks
    from transforms.stages.write import WriteShards
    from transforms.tfrecord.read import ReadAllTFRecords, ReadTFRecords
    from transforms.tfrecord.write import WriteTFRecords
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "transforms.codec.examples": ["decode_example", "encode_example"],
            "transforms.core.example.decoder": ["decode_examples"],
            "transforms.core.example.encoder": ["encode_examples"],
            "transforms.core.model": ["Batch"],
            "transforms.core.rows.feature_values": ["rows_of"],
            "transforms.core.schema": ["Feature", "Kind", "Schema"],
            "transforms.errors": [n for n in __all__ if n.endswith("Error")],
            "transforms.stages.commit": ["CommitDataset"],
            "transforms.stages.examples": ["DecodeExamples", "EncodeExamples"],
            "transforms.stages.place": ["CountShards", "PlaceRows"],
            "transforms.stages.read": ["ListBlocks", "ReadBlocks"],
            "transforms.stages.write": ["WriteShards"],
            "transforms.tfrecord": [
                "ReadAllTFRecords",
                "ReadTFRecords",
                "WriteTFRecords",
            ],
        },
    )
