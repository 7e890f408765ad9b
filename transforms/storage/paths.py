"""Paths on this machine and elsewhere: `dir/file`, `s3://bucket/dir/file`.

A path elsewhere is a scheme, an authority and a key, and after those nothing is
special but `.` and `..` between slashes, which mean what they mean here: `?`, `#`, `%`
and spaces stand for themselves. What a user appends as URI
parameters (`?endpoint_override=...`), or writes as `key:secret@` before a bucket, is
taken off by `plain` where the path enters the program. It is remembered for that place
in this process alone, and never printed or stored; `Access` carries it to workers.
"""

import os
import posixpath
import re
import threading
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any

from transforms.errors import SpecError

__all__ = [
    "SCHEMES",
    "Access",
    "absolute",
    "common_folder",
    "is_remote",
    "parameters_given",
    "parameters_of",
    "plain",
    "relative",
    "split_remote",
    "work_folder",
]

# What `pyarrow.fs` reaches by URI.
SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
_REMOTE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# A question mark may stand in a key; parameters are told by their form.
_PARAMETERS = re.compile(r"\?([A-Za-z_]+=[^?]*)$", re.DOTALL)

_lock = threading.Lock()
_parameters: dict[str, str] = {}


def is_remote(path: str) -> bool:
    """Whether the path has a scheme: it is not one of this machine's."""
    return "://" in path and _REMOTE.match(path) is not None


def plain(path: str) -> str:
    """Returns a path as the program uses it; see the module on what is taken off.

    Raises:
      SpecError: its scheme is not known here.
    """
    found = _REMOTE.match(path)
    if found is None:
        return path
    scheme = found[1].lower()
    if scheme == "file":
        return urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    if scheme not in SCHEMES:
        raise SpecError(
            f"A path may begin with {', '.join(f'{each}://' for each in SCHEMES)}; "
            f"found {found[0]!r}."
        )
    given = _PARAMETERS.search(path)
    if given is not None:
        path = path[: given.start()]
    authority, slash, key = path[found.end() :].partition("/")
    query = "" if given is None else given[1]
    if "@" in authority:
        authority, said = _without_secret(scheme, authority)
        query = "&".join(filter(None, [query, urllib.parse.urlencode(said)]))
    if not authority and scheme != "hdfs":
        raise SpecError(
            f"A path must name a bucket after {scheme}://; found {found[0]!r} and no "
            f"bucket."
        )
    place = f"{scheme}://{authority}"
    if query:
        with _lock:
            _parameters[place] = query
    parts = [part for part in key.split("/") if part]
    return place + slash + "/".join(parts) if parts else place


def _without_secret(scheme: str, authority: str) -> tuple[str, dict[str, str]]:
    """Returns an authority with an `@` without its secret, and that as parameters."""
    said, _, host = authority.rpartition("@")
    name, colon, password = map(urllib.parse.unquote, said.partition(":"))
    if scheme in ("s3", "gs", "gcs"):
        return host, {"access_key": name, "secret_key": password}
    # Azure's container, or HDFS's user, stands there.
    return f"{name}@{host}", {"account_key": password} if colon else {}


def split_remote(path: str) -> tuple[str, str]:
    """Returns the place of a remote path, as in "s3://bucket", and its key there."""
    scheme, _, rest = path.partition("://")
    authority, _, key = rest.partition("/")
    if "/." in f"/{key}":
        # A table may name what lies beside its folder.
        key = posixpath.normpath(f"/{key}").lstrip("/")
    return f"{scheme}://{authority}", key


def parameters_of(place: str) -> dict[str, str]:
    """Returns the URI parameters that were given with a path of this place."""
    return dict(urllib.parse.parse_qsl(_parameters.get(place, "")))


def parameters_given() -> dict[str, set[str]]:
    """Returns by place the names of the URI parameters that were given so far."""
    with _lock:
        known = list(_parameters)
    return {place: set(parameters_of(place)) for place in known}


class Access:
    """The URI parameters of all places: unpickled in a worker, they hold there too."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _install, (dict(_parameters),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Access)

    def __hash__(self) -> int:
        return hash(Access)

    def __repr__(self) -> str:
        return "Access()"


def _install(parameters: Mapping[str, str]) -> Access:
    with _lock:
        _parameters.update(parameters)
    return Access()


def absolute(path: str) -> str:
    """Returns the path from the root of its place."""
    return path.rstrip("/") if is_remote(path) else os.path.abspath(path)


def work_folder(target: str) -> str:
    """Returns the folder for unfinished work on a target; it is ours alone."""
    parent, name = os.path.split(absolute(target))
    return os.path.join(parent, f".{name}.beam-tfrecord")


def relative(path: str, root: str) -> str:
    """Returns a path below `root` relative to it, `/` between."""
    if is_remote(path):
        return path.removeprefix(root.rstrip("/")).lstrip("/")
    return os.path.relpath(path, root or ".").replace(os.sep, "/")


def common_folder(paths: Iterable[str]) -> str:
    """Returns the deepest folder that all these files lie below, absolute."""
    folders = [os.path.dirname(absolute(path)) for path in paths]
    if not is_remote(folders[0]):
        return os.path.commonpath(folders)
    first, *others = (folder.split("/") for folder in folders)
    shared = 3
    for depth in range(len(first), 2, -1):
        if all(other[:depth] == first[:depth] for other in others):
            shared = depth
            break
    return "/".join(first[:shared])
