"""Who starts the workers of a job, and what is refused of it."""

import concurrent.futures
import dataclasses
import functools
import pathlib
import socket
import time
from collections.abc import Iterator

import grpc
import pytest

from beam_pipeline.engines import checks
from beam_pipeline.engines.checks import not_started
from beam_pipeline.engines.engine import (
    WorkerPlace,
    refuse_starts,
    starts_elsewhere,
)
from beam_pipeline.engines.presets import DATAFLOW, ENGINES
from beam_pipeline.engines.watch import JobWatch
from tests.support.engines import choose, spec
from transforms.errors import SpecError, TargetError, UsageError
from transforms.work.reports import Reports

Folder = pathlib.Path
WITH_JOB_SERVERS = ("flink", "spark", "prism")
STORES = {"source": "s3://b/rows.csv", "output": "s3://b/out"}


@pytest.fixture
def cache(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's cache, empty, and no Java."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "no java"))


@pytest.fixture
def server() -> Iterator[str]:
    """The address of something that speaks as a job server does."""
    serving = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    yield f"127.0.0.1:{port}"
    serving.stop(None)


@pytest.mark.usefixtures("cache")
def test_running_job_server(server: str) -> None:
    """No job server, Java or jar is looked for: there is none of either here."""
    place = choose(spec(runner="spark", job_endpoint=server, **STORES), [])
    assert place is not None
    flags = ENGINES["spark"].presets(place.place)
    assert f"--job_endpoint={server}" in flags
    assert not any("_jar" in flag or "_launcher" in flag for flag in flags)
    beams = choose(spec(runner="spark", **STORES), [f"--job_endpoint={server}"])
    assert beams is not None
    assert beams.place.job_endpoint == server


@pytest.mark.usefixtures("cache")
def test_job_server_that_does_not_run(server: str) -> None:
    """Beam would wait for it for a day."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        gone = f"127.0.0.1:{listening.getsockname()[1]}"
    with pytest.raises(UsageError, match=r"a job server at '127.*--job-endpoint"):
        choose(spec(runner="spark", job_endpoint=gone, **STORES), [])


def test_where_workers_are() -> None:
    """Elsewhere: with Beam's own flags, and on Dataflow."""
    for name in WITH_JOB_SERVERS:
        engine = ENGINES[name]
        assert not engine.works_elsewhere(spec(runner=name), ["--parallelism=2"])
        for flags in (
            ["--environment_type=EXTERNAL", "--environment_config=localhost:1"],
            ["--environment_config", "{}"],
        ):
            assert engine.works_elsewhere(spec(runner=name), flags)
    # Threads of the submitter.
    assert not starts_elsewhere(["--environment_type=LOOPBACK"])
    assert DATAFLOW.works_elsewhere(spec(), [])


FAR = {"runner": "spark", "spark_master": "spark://far.example:7077"}
HERE = {"runner": "spark", "spark_master": "spark://localhost:7077"}


@pytest.mark.usefixtures("cache")
def test_nobody_starts_workers_on_other_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Folder
) -> None:
    """The settings that start them come before a disk that all machines share."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(UsageError) as caught:
        ENGINES["spark"].check(spec(**FAR, **STORES), [])
    found = [
        str(caught.value).index(each)
        for each in ("'far.example'", "=EXTERNAL", "=PROCESS", "TMPDIR")
    ]
    assert found == sorted(found)
    for settings, flags in (
        ({"shared_output": True}, []),
        ({}, ["--environment_type=EXTERNAL", "--environment_config=localhost:50000"]),
    ):
        ENGINES["spark"].check(spec(**FAR, **STORES, **settings), flags)


@pytest.mark.usefixtures("cache")
def test_job_server_on_another_machine() -> None:
    """Its engine is there too, whatever the address of the master is."""
    with pytest.raises(UsageError, match=r"'far\.example'.* must see the file"):
        ENGINES["prism"].check(
            spec(runner="prism", job_endpoint="far.example:8099", **STORES), []
        )


@pytest.mark.parametrize("known", [FAR, HERE, {"runner": "prism"}])
@pytest.mark.usefixtures("cache")
def test_paths_that_workers_elsewhere_do_not_see(known: dict[str, str]) -> None:
    """Source, output and folder of images; files of the submitter's alone are fine."""
    engine = ENGINES[known["runner"]]
    places = {**STORES, **known}
    flags = ["--environment_type=PROCESS", "--environment_config={}"]
    for name, what in (
        ("source", "must see the source; '/data'"),
        ("output", "must see the output; '/data'"),
        ("images_root", "must see the folder of --images-root; '/data'"),
    ):
        local = {**places, name: "/data"}
        with pytest.raises(TargetError, match=what):
            engine.check(spec(**local), flags)
        engine.check(spec(**local, shared_output=True), flags)
    with pytest.raises(TargetError, match="folder of --images-root"):
        engine.check(spec(**places, images_root="in/the/current/folder"), flags)
    of_submitter = {
        "split_ids": "/ids.csv",
        "key_column": "id",
        "vocabulary": "/names.txt",
        "split_lock": "/lock",
    }
    engine.check(spec(**places, **of_submitter), flags)


@pytest.mark.parametrize("name", WITH_JOB_SERVERS)
@pytest.mark.usefixtures("cache")
def test_pool_on_another_network(name: str) -> None:
    """Engines tell a pool addresses on localhost to call back."""
    engine = ENGINES[name]
    pool = ["--environment_type=EXTERNAL"]
    for address in ("localhost:1", "127.0.0.1:1", "[::1]:1", '{"url": "localhost:1"}'):
        flags = [*pool, f"--environment_config={address}"]
        engine.check(spec(runner=name, **STORES), flags)
    words = r"localhost:50000: the engine .* workers at 'pool\.example' would wait"
    flags = [*pool, "--environment_config=pool.example:1"]
    with pytest.raises(UsageError, match=words):
        engine.check(spec(runner=name, **STORES), flags)


@pytest.mark.parametrize("name", ["flink", "spark"])
def test_a_master_without_its_engine(name: str) -> None:
    """A local run would ignore it, and the user would not know."""
    given = {f"{name}_master": "localhost:1"}
    with pytest.raises(SpecError, match=f"--{name}-master is for --runner {name}"):
        refuse_starts(spec(**given), "a local run")


@pytest.mark.usefixtures("cache")
def test_an_address_at_which_no_job_server_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What takes connections may be anything: Beam would wait for it for a day."""
    monkeypatch.setattr(checks, "_ASK_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UsageError, match=r"found none: .* no gRPC server"):
            choose(spec(runner="spark", job_endpoint=endpoint, **STORES), [])


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("out/Photos 2/", "beam-tfrecord-photos-2-"),
        ("s3://b/äöü", "beam-tfrecord-"),
        ("/data/" + "x" * 90, f"beam-tfrecord-{'x' * 40}-"),
    ],
)
@pytest.mark.usefixtures("cache")
def test_a_job_is_named_by_its_output(output: str, name: str, server: str) -> None:
    """An engine's list of jobs says whose each is."""
    given = spec(
        runner="flink", job_endpoint=server, output=output, flink_master="[local]"
    )
    chosen = choose(given, [])
    assert chosen is not None
    assert f"{chosen.place.job_name}-" == name


@pytest.mark.parametrize(
    "said",
    [
        "java.io.IOException: error=2, No such file or directory",
        'Cannot run program "/tmp/worker": error=13, Permission denied',
        '{"level":"ERROR","msg":"process failed to start","error":"fork/exec"}',
    ],
)
def test_an_engine_that_does_not_see_the_worker(said: str) -> None:
    """A forwarded port, or a container: the words of a master on another machine."""
    place = WorkerPlace("/tmp/x/worker", "")
    error = str(not_started("flink", place, f"line\n{said}\nline"))
    for each in ("'/tmp/x/worker'", "=EXTERNAL", "=PROCESS", "TMPDIR"):
        assert each in error
    assert len(error.encode()) <= 1024
    own = dataclasses.replace(place, starts_elsewhere=True)
    assert "the command of --environment_config is not there" in str(
        not_started("x", own, said)
    )
    assert not_started("flink", place, "FileNotFoundError: [Errno 2] No such") is None


def test_such_an_engine_ends_the_job() -> None:
    """However often it would try again."""
    watch = JobWatch(
        *("flink", Reports("/none", ""), lambda _text: None),
        ask=lambda: [(1.0, "java.io.IOException: error=2, No such file")],
        explain=functools.partial(
            not_started, "flink", WorkerPlace("/tmp/x/worker", "")
        ),
    )
    with watch.watching():
        until = time.monotonic() + 30
        while not watch._engines and time.monotonic() < until:
            time.sleep(0.01)
    with pytest.raises(UsageError, match=r"must see the file that starts them"):
        watch.look()
