"""Tests of `unit/engines/test_engines.py` that start processes."""

import pathlib
import stat
import subprocess
from collections.abc import Sequence

import pytest

from beam_pipeline.engines import masters
from beam_pipeline.engines.worker import write_worker
from tests.support.engines import choose, put_jar, spec, write_java
from transforms.errors import (
    UsageError,
)

Folder = pathlib.Path


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master of Spark that answers at any address."""
    monkeypatch.setattr(masters, "_silence", lambda _host, _port: "")


@pytest.fixture
def java(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A Java 17 that says no more than its version."""
    return write_java(tmp_path / "jdk", 'openjdk version "17.0.9"', monkeypatch)


@pytest.fixture
def cache(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "beam-tfrecord"


def test_job_server_by_flag(cache: Folder, java: Folder) -> None:
    """A job server of one's own needs none in the cache."""
    chosen = choose(spec(runner="spark"), ["--spark_job_server_jar=/my.jar"])
    assert chosen is not None
    assert chosen.place.program == "/my.jar"
    assert chosen.place.java == str(java)


def test_masters(cache: Folder, java: Folder) -> None:
    """Beam's flag, then ours, then the usual port."""
    put_jar("spark")
    settings = {"runner": "spark", "spark_master": "spark://localhost:2"}

    def master(flags: Sequence[str] = (), **said: object) -> str:
        chosen = choose(spec(runner="spark", **said), flags)
        assert chosen is not None
        return chosen.place.master

    assert master() == "spark://localhost:7077"
    assert master(spark_master=settings["spark_master"]) == "spark://localhost:2"
    own = ["--spark_master_url=spark://localhost:1"]
    assert master(own, spark_master=settings["spark_master"]) == own[0][19:]


def test_size_of_the_cluster_decides_parallelism(
    cache: Folder, java: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two machines of two slots take four tasks; --workers says otherwise."""
    put_jar("flink")
    monkeypatch.setattr(masters, "size_of_cluster", lambda _master: (2, 2))
    chosen = choose(spec(runner="flink"), [])
    assert chosen is not None
    assert (chosen.place.parallelism, chosen.place.slots) == (4, 2)
    chosen = choose(spec(runner="flink", workers=3), [])
    assert chosen is not None
    assert chosen.place.parallelism == 3


def test_flink_that_is_not_there(cache: Folder, java: Folder) -> None:
    """A master that does not answer is refused before anything is started."""
    put_jar("flink")
    with pytest.raises(UsageError, match=r"'localhost:1'.*scripts/cluster flink up"):
        choose(spec(runner="flink", flink_master="localhost:1"), [])


def test_remote_workers_must_see_what_starts_them(
    cache: Folder, java: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store holds no executables: the file is in TMPDIR, which must be shared."""
    put_jar("spark")
    stores = {"source": "s3://bucket/rows.csv", "output": "s3://bucket/out"}
    far = {"runner": "spark", "spark_master": "spark://far.example:7077", **stores}
    refused = r"'far.example'.* must see the file that starts.*TMPDIR.*--shared-output"
    monkeypatch.delenv("TMPDIR", raising=False)
    for shared in (False, True):
        with pytest.raises(UsageError, match=refused):
            choose(spec(**far, shared_output=shared), [])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(UsageError, match=refused):
        choose(spec(**far), [])
    assert choose(spec(**far, shared_output=True), []) is not None
    monkeypatch.delenv("TMPDIR")
    own = ['--environment_config={"command": "/opt/worker"}']
    assert choose(spec(**far), own) is not None
    here = {**far, "spark_master": "spark://localhost:7077"}
    assert choose(spec(**here), []) is not None


def test_worker_runs_with_spaces_and_quotes_around(tmp_path: Folder) -> None:
    """The file is executable, and starts this interpreter with this module path."""
    folder = tmp_path / "a 'folder' of $HOME"
    folder.mkdir()
    path = folder / "worker"
    write_worker(str(path))
    assert path.stat().st_mode & stat.S_IXUSR
    done = subprocess.run(
        [path, "--id=1"], capture_output=True, text=True, cwd="/", check=False
    )
    # It has come as far as its arguments.
    assert done.returncode == 2
    assert "required: --provision_endpoint" in done.stderr
