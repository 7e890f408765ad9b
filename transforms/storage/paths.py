"""Paths, local and remote; the URI parameters of places; entries and stamps of files.

A path elsewhere, as `s3://bucket/dir/file`, is a scheme, an authority and a key, and
after those nothing is special but `.` and `..` between slashes, which mean what they
mean here: `?`, `#`, `%` and spaces stand for themselves. What a user appends as URI
parameters (`?endpoint_override=...`) is taken off by `plain` where the path enters the
program. It is remembered for that place in this process alone, and never printed or
stored; `Access` carries it to workers.

What all paths of a job say of one place holds together, so two of them may not
contradict each other, and a parameter that nothing reads is refused: ignored, it would
send a user's keys to another server than the one that was meant.
"""

import dataclasses
import errno
import io
import itertools
import locale
import os
import posixpath
import re
import sys
import threading
import unicodedata
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from transforms.errors import SpecError, UsageError

if TYPE_CHECKING:
    import pyarrow.fs as pafs

SECOND_NS = 10**9
"""Nanoseconds of a second."""
# What `pyarrow.fs` reaches by URI.
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
# Ends the names of work folders.
WORK_SUFFIX = ".beam-tfrecord"
_REMOTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# A key may contain a question mark; parameters are recognised by their form.
_PARAMETERS = re.compile(r"\?([A-Za-z_]+=[^?]*)$", re.DOTALL)
_SECRET_IN_KEY = re.compile(
    r"[?&](?:access_key|secret_key|session_token|account_key|sas_token)="
)
_OF_GOOGLE = frozenset(("anonymous", "endpoint_override", "scheme"))
_OF_S3 = _OF_GOOGLE | {"access_key", "region", "secret_key", "session_token"}
_AZURE = ("abfs", "abfss")
_OF_AZURE = frozenset(
    "account_key account_name blob_storage_authority dfs_storage_authority enable_tls "
    "sas_token".split()
)
# What is read of each; Arrow itself reads those of the others, and refuses some.
_KNOWN = {
    "s3": _OF_S3,
    **dict.fromkeys(("gs", "gcs"), _OF_GOOGLE),
    **dict.fromkeys(_AZURE, _OF_AZURE),
}
# Longer, or of other characters, it is not a name but a piece of a value.
_NAME = re.compile(r"[A-Za-z_]{1,32}")
# As `repr` has texts, wherever they are in a value.
_TEXT = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""")

_lock = threading.Lock()
# Place -> name -> value.
_parameters: dict[str, dict[str, str]] = {}
# Those of them that paths of this job have given.
_of_this_job: dict[str, dict[str, str]] = {}


def spellings(path: str) -> tuple[str, ...]:
    """Returns the ways in which the file that a table names may be called.

    The path as it is comes first. Tables say é with one character where the file
    system has two, or the reverse; those of Windows have backslashes between folders.
    """
    variants = (
        unicodedata.normalize(form, text)
        for text in (path, path.replace("\\", "/"))
        for form in ("NFC", "NFD")
    )
    return tuple(dict.fromkeys((path, *variants)))


def is_remote(path: str) -> bool:
    """Whether the path has a scheme, and so is not on this machine."""
    return "://" in path and _REMOTE.match(path) is not None


def plain(path: str) -> str:
    """Returns a path as the program uses it; see the module on what is taken off.

    Raises:
      SpecError: its scheme or a parameter is not known here, it contradicts another
        path, or it is written so that a secret would be taken for a part of it.
    """
    match = _REMOTE.match(path)
    if match is None:
        return path
    scheme = match[1].lower()
    if scheme == "file":
        return unquote(urlsplit(path).path)
    if scheme not in SCHEMES:
        raise SpecError(
            f"A path may begin with {', '.join(f'{prefix}://' for prefix in SCHEMES)}; "
            f"found {match[0]!r}."
        )
    given = _PARAMETERS.search(path)
    if given is not None:
        path = path[: given.start()]
    authority, _, key = path[match.end() :].partition("/")
    _check_no_secret_is_left(scheme, authority, key)
    said = [] if given is None else _pairs(given[1])
    if not authority and scheme != "hdfs":
        raise SpecError(
            f"A path must name a bucket after {scheme}://; found {match[0]!r} and no "
            f"bucket."
        )
    place = f"{scheme}://{authority}"
    _check_parameter_names(scheme, said)
    _remember_parameters(place, [(name, value) for name, value in said if value])
    return "/".join((place, *filter(None, key.split("/"))))


def without_access(path: str) -> str:
    """Returns a path as it may be shown: without credentials and endpoint.

    What is no path of another place stays as it is. Never raises.
    """
    match = _REMOTE.match(path)
    if match is None:
        return path
    authority, slash, key = _PARAMETERS.sub("", path)[match.end() :].partition("/")
    return match[0] + authority.rpartition("@")[2] + slash + key


def _check_no_secret_is_left(scheme: str, authority: str, key: str) -> None:
    """Refuses a path that holds a secret; does not show it."""
    # Azure's container and HDFS's user are before an @.
    said, at, _ = authority.rpartition("@")
    is_before = bool(at) and (scheme in ("s3", "gs", "gcs") or ":" in said)
    is_before = is_before or (scheme in _KNOWN and ":" in authority)
    if is_before or _SECRET_IN_KEY.search(key):
        raise SpecError(
            f"Keys of {scheme}:// must be in the environment, or URI parameters at the "
            f"end of a path, as in ?name=value&name=value, each ? in a value written "
            f"%3F, and each & %26; found some elsewhere. Write them so; a server's "
            f"address is a parameter, too, ?endpoint_override=HOST:PORT."
        )


def _pairs(query: str) -> list[tuple[str, str]]:
    """Returns the names and values of a query; a `+`, frequent in keys, is no space.

    What has no `=` has no name.
    """
    pairs = (map(unquote, text.partition("=")) for text in query.split("&"))
    return [(name if equals else "", value) for name, equals, value in pairs]


def _check_parameter_names(scheme: str, said: Iterable[tuple[str, str]]) -> None:
    """Raises SpecError for a URI parameter unnamed, or unknown to the scheme."""
    allowed = _KNOWN.get(scheme)
    for name, _ in said:
        if not name or (allowed is not None and name not in allowed):
            quoted = repr(name) if _NAME.fullmatch(name) else "what is no name"
            names = f", of {', '.join(sorted(allowed))}" if allowed else ""
            raise SpecError(
                f"URI parameters of {scheme}:// must be name=value with & "
                f"between{names}; found {quoted}. Correct it, or take it off; each & "
                f"in a value is written %26."
            )


def _remember_parameters(place: str, said: Iterable[tuple[str, str]]) -> None:
    """Keeps the URI parameters of a bucket; SpecError where two paths differ in one."""
    with _lock:
        before = _of_this_job.get(place, {})
        merged = dict(before)
        for name, value in said:
            if merged.setdefault(name, value) != value:
                raise SpecError(
                    f"The URI parameter {name!r} must be the same in all paths of "
                    f"{place!r}; found two different values. Give it once."
                )
        if merged != before:
            _parameters[place] = _of_this_job[place] = merged


def another_job() -> None:
    """Lets later paths say again how a place is reached.

    Until they do, the last parameters stay in force.
    """
    with _lock:
        _of_this_job.clear()


def shown(value: Any) -> str:
    """Returns a setting as a message may show it: only the scheme of a remote path."""
    return _TEXT.sub(_hide_place, repr(value))


def _hide_place(text: re.Match[str]) -> str:
    """Returns a remote path as `scheme://...`, with the character that ends it."""
    before, scheme_ends, _ = text[0].partition("://")
    return f"{before}://...{text[0][-1]}" if scheme_ends else before


def split_remote(path: str) -> tuple[str, str]:
    """Returns the place of a remote path, as in "s3://bucket", and its key there."""
    scheme, _, rest = path.partition("://")
    authority, _, key = rest.partition("/")
    if "/." in f"/{key}":
        # A table may name what is beside its folder.
        key = posixpath.normpath(f"/{key}").lstrip("/")
    return f"{scheme}://{authority}", key


def parameters_of(place: str) -> dict[str, str]:
    """Returns the URI parameters that were given with paths of this place."""
    return dict(_parameters.get(place, {}))


def parameters_given() -> dict[str, set[str]]:
    """Returns by place the names of the URI parameters of all paths given so far."""
    with _lock:
        return {place: set(said) for place, said in _parameters.items()}


@dataclasses.dataclass(frozen=True)
class Access:
    """The URI parameters of all places; unpickled in a worker, they apply there too."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _install, (dict(_parameters),)


def _install(parameters: Mapping[str, dict[str, str]]) -> Access:
    """Takes over the URI parameters of a pickled Access; called by unpickling it."""
    with _lock:
        _parameters.update(parameters)
    return Access()


def absolute(path: str) -> str:
    """Returns the path from the root of its place.

    Raises:
      UsageError: the current folder, where a relative path starts, is gone.
    """
    if is_remote(path):
        return path.rstrip("/")
    try:
        return os.path.abspath(path)
    except FileNotFoundError as error:
        raise UsageError(
            "The current folder must exist, and has been removed. Change to another "
            "one with cd, and run again."
        ) from error


def work_folder(target: str) -> str:
    """Returns the path of the folder of unfinished work on a target; ours alone."""
    parent, name = os.path.split(absolute(target))
    return os.path.join(parent, f".{name}{WORK_SUFFIX}")


def relative(path: str, root: str) -> str:
    """Returns a path below `root` relative to it, `/` between."""
    if is_remote(path):
        return path.removeprefix(root.rstrip("/")).lstrip("/")
    below = path.removeprefix(f"{root}/")
    # Most files are listed below it: `relpath` takes nine times as long.
    is_plain = os.path.normpath(below) == below and not below.startswith(("/", ".."))
    if root and below != path and is_plain:
        return below
    return os.path.relpath(path, root or ".").replace(os.sep, "/")


def common_folder(paths: Iterable[str]) -> str:
    """Returns the deepest folder that all these files of one place are below."""
    folders = [os.path.dirname(absolute(path)) for path in paths]
    if not is_remote(folders[0]):
        return os.path.commonpath(folders)
    names = zip(*(folder.split("/") for folder in folders), strict=False)
    shared = itertools.takewhile(lambda equal: len({*equal}) == 1, names)
    return "/".join(name for name, *_ in shared)


def check_file_names() -> None:
    """Raises UsageError where Python does not read the names in paths as UTF-8.

    Under a locale of another encoding, Latin-1 or EUC-KR, Python would read the bytes
    of a name as other characters, and labels, origins and the order of rows come from
    names: the dataset would be another one. Under LC_ALL=C it reads them as UTF-8.
    """
    encoding = sys.getfilesystemencoding()
    if encoding.lower().replace("-", "") != "utf8":
        raise UsageError(
            f"File names must be read as UTF-8, or labels and origins would be other "
            f"ones; Python reads them as {encoding} under the locale "
            f"{locale.setlocale(locale.LC_CTYPE)!r}. Set PYTHONUTF8=1 before it starts."
        )


@dataclasses.dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of a source, or what is in a store.

    Attributes:
      path: relative to the source's root, `/` between, as the file system has it;
        whole, with its scheme, where a store lists it.
      size: bytes.
      modified_ns: modification time, nanoseconds since the epoch; in stores, of whole
        seconds.
      skipped: why it is not read: "hidden" or ""; see `list_tree`.
      is_folder: whether it is a folder; in an object store, a prefix.
    """

    path: str
    size: int = 0
    modified_ns: int = 0
    skipped: str = ""
    is_folder: bool = False

    @classmethod
    def of(cls, path: str, info: "pafs.FileInfo") -> "FileEntry | None":
        """Returns what Arrow says of a path in a store; None for nothing."""
        import pyarrow.fs as pafs

        if info.type == pafs.FileType.NotFound:
            return None
        if info.type == pafs.FileType.Directory:
            return cls(path, is_folder=True)
        seconds = (info.mtime_ns or 0) // SECOND_NS
        return cls(path, info.size or 0, seconds * SECOND_NS)

    @property
    def stamp(self) -> int:
        """See `stamp`."""
        return stamp(self.size, self.modified_ns)

    @property
    def origin(self) -> str:
        """The path in NFC: the identity that placement hashes."""
        return unicodedata.normalize("NFC", self.path)


def stamp(size: int, modified_ns: int) -> int:
    """Returns a number that changes when the file changes."""
    mixed = (modified_ns * 0x9E3779B97F4A7C15 + size) % 2**64
    return mixed - 2**64 if mixed >= 2**63 else mixed


def stamp_of(file: IO[bytes] | io.RawIOBase) -> int:
    """Returns the stamp of an open file."""
    stated = getattr(getattr(file, "raw", file), "stamp", None)
    if stated is not None:
        return int(stated)
    status = os.fstat(file.fileno())
    return stamp(status.st_size, status.st_mtime_ns)


def changed(path: str) -> OSError:
    """Returns the error of a file that has changed since it was listed."""
    return OSError(errno.ESTALE, "it has changed since it was listed", path)


_HIDDEN = ("__MACOSX", "Thumbs.db", "desktop.ini")
HIDDEN_STARTS = frozenset((".", *(name[0] for name in _HIDDEN)))
"""With what hidden names begin; see `is_hidden`."""


def is_hidden(name: str) -> bool:
    """Whether it is a name that systems and programs give to files of their own."""
    return name.startswith(".") or name in _HIDDEN
