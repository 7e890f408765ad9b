"""The bucket of a path: which client writes there, where it is installed."""

import contextlib
import errno
import functools
import io
import os
import secrets
from typing import BinaryIO

from transforms.errors import TargetError
from transforms.storage import arrow
from transforms.storage.buckets import HDFS, Bucket
from transforms.storage.entries import Look, OvertakenError
from transforms.storage.paths import parameters_of, split_remote
from transforms.storage.retry import reason_of

_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure"}
_COPY_BYTES = 8 << 20
_TOKEN_BYTES = 6


def extra_of(path: str) -> str:
    """Returns the extra to install for the client of a place; "" for none."""
    return _EXTRAS.get(path.partition("://")[0], "")


def bucket_of(path: str, attempts: str = "") -> Bucket:
    """Returns the bucket of a path, for writing.

    Args:
      path: of an object.
      attempts: in HDFS, a folder for files that are not whole; elsewhere nothing.

    Raises:
      OSError: the environment or the parameters make no sense.
      TargetError: the store's client is not installed.
    """
    client = client_of(path, attempts)
    if client is None:
        raise TargetError(
            f"Writing to {split_remote(path)[0]!r} needs the store's own client, which "
            f"is not installed. Install it with pip install "
            f"'beam-tfrecord[{extra_of(path)}]', or choose another output."
        )
    return client


def client_of(path: str, attempts: str = "") -> Bucket | None:
    """Returns the bucket of a path; None where the store's client is not installed.

    Args:
      path, attempts: see `bucket_of`.

    Raises:
      OSError: it is, but the environment or the parameters make no sense.
    """
    place, _ = split_remote(path)
    if path.startswith(HDFS):
        return HdfsBucket(place, attempts)
    said = tuple(sorted(parameters_of(place).items()))
    return _connected(place, said, os.getpid())


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], _process: int
) -> Bucket | None:
    """Connects once to each place, in each process: threads do not survive a fork."""
    scheme = place.partition("://")[0]
    try:
        if scheme == "s3":
            from transforms.storage.s3 import S3Bucket, s3_errors

            with s3_errors(place):
                return S3Bucket(place, dict(said))
        if scheme in ("gs", "gcs"):
            from transforms.storage.gcs import GcsBucket, gcs_errors

            with gcs_errors(place):
                return GcsBucket(place, dict(said))
        from transforms.storage.azure import AzureBucket, azure_errors

        with azure_errors(place):
            return AzureBucket(place, dict(said))
    except ValueError as error:
        raise OSError(errno.EINVAL, reason_of(error), place) from error
    except ImportError:
        return None


class HdfsBucket(Bucket):
    """HDFS, which is no object store: Arrow writes there.

    It shows a file while it is written, so that a file gets its name when it is whole;
    it has folders, even empty ones; and it knows no conditions: of two runs that write
    at the same moment, both may succeed.
    """

    conditional = False
    flat = False

    def __init__(self, place: str, attempts: str) -> None:
        """Takes the folder of files that are not whole; "" for that of the name."""
        self.place = place
        self._attempts = attempts

    def look(self, key: str) -> Look:
        """See `Bucket`; there is no clock to tell the age by."""
        found = arrow.look(self.path(key))
        if found is None or found.is_folder:
            return Look()
        return Look(f"{found.size}-{found.modified_ns}")

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
        path = self.path(key)
        folder, name = os.path.split(path)
        word = secrets.token_hex(_TOKEN_BYTES)
        partial = f"{self._attempts or folder}/.{name}.{word}.tmp"
        (system, new), (_, inside) = arrow.file_system(partial), arrow.file_system(path)
        try:
            with system.open_output_stream(new) as sink:
                while piece := source.read(_COPY_BYTES):
                    sink.write(piece)
            found = arrow.look(partial)
            if found is None or found.size != source.tell():
                raise OSError(errno.EIO, "it is not as long as the file", path)
            system.create_dir(arrow.file_system(folder)[1])
            system.move(new, inside)
        except OSError:
            # Closing it may have published a part.
            with contextlib.suppress(OSError):
                system.delete_file(new)
            raise

    def remove(self, key: str) -> None:
        """See `Bucket`."""
        system, inside = arrow.file_system(self.path(key))
        try:
            system.delete_file(inside)
        except OSError:
            # It fails where there is nothing to remove, too.
            if arrow.look(self.path(key)) is not None:
                raise

    def remove_below(self, folder: str) -> None:
        """See `Bucket`; the folder goes, too."""
        path = self.path(folder)
        if arrow.look(path) is not None:
            system, inside = arrow.file_system(path)
            with contextlib.suppress(FileNotFoundError):
                system.delete_dir(inside)
