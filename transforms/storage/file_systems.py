"""Connections to object stores and other remote file systems, through `pyarrow.fs`.

There is one for each place and process. Its endpoint and credentials come from the
usual environment variables, or from URI parameters of the path. All requests go through
`asked`: it repeats what may help, and fails with a StorageError, or with an OSError
that has an error number.
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

from transforms.errors import StorageError
from transforms.storage import object_store
from transforms.storage.paths import parameters_of, split_remote
from transforms.storage.retry import RetryPolicy, is_transient, persistently

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_Result = TypeVar("_Result")
# So short that Google's client never repeats: its long pauses would add to ours.
_RETRY_SECONDS = 0.1
# Other machines take longer to recover than a disk.
_PATIENCE = RetryPolicy(attempts=6, growth=3.0)
# Connections of one process to one place.
CONNECTIONS = 64
_CONNECT_SECONDS = 5
_REQUEST_SECONDS = 60
# A place that did not answer gets no second tries for this long: many requests to a
# dead server must not each wait for their last try.
_SHUN_SECONDS = 30
_ONCE = RetryPolicy(attempts=1)
# The errno that Hadoop's client gives to unknown errors.
_UNKNOWN = 255

# Arrow's errors mostly come without an errno; their words say what happened.
_MISSING = re.compile(
    r"\b(?:NO_SUCH_KEY|NO_SUCH_BUCKET|RESOURCE_NOT_FOUND)\b|HTTP status 404"
    r"|No such (?:file or )?directory"
)
_DENIED = re.compile(
    r"\b(?:ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH)\b"
    r"|HTTP status 40[13]|PERMISSION_DENIED|UNAUTHENTICATED"
)
_REFUSED = re.compile(
    r"HTTP status 4\d\d|(?:INVALID_ARGUMENT|FAILED_PRECONDITION|UNIMPLEMENTED):"
)

# Place -> when `_SHUN_SECONDS` end.
_given_up: dict[str, float] = {}
# Processes that have started Java.
_with_java: set[int] = set()


def may_fork() -> bool:
    """Whether this process may fork. It may not where Java runs in it (HDFS)."""
    return os.getpid() not in _with_java


def file_system(path: str) -> tuple["pafs.FileSystem", str]:
    """Returns the file system of a path, and the path within it.

    Raises:
      OSError: what the environment or the parameters say makes no sense.
    """
    place, key = split_remote(path)
    said = tuple(sorted(parameters_of(place).items()))
    system, base = _connected(place, said, os.getpid())
    return system, f"{base.rstrip('/')}/{key}" if key else base


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], _process: int
) -> tuple["pafs.FileSystem", str]:
    """Connects once to each place, in each process: threads do not survive a fork."""
    # Here, because it loads the clients of all clouds.
    import pyarrow as pa

    scheme, _, authority = place.partition("://")
    parameters = dict(said)
    try:
        if scheme == "s3":
            return _s3(parameters, authority), authority
        if scheme in ("gs", "gcs"):
            return _gcs(parameters), authority
        if scheme in ("abfs", "abfss"):
            return _azure(parameters, authority)
        return _hdfs(parameters, place), ""
    except (ValueError, pa.ArrowException, OSError) as error:
        raise OSError(errno.EINVAL, object_store.reason_of(error), place) from error


def _s3(parameters: dict[str, str], bucket: str) -> "pafs.S3FileSystem":
    import pyarrow as pa
    import pyarrow.fs as pafs

    # Its client opens as many connections as Arrow has threads, or 25: who reads from
    # more threads of his own would wait for one.
    pa.set_io_thread_count(max(pa.io_thread_count(), CONNECTIONS))
    endpoint = object_store.s3_endpoint(parameters)
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
    elif not (options.keys() & {"region"} or object_store.s3_region()):
        # Nobody says where the bucket is; Amazon does.
        with contextlib.suppress(OSError):
            options["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(
        connect_timeout=_CONNECT_SECONDS, request_timeout=_REQUEST_SECONDS, **options
    )


def _gcs(parameters: dict[str, str]) -> "pafs.GcsFileSystem":
    import datetime

    import pyarrow.fs as pafs

    endpoint = object_store.gcs_endpoint(parameters)
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


def _azure(parameters: dict[str, str], authority: str) -> tuple["pafs.FileSystem", str]:
    """Returns Azure's store and the container: `container[@account.host]`."""
    import pyarrow.fs as pafs

    container, _, host = authority.partition("@")
    account, _, suffix = host.partition(".")
    account = account or _said(
        parameters,
        "account_name",
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_ACCOUNT_NAME",
    )
    if not account:
        raise ValueError(
            "it must name an account, as in abfs://container@account.dfs.core.windows."
            "net/folder, or AZURE_STORAGE_ACCOUNT must"
        )
    options: dict[str, Any] = {}
    # Without either Arrow asks for a login as Azure's own programs do.
    if key := _said(
        parameters, "account_key", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"
    ):
        options["account_key"] = key
    elif token := _said(parameters, "sas_token", "AZURE_STORAGE_SAS_TOKEN"):
        options["sas_token"] = token
    at = parameters.get("blob_storage_authority", "")
    if at or suffix:
        domain = suffix.partition(".")[2]
        options["blob_storage_authority"] = at or f".blob.{domain}"
        options["dfs_storage_authority"] = (
            parameters.get("dfs_storage_authority") or at or f".dfs.{domain}"
        )
    if parameters.get("enable_tls") == "false":
        options["blob_storage_scheme"] = options["dfs_storage_scheme"] = "http"
    return pafs.AzureFileSystem(account_name=account, **options), container


def _hdfs(parameters: dict[str, str], place: str) -> "pafs.FileSystem":
    """Returns Hadoop's file system, which Arrow reaches through Java in this process.

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
        found = str(error).partition("\n")[0]
        raise OSError(
            errno.EINVAL,
            f"hdfs:// needs Java and Hadoop: JAVA_HOME, ARROW_LIBHDFS_DIR (the folder "
            f"of libhdfs.so) and CLASSPATH (what 'hadoop classpath --glob' prints) "
            f"must name them; found: {found}",
            place,
        ) from error


def _said(parameters: dict[str, str], name: str, *variables: str) -> str:
    """Returns a setting: from a path if one gives it, else from the environment."""
    given = [os.environ.get(each, "") for each in variables]
    return next(filter(None, [parameters.get(name, ""), *given]), "")


def asked(path: str, work: Callable[[], _Result]) -> _Result:
    """Does work at a store, and repeats it after transient failures.

    A place that was given up a moment ago is not waited for again: what a failed run
    clears away would take as long as its last request, each time.

    Raises:
      OSError: with a number and the path.
      StorageError: it failed each time.
    """
    place = split_remote(path)[0]
    shunned = time.monotonic() < _given_up.get(place, 0.0)
    try:
        result = persistently(
            functools.partial(_numbered, path, work),
            path=path,
            policy=_ONCE if shunned else _PATIENCE,
        )
    except StorageError:
        if not shunned:
            _given_up[place] = time.monotonic() + _SHUN_SECONDS
        raise
    if shunned:
        _given_up.pop(place, None)
    return result


def _numbered(path: str, work: Callable[[], _Result]) -> _Result:
    """Does work; gives the OSError of a failure the errno that its text means.

    What is not known to stay is taken to pass: an object that is there must not count
    as one that cannot be read.
    """
    import pyarrow as pa

    try:
        return work()
    except OSError as error:
        if error.errno is not None and error.filename is not None:
            raise
        raise _with_number(error, path) from error
    except (ValueError, pa.ArrowException) as error:
        raise OSError(errno.EINVAL, object_store.reason_of(error), path) from error


def _with_number(error: OSError, path: str) -> OSError:
    text = str(error)
    if isinstance(error, FileNotFoundError) or _MISSING.search(text):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, PermissionError) or _DENIED.search(text):
        return PermissionError(errno.EACCES, object_store.reason_of(error), path)
    if error.errno == _UNKNOWN:
        reason = "it failed; what Hadoop's client has printed before says in which way"
        return OSError(errno.EIO, reason, path)
    if is_transient(error):
        return OSError(errno.EIO, object_store.reason_of(error), path)
    number = errno.EREMOTEIO if _REFUSED.search(text) else errno.EIO
    return OSError(error.errno or number, object_store.reason_of(error), path)
