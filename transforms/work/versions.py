"""Versions of objects, and writes that require the version last seen.

With the store's own client (`transforms.storage.object_clients`) the store itself
decides which of two writers wins. Without it two runs that look at the same moment may
both write.
"""

from transforms import files
from transforms.storage.file_systems import asked
from transforms.storage.object_clients import client_of
from transforms.storage.object_store import Look, OvertakenError
from transforms.storage.paths import split_remote


def version_of(path: str) -> str:
    """Returns the version of an object, which every write changes; "" for none."""
    return look_at(path).version


def look_at(path: str) -> Look:
    """Returns the version and the age of an object.

    Without the store's client the age is 0: there is no clock to tell it by.
    """
    client = client_of(path)
    if client is not None:
        return asked(path, lambda: client.look(split_remote(path)[1]))
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
    client = client_of(path)
    if client is not None:
        key = split_remote(path)[1]
        asked(path, lambda: client.put_if(key, data, version))
        return
    if version_of(path) != version:
        raise OvertakenError(path)
    files.write_file(path, data, attempts=attempts)
