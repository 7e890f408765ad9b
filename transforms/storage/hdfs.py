"""HDFS, through Arrow and Hadoop's own client, in Java within this process."""

import errno
import os
import urllib.parse
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.fs as pafs

# Processes that have started Java.
_with_java: set[int] = set()


def may_fork() -> bool:
    """Whether this process may fork. It may not where Java runs in it."""
    return os.getpid() not in _with_java


def connected(parameters: Mapping[str, str], place: str) -> "pafs.FileSystem":
    """Returns Hadoop's file system.

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
