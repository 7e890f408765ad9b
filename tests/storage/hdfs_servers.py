"""A real HDFS on this machine: a name node and a data node, as plain processes.

Arrow reaches it through Hadoop's client library in C, which Hadoop publishes as source
alone: it is compiled here, once, from the package of crates.io that holds it. The
servers and the client in Java come from Maven Central. All are kept in the user's
cache.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["Hdfs", "hdfs_running"]

_ROOT = Path(__file__).parents[2]
_PINNED = Path(__file__).parent / "hadoop"
_VERSION = "3.3.6"
# The newest of those whose C library the package holds.
_SOURCES = "vendor/hdfs-sys/libhdfs"
_SOURCE = f"{_SOURCES}/hdfs_3_3"
_TOOLS = ("cargo", "gcc", "java", "mvn")
_READY_SECONDS = 90
_STOP_SECONDS = 10
_MEMORY = "-Xmx300m"
_LOGGING = """\
log4j.rootLogger=ERROR,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.SimpleLayout
"""
_OPENED = "--add-opens=java.base/java.lang=ALL-UNNAMED"
_SERVERS = "org.apache.hadoop.hdfs.server"
_NAME_NODE = f"{_SERVERS}.namenode.NameNode"
_DATA_NODE = f"{_SERVERS}.datanode.DataNode"


@dataclasses.dataclass(frozen=True)
class Hdfs:
    """A running HDFS.

    Attributes:
      port: of the name node, on the loopback interface.
      environment: what lets a program reach it.
    """

    port: int
    environment: Mapping[str, str]

    def url(self, path: str) -> str:
        """A path, as our commands are given it."""
        return f"hdfs://127.0.0.1:{self.port}/{path}"

    def put(self, source: Path, path: str) -> None:
        """Copies a file, or all files below a folder."""
        self._client("put", str(source), f"/{path}")

    def files(self, path: str) -> dict[str, bytes]:
        """Every file below a folder, by its name there."""
        with tempfile.TemporaryDirectory() as folder:
            self._client("get", f"/{path}", folder)
            return {
                str(each.relative_to(folder)): each.read_bytes()
                for each in Path(folder).rglob("*")
                if each.is_file()
            }

    def names(self, path: str) -> list[str]:
        """Returns the names in a folder; none if the folder does not exist."""
        return sorted(json.loads(self._client("list", f"/{path}")))

    def _client(self, *arguments: str) -> str:
        client = [sys.executable, "-m", "tests.storage.hdfs_client", str(self.port)]
        return subprocess.run(
            [*client, *arguments],
            cwd=_ROOT,
            env={**os.environ, **self.environment},
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout


@contextlib.contextmanager
def hdfs_running(folder: Path) -> Iterator[Hdfs]:
    """Gives an empty HDFS that keeps all in a folder; skips where it cannot be made."""
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"Hadoop's parts are made by {missing[0]}, not on the PATH")
    parts = _parts()
    ports = _free_ports(5)
    conf = folder / "conf"
    _configure(conf, folder, ports)
    classes = f"{conf}:{':'.join(sorted(map(str, (parts / 'jars').iterdir())))}"
    java = ["java", _OPENED, _MEMORY, "-cp", classes]
    with contextlib.ExitStack() as stack:
        log = stack.enter_context((folder / "log").open("wb"))
        format_it = [*java, _NAME_NODE, "-format", "-nonInteractive"]
        subprocess.run(format_it, check=True, stdout=log, stderr=log)
        for server in (_NAME_NODE, _DATA_NODE):
            process = subprocess.Popen([*java, server], stdout=log, stderr=log)
            stack.callback(_stop, process)
        _wait(ports[1], folder / "log")
        yield Hdfs(
            ports[0],
            {
                "JAVA_HOME": str(_java_home()),
                "ARROW_LIBHDFS_DIR": str(parts),
                "CLASSPATH": classes,
            },
        )


def _parts() -> Path:
    """Returns the folder of `libhdfs.so` and `jars/`, made once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "beam-tfrecord" / "storage" / f"hadoop-{_VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
                made = Path(partial) / "made"
                _make(made, Path(partial))
                made.rename(folder)
    return folder


def _make(made: Path, partial: Path) -> None:
    made.mkdir()
    for name in ("Cargo.toml", "Cargo.lock", "pom.xml"):
        shutil.copy(_PINNED / name, partial)
    (partial / "lib.rs").touch()
    # Cargo compares checksums with those of the lock file.
    _run(["cargo", "vendor", "--quiet", "--locked", "vendor"], partial)
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={made / 'jars'}"]
    _run(["mvn", "--batch-mode", "--quiet", "--strict-checksums", *copy], partial)
    java, source = _java_home(), partial / _SOURCE
    include = [
        *(java / "include", java / "include" / "linux", partial / _SOURCES, source),
        *(source / "include", source / "os", source / "os" / "posix"),
    ]
    files = [each for each in source.rglob("*.c") if "windows" not in each.parts]
    virtual_machine = java / "lib" / "server"
    _run(
        [
            *("gcc", "-shared", "-fPIC", "-O2", "-o", str(made / "libhdfs.so")),
            *(f"-I{each}" for each in include),
            *map(str, sorted(files)),
            *(f"-L{virtual_machine}", f"-Wl,-rpath,{virtual_machine}", "-ljvm"),
        ],
        partial,
    )


def _run(command: Sequence[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr[-2000:]}"


def _java_home() -> Path:
    java = shutil.which("java")
    assert java is not None
    return Path(java).resolve().parents[1]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _configure(conf: Path, folder: Path, ports: Sequence[int]) -> None:
    at = [f"127.0.0.1:{port}" for port in ports]
    conf.mkdir()
    (conf / "log4j.properties").write_text(_LOGGING)
    settings = {
        "core-site.xml": {
            "fs.defaultFS": f"hdfs://{at[0]}",
            "hadoop.tmp.dir": str(folder / "data"),
        },
        "hdfs-site.xml": {
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.rpc-address": at[0],
            "dfs.namenode.http-address": at[1],
            "dfs.datanode.address": at[2],
            "dfs.datanode.http.address": at[3],
            "dfs.datanode.ipc.address": at[4],
            "dfs.datanode.hostname": "127.0.0.1",
        },
    }
    for name, values in settings.items():
        lines = [
            f"<property><name>{key}</name><value>{value}</value></property>"
            for key, value in values.items()
        ]
        (conf / name).write_text(
            "\n".join(["<configuration>", *lines, "</configuration>"])
        )


def _wait(port: int, log: Path) -> None:
    """Waits until the name node knows of the data node."""
    query = "qry=Hadoop:service=NameNode,name=FSNamesystemState"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + _READY_SECONDS
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError, ValueError, LookupError),
            opener.open(f"http://127.0.0.1:{port}/jmx?{query}", timeout=5) as answer,
        ):
            if json.load(answer)["beans"][0]["NumLiveDataNodes"] == 1:
                return
        time.sleep(0.2)
    raise AssertionError(f"HDFS is not ready: {log.read_text()[-2000:]}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    # It has nothing to keep.
    process.kill()
    process.wait(_STOP_SECONDS)
