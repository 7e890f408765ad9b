"""Versions of objects, and writes that require the version last seen.

The store itself decides which of two writers wins; see `transforms.storage.buckets`.
"""

from transforms import files
from transforms.storage.buckets import bucket_of
from transforms.storage.entries import Look
from transforms.storage.paths import is_remote, split_remote
from transforms.storage.retry import asked


def version_of(path: str) -> str:
    """Returns the version of an object, which every write changes; "" for none."""
    return look_at(path).version


def look_at(path: str) -> Look:
    """Returns the version and the age of an object, or of a file of this machine."""
    if is_remote(path):
        bucket, key = bucket_of(path), split_remote(path)[1]
        return asked(path, lambda: bucket.look(key))
    if not files.is_file(path):
        return Look()
    entry = files.stat_entry(path, "")
    return Look(f"{entry.size}-{entry.modified_ns}")


def put_if(path: str, data: bytes, version: str, *, attempts: str = "") -> None:
    """Writes an object on the condition that it still has a version.

    Args:
      path: of the object.
      data: its new content.
      version: see `version_of`; "" means that the object must not exist.
      attempts: see `transforms.files.create`.

    Raises:
      OvertakenError: it has another version; nothing was written.
    """
    bucket, key = bucket_of(path, attempts), split_remote(path)[1]
    asked(path, lambda: bucket.put(key, data, version))
