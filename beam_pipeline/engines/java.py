"""Find the Java for clusters and job servers. Uses the standard library alone."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

__all__ = ["OLDEST", "JavaError", "find_java", "version_in"]

# Flink 1.20, Spark 3.5 and Beam's job servers are all tested on it.
OLDEST = 17
_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')
# A JVM may take seconds to start on a loaded machine.
_ASK_SECONDS = 30


class JavaError(Exception):
    """There is no Java that is new enough; says what to do."""


def find_java(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the path of `java`: of JAVA_HOME, else of the PATH.

    Raises:
      JavaError: there is none, it does not answer, or it is too old.
    """
    home = environ.get("JAVA_HOME")
    if home:
        where, path = "JAVA_HOME", os.path.join(home, "bin", "java")
    else:
        where, path = "the PATH", shutil.which("java", path=environ.get("PATH")) or ""
    if not path or not os.access(path, os.X_OK):
        raise JavaError(
            f"Java {OLDEST} or newer is needed, and {where} holds none"
            f"{f' ({path} cannot be run)' if path else ''}. Install it (Debian: apt "
            f"install openjdk-17-jre-headless), or let JAVA_HOME name its folder."
        )
    try:
        asked = subprocess.run(
            [path, "-version"],
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
            check=False,
        )
        said = asked.stderr + asked.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    version = version_in(said)
    if version is None or version < OLDEST:
        found = f"is Java {version}" if version else f"said {said.strip()[:200]!r}"
        raise JavaError(
            f"Java {OLDEST} or newer is needed; {path} {found}. Install it, or let "
            f"JAVA_HOME name its folder."
        )
    return path


def version_in(said: str) -> int | None:
    """Returns the feature version in what `java -version` prints, as in 8 or 17."""
    match = _VERSION.search(said)
    if match is None:
        return None
    first = int(match["first"])
    # Up to 8 they were called 1.8 and the like.
    return int(match["second"] or 0) if first == 1 else first
