"""HDFS, through Arrow and Hadoop's own client, in Java within this process."""

import contextlib
import errno
import io
import os
import secrets
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO

from transforms.storage.buckets import Bucket
from transforms.storage.entries import Found, Look, OvertakenError
from transforms.storage.paths import split_remote

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_COPY_BYTES = 8 << 20
_TOKEN_BYTES = 6

# Processes that have started Java.
_with_java: set[int] = set()


def may_fork() -> bool:
    """Whether this process may fork. It may not where Java runs in it."""
    return os.getpid() not in _with_java


def connected(parameters: Mapping[str, str], place: str) -> "pafs.FileSystem":
    """Returns Hadoop's file system.

    What it must find is in the documentation of `pyarrow.fs.HadoopFileSystem`.
    """
    import pyarrow.fs as pafs

    options = os.environ.get("LIBHDFS_OPTS", "").split()
    if "-Xrs" not in options:
        # Java would take Ctrl-C and SIGTERM for itself.
        os.environ["LIBHDFS_OPTS"] = " ".join([*options, "-Xrs"])
    query = urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)
    _with_java.add(os.getpid())
    try:
        if not os.environ.get("CLASSPATH"):
            # Without its classes Java ends the process.
            raise OSError("CLASSPATH is empty")
        if place == "hdfs://":
            # The one that Hadoop's own settings name; Arrow makes no URI of that.
            if other := parameters.keys() - {"user"}:
                raise OSError(f"{sorted(other)[0]!r} wants a name node in the path")
            return pafs.HadoopFileSystem("default", 0, user=parameters.get("user"))
        return pafs.FileSystem.from_uri(f"{place}/{'?' if query else ''}{query}")[0]
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise OSError(
            errno.EINVAL,
            f"hdfs:// needs Java and Hadoop: JAVA_HOME, ARROW_LIBHDFS_DIR (the folder "
            f"of libhdfs.so) and CLASSPATH (what 'hadoop classpath --glob' prints) "
            f"must name them; found: {reason}",
            place,
        ) from error


def look_at(system: "pafs.FileSystem", inside: str, path: str) -> Found | None:
    """Returns what is at a path; None for nothing. Raises OSError.

    Arrow says of all that could not be asked that it is missing.

    Args:
      system: Hadoop's.
      inside: the path within it.
      path: the same, with the place.
    """
    import pyarrow.fs as pafs

    if (entry := Found.of(path, system.get_file_info(inside))) is None:
        with contextlib.suppress(FileNotFoundError):
            # Fails with another error where the name node does not answer.
            system.get_file_info(pafs.FileSelector(inside))
            entry = Found(path, True)
    return entry


class HdfsBucket(Bucket):
    """HDFS, which is no object store: Arrow writes there.

    It shows a file while it is written, so that a file gets its name when it is whole;
    it has folders, even empty ones; and it knows no conditions: of two runs that write
    at the same moment, both may succeed.
    """

    conditional = False
    flat = False

    def __init__(self, place: str, attempts: str, system: "pafs.FileSystem") -> None:
        """Takes the folder of files that are not whole; "" for that of the name."""
        self.place = place
        self._attempts = attempts
        self._system = system

    def _found(self, key: str) -> Found | None:
        return look_at(self._system, f"/{key}", self.path(key))

    def look(self, key: str) -> Look:
        """See `Bucket`; there is no clock to tell the age by."""
        entry = self._found(key)
        if entry is None or entry.is_folder:
            return Look()
        return Look(f"{entry.size}-{entry.modified_ns}")

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """See `Bucket`."""
        self._write(key, io.BytesIO(data), version)

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """See `Bucket`."""
        with open(local, "rb") as source:
            self._write(key, source, "" if new else None)

    def _write(self, key: str, source: BinaryIO, version: str | None) -> None:
        if version is not None and self.look(key).version != version:
            raise OvertakenError(key)
        folder, name = os.path.split(key)
        attempts = split_remote(self._attempts)[1] if self._attempts else folder
        new = f"{attempts}/.{name}.{secrets.token_hex(_TOKEN_BYTES)}.tmp"
        try:
            with self._system.open_output_stream(f"/{new}") as sink:
                while piece := source.read(_COPY_BYTES):
                    sink.write(piece)
            entry = self._found(new)
            if entry is None or entry.size != source.tell():
                reason = "it is not as long as the file"
                raise OSError(errno.EIO, reason, self.path(key))
            self._system.create_dir(f"/{folder}")
            self._system.move(f"/{new}", f"/{key}")
        except OSError:
            # Closing it may have published a part.
            with contextlib.suppress(OSError):
                self._system.delete_file(f"/{new}")
            raise

    def remove(self, key: str) -> None:
        """See `Bucket`."""
        try:
            self._system.delete_file(f"/{key}")
        except OSError:
            # It fails where there is nothing to remove, too.
            if self._found(key) is not None:
                raise

    def remove_below(self, folder: str) -> None:
        """See `Bucket`; the folder goes, too."""
        if self._found(folder) is not None:
            with contextlib.suppress(FileNotFoundError):
                self._system.delete_dir(f"/{folder}")
