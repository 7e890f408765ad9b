"""What is written in stores: alike for all clouds; and HDFS.

`pyarrow.fs` cannot write an object only if nobody else has (`If-None-Match`,
`If-Match`, Google's generations), or remove objects without putting others in the place
of empty folders. So all that is written in a cloud
goes by its own client, an extra of the installation. Reading needs none.
"""

import concurrent.futures
import contextlib
import datetime
import errno
import itertools
import os
import secrets
import time
import urllib.parse
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING

from transforms.storage.paths import FileEntry, split_remote
from transforms.storage.protocol import Look
from transforms.storage.retry import OvertakenError, client_errors

if TYPE_CHECKING:
    import pyarrow.fs as pafs

CONNECT_SECONDS = 5
READ_SECONDS = 60
# Connections of one process to one place.
CONNECTIONS = 64
HDFS = "hdfs://"
GOOGLE = ("gs://", "gcs://")
_REMOVED_AT_ONCE = 16
_COPY_BYTES = 8 << 20
_TOKEN_BYTES = 6
# Processes that have started Java.
_with_java: set[int] = set()


# What a path says of its place; see `transforms.storage.paths`.
Parameters = Mapping[str, str]
# The store as Arrow reaches it, and where paths begin in it.
Reached = tuple["pafs.FileSystem", str]


class Bucket:
    """Writes the objects of one bucket.

    Its methods raise what the store's client does: `retry.asked`, which calls them,
    knows what that means.

    Attributes:
      place: of the bucket, as in "s3://bucket".
      extra: of the installation, which the client comes with; empty for none.
      conditional: whether the store itself decides which of two writers wins.
      flat: whether a folder is no more than what the keys in it begin with.
    """

    place: str
    extra: str = ""
    conditional: bool = True
    flat: bool = True

    @staticmethod
    def connected(place: str, parameters: Parameters) -> Reached:
        """Returns the store as Arrow reaches it."""
        raise NotImplementedError

    def look(self, key: str) -> Look:
        """Returns the version and the age of an object that is there."""
        raise NotImplementedError

    def put(self, key: str, file: IO[bytes], size: int, version: str | None) -> None:
        """Writes an object, in parts where it is large; aborts an upload that failed.

        Args:
          key: of the object.
          file: a file of this machine with its content, at its start.
          size: bytes of the content.
          version: that it must have now: "" for no object, None for any or none.

        Raises:
          OvertakenError: it has another version; nothing has changed.
        """
        raise NotImplementedError

    def copy(self, key: str, to: str) -> None:
        """Copies an object inside the bucket, in parts where it is large."""
        raise NotImplementedError

    def remove(self, key: str) -> None:
        """Removes an object; it may be gone already."""
        with contextlib.suppress(FileNotFoundError), client_errors(self.path(key)):
            self._remove(key)

    def _remove(self, key: str) -> None:
        raise NotImplementedError

    def remove_below(self, folder: str) -> None:
        """Removes every object whose key begins with `folder` and a slash.

        Where the store has folders that stay, this one goes, too.
        """
        keys = self._keys_below(f"{folder}/")
        if not self.flat:
            keys.append(folder)
        # Markers of folders go after their content: some servers insist.
        keys.sort(key=_depth, reverse=True)
        with concurrent.futures.ThreadPoolExecutor(_REMOVED_AT_ONCE) as pool:
            for _, level in itertools.groupby(keys, _depth):
                list(pool.map(self.remove, level))

    def _keys_below(self, prefix: str) -> list[str]:
        raise NotImplementedError

    def path(self, key: str = "") -> str:
        """Returns the path of an object, for messages."""
        return f"{self.place}/{key}".rstrip("/")


def _depth(key: str) -> int:
    """Returns how many folders are above a key; deeper ones are removed first."""
    return key.rstrip("/").count("/")


def setting_of(parameters: Parameters, name: str, *variables: str) -> str:
    """Returns a setting: from a path if one gives it, else from the environment."""
    given = [parameters.get(name), *map(os.environ.get, variables)]
    return next(filter(None, given), "")


def endpoint_of(parameters: Parameters, *variables: str) -> tuple[str, str]:
    """Returns scheme and host of a server; no host for the cloud's own."""
    endpoint = setting_of(parameters, "endpoint_override", *variables)
    scheme, _, host = endpoint.rpartition("://")
    return parameters.get("scheme") or scheme or "https", host


def look_of(version: str, modified: datetime.datetime) -> Look:
    """Returns the version of an object, and its age by this machine's clock.

    Stores take no request of a machine whose clock is off by more than minutes.
    """
    return Look(version, max(time.time() - modified.timestamp(), 0.0))


def may_fork() -> bool:
    """Whether this process may fork: not once HDFS's client runs Java in it."""
    return os.getpid() not in _with_java


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

    @staticmethod
    def connected(place: str, parameters: Parameters) -> Reached:
        """See `Bucket`, and for its needs `pyarrow.fs.HadoopFileSystem`."""
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
                user = parameters.get("user")
                return pafs.HadoopFileSystem("default", 0, user=user), ""
            uri = f"{place}/{'?' if query else ''}{query}"
            return pafs.FileSystem.from_uri(uri)[0], ""
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise OSError(
                errno.EINVAL,
                f"hdfs:// needs Java and Hadoop: JAVA_HOME, ARROW_LIBHDFS_DIR (the "
                f"folder of libhdfs.so) and CLASSPATH (what 'hadoop classpath --glob' "
                f"prints) must name them; found: {reason}",
                place,
            ) from error

    def entry(self, key: str) -> FileEntry | None:
        """Returns what is at a key; None for nothing.

        Arrow says of all that could not be asked that it is missing.
        """
        import pyarrow.fs as pafs

        path = self.path(key)
        entry = FileEntry.of(path, self._system.get_file_info(f"/{key}"))
        if entry is None:
            with contextlib.suppress(FileNotFoundError):
                # Fails with another error where the name node does not answer.
                self._system.get_file_info(pafs.FileSelector(f"/{key}"))
                entry = FileEntry(path, is_folder=True)
        return entry

    def look(self, key: str) -> Look:
        """See `Bucket`; there is no clock to tell the age by."""
        entry = self.entry(key)
        if entry is None or entry.is_folder:
            return Look()
        return Look(f"{entry.size}-{entry.modified_ns}")

    def put(self, key: str, file: IO[bytes], size: int, version: str | None) -> None:
        """See `Bucket`."""
        if version is not None and self.look(key).version != version:
            raise OvertakenError(key)
        folder, name = os.path.split(key)
        attempts = split_remote(self._attempts)[1] if self._attempts else folder
        new = f"{attempts}/.{name}.{secrets.token_hex(_TOKEN_BYTES)}.tmp"
        try:
            with self._system.open_output_stream(f"/{new}") as sink:
                while piece := file.read(_COPY_BYTES):
                    sink.write(piece)
            entry = self.entry(new)
            if entry is None or entry.size != size:
                reason = "it is not as long as the file"
                raise OSError(errno.EIO, reason, self.path(key))
            self._system.create_dir(f"/{folder}")
            self._system.move(f"/{new}", f"/{key}")
        except OSError:
            # Closing it may have published a part.
            with contextlib.suppress(OSError):
                self._system.delete_file(f"/{new}")
            raise

    def _remove(self, key: str) -> None:
        try:
            self._system.delete_file(f"/{key}")
        except OSError:
            # It fails where there is nothing to remove, too.
            if self.entry(key) is not None:
                raise

    def remove_below(self, folder: str) -> None:
        """See `Bucket`; the folder goes, too."""
        if self.entry(folder) is not None:
            with contextlib.suppress(FileNotFoundError):
                self._system.delete_dir(f"/{folder}")
