"""Notes on the clusters that `scripts/cluster` has started, and the Java they need.

Below `$XDG_CACHE_HOME` or `~/.cache`:

    beam-tfrecord/
      jars/                    Beam's job servers
      engines/                 Flink and Spark as downloaded, Prism as built
      clusters/<engine>-<name>/
        cluster.json           written when the cluster is ready; see `Cluster`
        logs/ conf/ ...        its own
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Mapping

_NOTE = "cluster.json"
# Separates the name of a job server from that of its parts.
_OF = "-of-"
# Field of /proc/<pid>/stat with the start time, counted from behind the name.
_START_FIELD = 19
# Flink 1.20, Spark 3.5 and Beam's job servers are all tested on it.
_OLDEST = 17
_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')
# A JVM may take seconds to start on a loaded machine.
_ASK_SECONDS = 30


@dataclasses.dataclass(frozen=True)
class Process:
    """A process of a cluster.

    Attributes:
      pid: its number.
      started: in clock ticks since boot; a later process of this number has another.
      role: as in "taskmanager-1".
    """

    pid: int
    started: int
    role: str

    @property
    def is_alive(self) -> bool:
        """Whether it still runs, and is not another one of the same number."""
        return started_at(self.pid) == self.started


@dataclasses.dataclass(frozen=True)
class Cluster:
    """A cluster as it was started.

    Attributes:
      engine: "flink" or "spark".
      name: tells clusters of one engine apart.
      master: as `--flink_master` or `--spark_master_url` take it.
      web: address of its web pages.
      workers: how many machines it has.
      slots: of each.
      started: seconds since the epoch.
      processes: all of them.
    """

    engine: str
    name: str
    master: str
    web: str
    workers: int
    slots: int
    started: float
    processes: tuple[Process, ...]


def cache_folder() -> pathlib.Path:
    """Returns where downloads and notes are."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "beam-tfrecord"


def cluster_folder(engine: str, name: str) -> pathlib.Path:
    """Returns the folder of one cluster."""
    return cache_folder() / "clusters" / f"{engine}-{name}"


def jar_path(artifact: str, version: str, parts: str = "") -> pathlib.Path:
    """Returns where a job server of Beam is, brought or not.

    Args:
      artifact: as Beam names it.
      version: of Beam.
      parts: of what it is put together; empty for the one that Beam publishes.
    """
    of = f"{_OF}{parts}" if parts else ""
    return cache_folder() / "jars" / f"{artifact}-{version}{of}.jar"


def program_path(engine: str, version: str) -> pathlib.Path:
    """Returns the place of an engine that is one program, built or not."""
    # The suffix tells it from older builds, which listened on all interfaces.
    return cache_folder() / "engines" / f"{engine}-{version}-loopback"


def started_at(pid: int) -> int | None:
    """Returns when a process was started, in clock ticks since boot; None if gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may hold anything.
    state, *fields = text.rpartition(")")[2].split()
    return None if state == "Z" else int(fields[_START_FIELD - 1])


def write_cluster(cluster: Cluster) -> None:
    """Notes a cluster that is ready, in one step."""
    folder = cluster_folder(cluster.engine, cluster.name)
    folder.mkdir(parents=True, exist_ok=True)
    # Renamed when it is whole: another process may read the note at any time.
    partial = folder / f"{_NOTE}.{os.getpid()}"
    partial.write_text(json.dumps(dataclasses.asdict(cluster), indent=1) + "\n")
    partial.replace(folder / _NOTE)


def read_cluster(engine: str, name: str) -> Cluster | None:
    """Returns what was noted of a cluster, alive or not; None for nothing readable."""
    try:
        text = (cluster_folder(engine, name) / _NOTE).read_text()
        known = json.loads(text)
        known["processes"] = tuple(Process(**each) for each in known["processes"])
        return Cluster(**known)
    except (OSError, ValueError, TypeError, KeyError):
        return None


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
            f"Java {_OLDEST} or newer is needed, and {where} holds none"
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
    if version is None or version < _OLDEST:
        found = f"is Java {version}" if version else f"said {said.strip()[:200]!r}"
        raise JavaError(
            f"Java {_OLDEST} or newer is needed; {path} {found}. Install it, or let "
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
