"""Connections to object stores and other remote file systems, through `pyarrow.fs`.

One for each place and process, with the endpoint and the credentials that the usual
environment variables or the URI parameters of the place name. What is asked there is
asked through `asked`: tried again where that may help, and failing as an OSError with a
number or a StorageError.
"""

import contextlib
import errno
import functools
import os
import re
import time
import urllib.parse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from transforms import object_clients
from transforms.errors import StorageError
from transforms.paths import parameters_of, split_remote
from transforms.retry import RetryPolicy, persistently

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ["asked", "file_system"]

_Result = TypeVar("_Result")
# Of Google's client alone, which takes twice as long; `persistently` comes on top.
_RETRY_SECONDS = 1
_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 60
# So long nothing more is tried again at a place that did not answer to the last.
_SHUN_SECONDS = 30
_ONCE = RetryPolicy(attempts=1)
_LONGEST_REASON = 300

# Place -> until when it is shunned.
_given_up: dict[str, float] = {}


def file_system(path: str) -> tuple["pafs.FileSystem", str]:
    """Returns the file system of a path, and the path as that has it.

    Raises:
      OSError: what the environment or the parameters say makes no sense.
    """
    place, key = split_remote(path)
    said = tuple(sorted(parameters_of(place).items()))
    system, base = _connected(place, said, os.getpid())
    return system, f"{base.rstrip('/')}/{key}" if key else base


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], process: int
) -> tuple["pafs.FileSystem", str]:
    """Connects once to each place, in each process: threads do not survive a fork."""
    # Here, because it loads the clients of all clouds.
    import pyarrow as pa
    import pyarrow.fs as pafs

    scheme, _, authority = place.partition("://")
    parameters = dict(said)
    try:
        if scheme == "s3":
            return _s3(parameters, authority), authority
        if scheme in ("gs", "gcs"):
            return _gcs(parameters), authority
        query = urllib.parse.urlencode(parameters)
        system, base = pafs.FileSystem.from_uri(
            f"{place}/{'?' if query else ''}{query}"
        )
        return system, base
    except (ValueError, pa.ArrowException, OSError) as error:
        raise OSError(errno.EINVAL, _reason(error), place) from error


def _s3(parameters: dict[str, str], bucket: str) -> "pafs.S3FileSystem":
    import pyarrow.fs as pafs

    endpoint = object_clients.s3_endpoint(parameters)
    scheme, _, host = endpoint.rpartition("://")
    options: dict[str, Any] = {
        name: parameters[name]
        for name in ("access_key", "secret_key", "session_token", "region")
        if name in parameters
    }
    if parameters.get("anonymous") == "true":
        options["anonymous"] = True
    if host:
        options["endpoint_override"] = host
        options["scheme"] = parameters.get("scheme", scheme or "https")
    elif not (options.keys() & {"region"} or object_clients.s3_region()):
        # Nobody says where the bucket is; Amazon does.
        with contextlib.suppress(OSError):
            options["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(
        connect_timeout=_CONNECT_SECONDS, request_timeout=_REQUEST_SECONDS, **options
    )


def _gcs(parameters: dict[str, str]) -> "pafs.GcsFileSystem":
    import datetime

    import pyarrow.fs as pafs

    endpoint = object_clients.gcs_endpoint(parameters)
    scheme, _, host = endpoint.rpartition("://")
    options: dict[str, Any] = {}
    if host:
        options["endpoint_override"] = host
        options["scheme"] = parameters.get("scheme", scheme or "https")
    if host or parameters.get("anonymous") == "true":
        # Emulators know no accounts.
        options["anonymous"] = True
    limit = datetime.timedelta(seconds=_RETRY_SECONDS)
    return pafs.GcsFileSystem(retry_time_limit=limit, **options)


def asked(path: str, work: Callable[[], _Result]) -> _Result:
    """Does work at a store, again where that may help.

    A place that was given up a moment ago is not waited for again: what a failed run
    clears away would take as long as its last request, each time.

    Raises:
      OSError: with a number and the path.
      StorageError: it failed each time.
    """
    import pyarrow as pa

    place = split_remote(path)[0]
    shunned = time.monotonic() < _given_up.get(place, 0.0)
    try:
        result = persistently(work, path=path, policy=_ONCE if shunned else None)
        if shunned:
            _given_up.pop(place, None)
        return result
    except StorageError:
        if not shunned:
            _given_up[place] = time.monotonic() + _SHUN_SECONDS
        raise
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise
        raise _numbered(error, path) from error
    except (ValueError, pa.ArrowException) as error:
        raise OSError(errno.EINVAL, _reason(error), path) from error


def _numbered(error: OSError, path: str) -> OSError:
    text = str(error)
    if isinstance(error, FileNotFoundError) or re.search(
        r"\b(?:NO_SUCH_KEY|NO_SUCH_BUCKET|RESOURCE_NOT_FOUND)\b|HTTP status 404"
        r"|No such (?:file or )?directory",
        text,
    ):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError) or re.search(
        r"\b(?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)\b"
        r"|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED",
        text,
    ):
        return PermissionError(errno.EACCES, _reason(error), path)
    return OSError(error.errno or errno.EREMOTEIO, _reason(error), path)


def _reason(error: BaseException) -> str:
    strerror = getattr(error, "strerror", None)
    return (strerror or str(error) or type(error).__name__)[:_LONGEST_REASON]
