"""TFRecord files of any records: `WriteTFRecords` and its inverse `ReadTFRecords`."""

from typing import TYPE_CHECKING

from transforms.lazy_names import lazy_names

__all__ = ["ReadTFRecords", "WriteTFRecords"]

if TYPE_CHECKING:
    from transforms.tfrecord.read import ReadTFRecords
    from transforms.tfrecord.write import WriteTFRecords
else:
    # The files' names and locks are used without Beam.
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "transforms.tfrecord.read": ["ReadTFRecords"],
            "transforms.tfrecord.write": ["WriteTFRecords"],
        },
    )
