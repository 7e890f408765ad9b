"""TFRecord files of any records: `WriteTFRecords` and its inverse `ReadTFRecords`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transforms.tfrecord.read import ReadTFRecords
    from transforms.tfrecord.write import WriteTFRecords

__all__ = ["ReadTFRecords", "WriteTFRecords"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for: the files' names and locks are used without Beam."""
    if name == "ReadTFRecords":
        from transforms.tfrecord.read import ReadTFRecords

        return ReadTFRecords
    if name == "WriteTFRecords":
        from transforms.tfrecord.write import WriteTFRecords

        return WriteTFRecords
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
