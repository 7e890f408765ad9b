"""Failed file operations: which are retried, how often, how long; what errors say.

Disks, network file systems and object stores fail now and then and work again a moment
later. The local runner of Beam retries nothing, and runners that do start a whole
bundle again; so it is done here, for the smallest piece of work that can simply be done
again: one read at a given place, or one file written under a temporary name.

A failed sync of a file is never repeated by itself: the kernel may have dropped what it
could not write, and would call the next sync a success. The file is written again
instead. Changes of names are repeated where they were not made: see
`transforms.storage.folders`.

Errors of stores have no numbers, or not the usual ones: `_WORDS` says what they mean,
and `asked` repeats requests.

A transient failure must never become a reject: the item exists. So when the last try
has failed too, the job ends with a `StorageError`. That is no OSError, so the code that
turns unreadable files into rejects does not catch it.
"""

import contextlib
import dataclasses
import errno
import functools
import logging
import math
import os
import random
import re
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from transforms.errors import StorageError, bounded
from transforms.storage.paths import split_remote

_Result = TypeVar("_Result")

_TRANSIENT = frozenset(
    (
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.EIO,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.ECONNABORTED,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETRESET,
        errno.ENETUNREACH,
    )
)
# What stores and their clients say, and the number of the error that it means; the
# first that fits counts. Arrow's errors mostly come without a number: they are known by
# their words. Of the clouds' own clients count the status and the code of an answer, or
# else the names of the error's classes.
_WORDS = tuple(
    (number, re.compile(words))
    for number, words in (
        # Another run is ahead, or has ended an upload in parts: try again.
        (errno.EBUSY, r"\b(?:ConditionalRequestConflict|OperationAborted)\b"),
        (errno.EIO, r"\b(?:NoSuchUpload|InvalidBlockList)\b"),
        (
            errno.ENOENT,
            r"\b(?:NO_SUCH_KEY|NO_SUCH_BUCKET|RESOURCE_NOT_FOUND)\b|HTTP status 404"
            r"|No such (?:file or )?directory",
        ),
        (
            errno.EACCES,
            r"\b(?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)\b"
            r"|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED"
            r"|\b(?:NoCredentialsError|GoogleAuthError|ClientAuthenticationError)\b",
        ),
        (
            errno.EIO,
            r"AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|THROTTLING"
            r"|REQUEST_TIMEOUT|INTERNAL_FAILURE)\b"
            r"|\bHTTP status (?:code: )?(?:408|429|5\d\d)\b"
            r"|google::cloud::Status\((?:UNAVAILABLE|DEADLINE_EXCEEDED"
            r"|RESOURCE_EXHAUSTED|ABORTED|INTERNAL)\b"
            r"|\bcurlCode: (?:5|6|7|28|35|52|55|56)\b"
            r"|\b(?:ConnectionError|HTTPClientError|IncompleteReadError|RetryError"
            r"|RequestException|AzureError)\b",
        ),
        (
            errno.EREMOTEIO,
            r"HTTP status [1-4]\d\d"
            r"|(?:INVALID_ARGUMENT|FAILED_PRECONDITION|UNIMPLEMENTED):",
        ),
        # Invalid settings.
        (errno.EINVAL, r"\bBotoCoreError\b"),
    )
)
_CLIENTS = ("azure", "boto3", "botocore", "google", "requests")
# The errno that Hadoop's client gives to unknown errors.
_UNKNOWN = 255
_LONGEST_REASON = 300
# A place that did not answer gets no second tries for this long: many requests to a
# dead server must not each wait for their last try.
_SHUN_SECONDS = 30
_log = logging.getLogger(__name__)


class OvertakenError(Exception):
    """A conditional write failed: the object has another version than required."""


@dataclasses.dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often work is done again, and when.

    Attributes:
      attempts: in all, at least 1.
      first_pause: seconds before the second attempt, about; each further pause is
        `growth` times as long.
      growth: see `first_pause`.
      bound: seconds after which no further attempt begins.
    """

    # Pauses of about 0.1, 0.4, 1.6 and 6.4 s.
    attempts: int = 5
    first_pause: float = 0.1
    growth: float = 4.0
    bound: float = 30.0

    def pauses(self) -> Iterator[float]:
        """Yields the pauses between the attempts, in seconds.

        Each is drawn, between half and one and a half times what it would be: many
        workers that have failed together must not come back together. No byte of the
        output depends on it.
        """
        for number in range(self.attempts - 1):
            middle = self.first_pause * self.growth**number
            yield middle * random.uniform(0.5, 1.5)


POLICY = RetryPolicy()
# Other machines take longer to recover than a disk.
_PATIENCE = RetryPolicy(attempts=6, growth=3.0)
_ONCE = RetryPolicy(attempts=1)

# Place -> when `_SHUN_SECONDS` end.
_shunned_until: dict[str, float] = {}


def is_transient(error: BaseException, also: Collection[int] = ()) -> bool:
    """Whether the same work may succeed a moment later.

    Args:
      error: as the system or Arrow raised it.
      also: further error numbers that are transient for this work.
    """
    if not isinstance(error, OSError):
        return False
    if error.errno is None:
        return _number_of(str(error)) == errno.EIO
    return error.errno in _TRANSIENT or error.errno in also


def persistently(
    work: Callable[[], _Result],
    *,
    path: str = "",
    also: Collection[int] = (),
    policy: RetryPolicy | None = None,
) -> _Result:
    """Does the work, and repeats it after transient failures.

    Args:
      work: may be done any number of times; only its last result counts.
      path: of the file, for messages; by default the error's own.
      also: see `is_transient`.
      policy: another than `POLICY`.

    Raises:
      StorageError: it failed each time.
      OSError: a failure that is not transient.
    """
    policy = policy or POLICY
    started, tries, pauses = time.monotonic(), 0, None
    while True:
        tries += 1
        try:
            return work()
        except OSError as error:
            if not is_transient(error, also):
                raise
            pauses = pauses or policy.pauses()
            pause = next(pauses, math.inf)
            seconds = time.monotonic() - started
            if seconds + pause > policy.bound:
                raise _given_up(error, path, tries, seconds) from error
            _log.warning("%s; it is tried again", _described(error, path))
        time.sleep(pause)


def asked(path: str, work: Callable[[], _Result]) -> _Result:
    """Does work at a store, and repeats it after transient failures.

    A place that was given up a moment ago is not waited for again: what a failed run
    clears away would take as long as its last request, each time.

    Raises:
      OSError: with a number and the path.
      StorageError: it failed each time.
    """
    place = split_remote(path)[0]
    shunned = time.monotonic() < _shunned_until.get(place, 0.0)
    policy = _ONCE if shunned else _PATIENCE
    once = functools.partial(_numbered, path, work)
    try:
        result = persistently(once, path=path, policy=policy)
    except StorageError:
        # What asks again meanwhile, as a watcher does, must not put off patience.
        if not shunned:
            _shunned_until[place] = time.monotonic() + _SHUN_SECONDS
        raise
    _shunned_until.pop(place, None)
    return result


def _numbered(path: str, work: Callable[[], _Result]) -> _Result:
    """Does work; gives the OSError of a failure the errno that its text means.

    What is not known to stay is taken to pass: an object that is there must not count
    as one that cannot be read.
    """
    import pyarrow as pa

    try:
        with client_errors(path):
            return work()
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise
        raise _with_number(error, path) from error
    except (ValueError, pa.ArrowException) as error:
        raise OSError(errno.EINVAL, reason_of(error), path) from error


def _with_number(error: OSError, path: str) -> OSError:
    """Returns an error of Arrow with an errno: by its type or text, or else EIO."""
    of_types = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
    number = of_types.get(type(error)) or _number_of(str(error))
    reason = reason_of(error)
    if number in of_types.values():
        return _os_error(number, reason, path)
    if error.errno == _UNKNOWN:
        reason = "it failed; what Hadoop's client has printed before says in which way"
        return OSError(errno.EIO, reason, path)
    return OSError(error.errno or number or errno.EIO, reason, path)


def _os_error(number: int, reason: str, path: str) -> OSError:
    """Returns an error with a number; what is missing is said in the usual words."""
    is_missing = number == errno.ENOENT
    return OSError(number, os.strerror(number) if is_missing else reason, path)


def _number_of(text: str) -> int:
    """Returns the number of the error that a text describes; 0 for unknown."""
    return next((number for number, words in _WORDS if words.search(text)), 0)


@contextlib.contextmanager
def client_errors(path: str) -> Iterator[None]:
    """Turns what a cloud's own client raises into an OSError or an OvertakenError.

    Args:
      path: that it is about.
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _CLIENTS:
            raise
        raise _error_of_client(error, path) from error


def _error_of_client(error: Any, path: str) -> Exception:
    """Returns an error of a cloud's client as an OSError; tokens are left out."""
    kinds = [kind.__name__ for kind in type(error).__mro__]
    status = code = said = None
    if "GoogleAPICallError" in kinds:
        status, said = error.code, error.message
    elif "ClientError" in kinds:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        code, said = map(error.response.get("Error", {}).get, ("Code", "Message"))
    elif "HttpResponseError" in kinds:
        code = getattr(error, "error_code", None)
        # A login is no request to the store: only its own text says why it failed.
        if code is not None or "ClientAuthenticationError" not in kinds:
            status, said = error.status_code, error.reason
    if status:
        code = getattr(code, "value", code)
        words = map(str, filter(None, ("the store answered", status, code, said)))
        reason = bounded(" ".join(words), _LONGEST_REASON)
        if int(status) == 412 or code == "BlobAlreadyExists":
            return OvertakenError(reason)
        number = _number_of(f"HTTP status {status} {code}") or errno.EIO
        return _os_error(number, reason, path)
    is_passing = getattr(error, "retryable", False)
    number = errno.EIO if is_passing else _number_of(" ".join(kinds)) or errno.EIO
    # Addresses in it may end with a token.
    return OSError(number, reason_of(error).partition("?")[0], path)


def reason_of(error: BaseException) -> str:
    """Returns the text of an error; a long one is cut in the middle."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return bounded(said, _LONGEST_REASON)


def _described(error: OSError, path: str) -> str:
    """Returns path and reason for a message; the reason alone for an unknown path."""
    where = path or error.filename
    reason = str(error.strerror or error)
    return f"{where!r}: {reason}" if where else reason


def _given_up(error: OSError, path: str, tries: int, seconds: float) -> StorageError:
    """Returns the error after the last try, with how many there were, in which time."""
    return StorageError(
        f"Files must stay readable and writable during the run; tried {tries} times in "
        f"{seconds:.1f} s: {_described(error, path)}. Look after the disk or the "
        f"network, and run again; a source file that is lost can be left out with "
        f"--exclude."
    )


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Gives the path to an OSError without one: a failed write does not say of what."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = path
        raise


@contextlib.contextmanager
def storing(path: str, *, size: int | None = None) -> Iterator[None]:
    """Turns the failure to write a file into an error that says what to do.

    Args:
      path: of the file; its folder exists.
      size: bytes that it needs, where that is known.

    Raises:
      StorageError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        needs = "" if size is None else f" of {size:,} bytes"
        reason = str(error.strerror or error)
        if error.filename and error.filename != path:
            reason += f" ({error.filename!r})"
        raise StorageError(
            f"It must be possible to write {path!r}{needs}; it is not: {reason}. "
            f"Remove the cause (make room there, say), or choose another output, and "
            f"run again; `beam-tfrecord plan` says how much room the job needs."
        ) from error
