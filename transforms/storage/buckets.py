"""A bucket through its store's own client: what `pyarrow.fs` lacks.

That is: writing an object only if nobody else has (`If-None-Match`, `If-Match`,
Google's generations), giving up old uploads in parts, and removing objects without
putting others in the place of empty folders. So all that is written goes this way, and
needs the client: an extra of the installation for each cloud. Reading needs none.
"""

import contextlib
import dataclasses
import datetime
import errno
import os
import time
from collections.abc import Iterator, Mapping
from typing import Protocol

from transforms.storage.entries import Found, Look

CONNECT_SECONDS = 5
READ_SECONDS = 60
HDFS = "hdfs://"
GOOGLE = ("gs://", "gcs://")


@dataclasses.dataclass(frozen=True, slots=True)
class Upload:
    """An upload in parts that is not finished.

    Attributes:
      key: of the object.
      word: what tells it from others of the same key.
      begun: when, in seconds since 1970.
    """

    key: str
    word: str
    begun: float


class Bucket(Protocol):
    """Writes the objects of one bucket. All methods raise OSError.

    Attributes:
      place: of the bucket, as in "s3://bucket".
      conditional: whether the store itself decides which of two writers wins.
      flat: whether a folder is no more than what the keys in it begin with.
    """

    place: str
    conditional: bool = True
    flat: bool = True

    def look(self, key: str) -> Look:
        """Returns the version and the age of an object."""

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """Writes an object.

        Args:
          key: of the object.
          data: its content.
          version: that it must have now: "" for no object, None for any or none.

        Raises:
          OvertakenError: it has another version; nothing has changed.
        """

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """Uploads a file, in parts where it is large; aborts an upload that failed.

        Args:
          key: of the object.
          local: path of the file.
          new: whether the object must not exist.

        Raises:
          OvertakenError: it does; nothing has changed.
        """

    def fetch(
        self, key: str, part: tuple[int, int] | None, limit: int | None
    ) -> tuple[bytes, int, int] | None:
        """Reads an object with one request; None where Arrow must, or does so.

        Args:
          key: of the object.
          part: the first byte, and the one after the last; None for all.
          limit: of an object that has more bytes, none are read.

        Returns:
          Bytes, the object's size, and when it was written in seconds since 1970.
        """
        return None

    def list_in(self, folder: str) -> list[Found] | None:
        """Returns what is in a folder, where Arrow shows too little of it.

        None where it shows all.
        """
        return None

    def copy(self, key: str, to: str) -> None:
        """Copies an object inside the bucket, in parts where it is large."""
        raise OSError(errno.ENOTSUP, "the store copies nothing", self.path(key))

    def remove(self, key: str) -> None:
        """Removes an object; it may be gone already."""

    def remove_below(self, folder: str) -> None:
        """Removes every object whose key begins with `folder` and a slash."""

    def uploads(self, prefix: str) -> list[Upload]:
        """Returns the unfinished uploads in parts that the store does not remove.

        Args:
          prefix: of the keys.
        """
        return []

    def give_up(self, key: str, upload: str) -> None:
        """Ends an upload in parts; it may be over already."""
        return

    def path(self, key: str = "") -> str:
        """Returns the path of an object, for messages."""
        return f"{self.place}/{key}".rstrip("/")

    @staticmethod
    def errors(path: str) -> contextlib.AbstractContextManager[None]:
        """Turns what the client raises into an OSError or an OvertakenError."""
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def naming_missing(self) -> Iterator[None]:
        """Says what is missing where something was to be written."""
        try:
            yield
        except FileNotFoundError as error:
            raise self.no_bucket() from error

    def no_bucket(self) -> FileNotFoundError:
        """Returns the error of something written to a bucket that is not there."""
        reason = "there is no such bucket, or not for these credentials"
        return FileNotFoundError(errno.ENOENT, reason, self.place)


def setting_of(parameters: Mapping[str, str], name: str, *variables: str) -> str:
    """Returns a setting: from a path if one gives it, else from the environment."""
    given = [parameters.get(name), *map(os.environ.get, variables)]
    return next(filter(None, given), "")


def endpoint_of(parameters: Mapping[str, str], *variables: str) -> tuple[str, str]:
    """Returns scheme and host of a server; no host for the cloud's own."""
    endpoint = setting_of(parameters, "endpoint_override", *variables)
    scheme, _, host = endpoint.rpartition("://")
    return parameters.get("scheme") or scheme or "https", host


def age_of(modified: datetime.datetime) -> float:
    """Returns the seconds since an object was written, by this machine's clock.

    Stores take no request of a machine whose clock is off by more than minutes.
    """
    return max(time.time() - modified.timestamp(), 0.0)
