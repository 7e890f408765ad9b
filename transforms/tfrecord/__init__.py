"""TFRecord files of any records: `WriteTFRecords`, and its inverse `ReadTFRecords`.

`ReadAllTFRecords` reads the files that the elements of a PCollection name.
"""

from typing import TYPE_CHECKING

from transforms.lazy_names import lazy_names

__all__ = ["ReadAllTFRecords", "ReadTFRecords", "WriteTFRecords"]

if TYPE_CHECKING:
    from transforms.tfrecord.read import ReadAllTFRecords, ReadTFRecords
    from transforms.tfrecord.write import WriteTFRecords
else:
    # The files' names and locks are used without Beam.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "transforms.tfrecord.read": ["ReadAllTFRecords", "ReadTFRecords"],
            "transforms.tfrecord.write": ["WriteTFRecords"],
        },
    )
