"""A bucket through its store's own client: what `pyarrow.fs` lacks.

That is: writing an object only if nobody else has (`If-None-Match`, `If-Match`,
Google's generations), giving up old uploads in parts, and removing objects without
putting others in the place of empty folders. So all that is written goes this way, and
needs the client: an extra of the installation for each cloud. Reading needs none.
"""

import contextlib
import dataclasses
import datetime
import email.utils
import errno
from collections.abc import Iterator

from transforms.storage.entries import Look

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
      begun: when, in seconds since 1970, by the store's clock.
    """

    key: str
    word: str
    begun: float


class Bucket:
    """Writes the objects of one bucket. All methods raise OSError.

    Attributes:
      place: of the bucket, as in "s3://bucket".
      conditional: whether the store itself decides which of two writers wins.
      flat: whether a folder is no more than what the keys in it begin with.
    """

    place: str
    conditional = True
    flat = True

    def look(self, key: str) -> Look:
        """Returns the version and the age of an object."""
        raise NotImplementedError

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """Writes an object.

        Args:
          key: of the object.
          data: its content.
          version: that it must have now: "" for no object, None for any or none.

        Raises:
          OvertakenError: it has another version; nothing has changed.
        """
        raise NotImplementedError

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """Uploads a file, in parts where it is large; aborts an upload that failed.

        Args:
          key: of the object.
          local: path of the file.
          new: whether the object must not exist.

        Raises:
          OvertakenError: it does; nothing has changed.
        """
        raise NotImplementedError

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

    def copy(self, key: str, to: str) -> None:
        """Copies an object inside the bucket, in parts where it is large."""
        raise NotImplementedError

    def remove(self, key: str) -> None:
        """Removes an object; it may be gone already."""
        raise NotImplementedError

    def remove_below(self, folder: str) -> None:
        """Removes every object whose key begins with `folder` and a slash."""
        raise NotImplementedError

    def uploads(self, prefix: str) -> list[Upload]:
        """Returns the unfinished uploads in parts that the store does not remove.

        Args:
          prefix: of the keys.
        """
        return []

    def give_up(self, key: str, upload: str) -> None:
        """Ends an upload in parts; it may be over already."""

    def path(self, key: str = "") -> str:
        """Returns the path of an object, for messages."""
        return f"{self.place}/{key}".rstrip("/")

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


def age_of(modified: datetime.datetime, date: str) -> float:
    """Returns the seconds between two times that one answer of a store has.

    Clocks of two machines may differ by minutes, so neither is this machine's.

    Args:
      modified: when the object was written.
      date: the answer's `Date`, as RFC 9110 writes it.

    An answer of a minute after the object was written:

        >>> written = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
        >>> age_of(written, "Fri, 02 Jan 2026 03:05:05 GMT")
        60.0
    """
    age = (email.utils.parsedate_to_datetime(date) - modified).total_seconds()
    # An answer's time is in whole seconds, that of the object may be exact.
    return max(age, 0.0)
