"""Object store operations that `pyarrow.fs` lacks, and how they fail.

That is: writing an object only if nobody else has (`If-None-Match`, `If-Match`,
Google's generations), giving up old uploads in parts, and removing objects without
putting others in the place of empty folders.
"""

import contextlib
import dataclasses
import datetime
import email.utils
import errno
import os
from collections.abc import Iterator, Mapping
from typing import Protocol

from transforms.errors import bounded

CONNECT_SECONDS = 5
READ_SECONDS = 60
_LONGEST_REASON = 300


class OvertakenError(Exception):
    """A conditional write failed: the object has another version than required."""


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """What is in a folder.

    Attributes:
      name: there.
      is_folder: whether it is a folder too.
      size: bytes of an object.
      modified: of an object, whole seconds since 1970.
    """

    name: str
    is_folder: bool
    size: int = 0
    modified: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What one request tells about an object.

    Attributes:
      version: which every write changes; "" for no object.
      age: seconds since it was written, by the store's clock alone; 0 for no object.
    """

    version: str = ""
    age: float = 0.0


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


class Client(Protocol):
    """A bucket, through its store's own client. All raise OSError."""

    def look(self, key: str) -> Look:
        """Returns the version and the age of an object."""

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """Uploads a file, in parts where it is large; aborts an upload that failed.

        Args:
          key: of the object.
          local: path of the file.
          new: whether the object must not exist.

        Raises:
          OvertakenError: it does; nothing has changed.
        """

    def put(self, key: str, data: bytes) -> None:
        """Writes an object."""

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """Writes an object if it is still of this version.

        Raises:
          OvertakenError: it is not; nothing has changed.
        """

    def copy(self, key: str, to: str) -> None:
        """Copies an object inside the bucket, in parts where it is large."""

    def remove(self, key: str) -> None:
        """Removes an object; it may be gone already."""

    def remove_below(self, folder: str) -> None:
        """Removes every object whose key begins with `folder` and a slash."""

    def list_in(self, folder: str) -> list[Listed] | None:
        """Returns what is in a folder; None where Arrow can list it as well."""

    def uploads(self, prefix: str) -> list[Upload]:
        """Returns the uploads in parts that are not finished.

        Args:
          prefix: of the keys.
        """

    def give_up(self, key: str, upload: str) -> None:
        """Ends an upload in parts; it may be over already."""


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


def s3_endpoint(parameters: Mapping[str, str]) -> str:
    """Returns the endpoint that is configured; "" for Amazon's own."""
    return (
        parameters.get("endpoint_override")
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or ""
    )


def s3_region() -> str:
    """Returns the region that the environment names; "" for none."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def gcs_endpoint(parameters: Mapping[str, str]) -> str:
    """Returns the endpoint that is configured; "" for Google's own."""
    return (
        parameters.get("endpoint_override")
        or os.environ.get("STORAGE_EMULATOR_HOST")
        or ""
    )


def url_of(endpoint: str, parameters: Mapping[str, str]) -> str:
    """Returns an endpoint with its scheme."""
    if "://" in endpoint:
        return endpoint
    return f"{parameters.get('scheme', 'https')}://{endpoint}"


def reason_of(error: BaseException) -> str:
    """Returns the text of an error; a long one is cut in the middle."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return bounded(said, _LONGEST_REASON)


def of_status(status: int, found: str, path: str) -> Exception:
    """Returns the error for an HTTP status.

    Args:
      status: of HTTP.
      found: what the answer said besides.
      path: that it was about.
    """
    said = bounded(f"the store answered {status} {found}".rstrip(), _LONGEST_REASON)
    if status == 412:
        return OvertakenError(said)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, said, path)
    if status in (408, 429) or status >= 500:
        return OSError(errno.EIO, said, path)
    return OSError(errno.EREMOTEIO, said, path)


@contextlib.contextmanager
def naming_missing_bucket(place: str) -> Iterator[None]:
    """Says what is missing where something was to be written."""
    try:
        yield
    except FileNotFoundError as error:
        raise no_bucket(place) from error


def no_bucket(place: str) -> FileNotFoundError:
    """Returns the error of something written to a bucket that is not there."""
    reason = "there is no such bucket, or not for these credentials"
    return FileNotFoundError(errno.ENOENT, reason, place)
