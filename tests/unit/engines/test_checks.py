"""What is refused of a job before it is planned, for each engine."""

import pathlib
import socket
from collections.abc import Mapping, Sequence

import pytest

from beam_pipeline.engines import checks
from beam_pipeline.engines.checks import host_elsewhere
from beam_pipeline.engines.presets import ENGINES
from tests.support.engines import choose, spec
from transforms.errors import TargetError, UsageError

Folder = pathlib.Path
WITH_SERVERS = ("flink", "spark", "prism")
STORES = {"source": "s3://b/rows.csv", "output": "s3://b/out"}
SPARK = {"runner": "spark", **STORES}
FAR = ["--spark_master_url=spark://far.example:7077"]
HERE = ["--spark_master_url=spark://localhost:7077"]
POOL = ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"]


@pytest.fixture(autouse=True)
def _bare(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and answers within a moment."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(checks, "_ASK_SECONDS", 0.3)


def check(settings: Mapping[str, object], flags: Sequence[str] = ()) -> None:
    given = spec(**settings)
    ENGINES[given.runner].check(given, flags)


@pytest.mark.parametrize(
    ("settings", "flags", "said"),
    [
        (SPARK, ["--spark_master_url=spark://127.0.0.1:1"], "'spark://127"),
        ({"runner": "flink"}, ["--flink_master=localhost:1"], "'localhost:1'"),
        ({"runner": "flink"}, ["--flink_master=localhost:x"], "nonnumeric port"),
        (SPARK, [*HERE, "--job_endpoint=127.0.0.1:1"], r"job server answers at .127"),
    ],
)
def test_what_is_not_there_is_named(
    settings: dict[str, object], flags: list[str], said: str
) -> None:
    """With what brings it."""
    with pytest.raises(UsageError, match=said):
        choose(spec(**settings), flags)


def test_who_answers() -> None:
    """One of several masters is enough; an address needs a port."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        checks.check_answers("Spark master", f"spark://localhost:{port}")
        checks.check_answers("Spark master", f"spark://localhost:1,localhost:{port}")
    for wrong in (f"spark://localhost:{port}", "spark://localhost"):
        with pytest.raises(UsageError, match=f"at {wrong!r}"):
            checks.check_answers("Spark master", wrong)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        *(("", ""), ("[local]", ""), ("local[2]", ""), ("localhost:8081", "")),
        *(("http://127.0.0.1:8081", ""), ("[::1]:1", ""), ("yarn", "yarn")),
        *(("http://far.example:8081/x", "far.example"), ("[2001::1]:5", "2001::1")),
        ("spark://far.example:7077", "far.example"),
    ],
)
def test_hosts(address: str, host: str) -> None:
    """Of this machine, or of which other one."""
    assert host_elsewhere(address) == host


def test_where_workers_are() -> None:
    """Elsewhere: with Beam's own flags, and on Dataflow."""
    for name in WITH_SERVERS:
        for flags in (["--parallelism=2"], ["--environment_type=LOOPBACK"]):
            assert ENGINES[name].workers(flags) is None
        for flags in (POOL, ["--environment_config", "{}"]):
            assert ENGINES[name].workers(flags) is not None
    assert ENGINES["dataflow"].workers([]) is not None


@pytest.mark.parametrize("flags", [FAR, [*HERE, "--job_endpoint=far.example:8"]])
def test_nobody_starts_workers_on_other_machines(flags: list[str]) -> None:
    """The flags that start them come before a disk that all machines share."""
    with pytest.raises(TargetError) as caught:
        check(SPARK, flags)
    words = ("'far.example'", "=EXTERNAL", "=PROCESS", "--shared-output", "TMPDIR")
    places = [str(caught.value).index(word) for word in words]
    assert places == sorted(places)
    check(SPARK, [*flags, *POOL])
    check({**SPARK, "shared_output": True}, flags)


@pytest.mark.parametrize(
    ("runner", "masters"), [("spark", FAR), ("spark", HERE), ("prism", [])]
)
def test_paths_that_workers_elsewhere_do_not_see(
    runner: str, masters: list[str]
) -> None:
    """Source, output and folder of images; files of the submitter's alone are fine."""
    flags = [*masters, "--environment_type=PROCESS", "--environment_config={}"]
    for name, path, what in (
        ("source", "/data", "source; '/data'"),
        ("output", "/data", "output; '/data'"),
        ("images_root", "/data", "folder of --images-root; '/data'"),
        ("images_root", "in/the/current/folder", "folder of --images-root"),
    ):
        local = {**STORES, "runner": runner, name: path}
        with pytest.raises(TargetError, match=f"must see the {what}"):
            check(local, flags)
        check({**local, "shared_output": True}, flags)
    of_submitter = {
        "split_ids": "/ids.csv",
        "key_column": "id",
        "vocabulary": "/names.txt",
        "split_lock": "/lock",
    }
    check({**STORES, "runner": runner, **of_submitter}, flags)
