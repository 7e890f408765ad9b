"""Engines beside this process: presets, what is looked for, and what is refused."""

import json
import os
import pathlib
import tempfile
from collections.abc import Sequence

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_pipeline.cli import main
from beam_pipeline.engines import checks, masters, submit
from beam_pipeline.engines.engine import WorkerPlace, flag_given
from beam_pipeline.engines.presets import ENGINES, engine_of
from beam_pipeline.engines.watch import Failure, lasting
from beam_pipeline.graph import build
from beam_pipeline.job import make_job
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.local import check_beam_flags
from beam_pipeline.settings.spec import make_spec
from tests.support.engines import choose, put_jar, spec, write_java
from transforms.errors import (
    BeamTFRecordError,
    RejectLimitError,
    SpecError,
    StorageError,
    UsageError,
    WorkerError,
)
from transforms.work.store import Store

Folder = pathlib.Path

PLACE = WorkerPlace(
    worker="/some folder/worker",
    artifacts="/shared/artifacts",
    master="spark://localhost:7077",
    program="/cache/server.jar",
    parallelism=4,
    slots=2,
)


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master of Spark that answers at any address."""
    monkeypatch.setattr(masters, "_silence", lambda _host, _port: "")


@pytest.fixture
def cache(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The user's cache, empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "beam-tfrecord"


@pytest.fixture
def java(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """A Java 17 that says no more than its version."""
    return write_java(tmp_path / "jdk", 'openjdk version "17.0.9"', monkeypatch)


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_presets_are_flags_of_beam(name: str) -> None:
    """Every preset is a flag that Beam, or the engine's job server, knows."""
    engine = ENGINES[name]
    check_beam_flags(engine.presets(PLACE), engine)


# Dataflow has no process of ours.
@pytest.mark.parametrize("name", sorted(ENGINES.keys() - {"dataflow"}))
def test_presets_start_our_worker(name: str) -> None:
    """Workers are processes, started by our own executable; jobs never time out."""
    options = PipelineOptions(ENGINES[name].presets(PLACE)).view_as(PortableOptions)
    assert options.environment_type == "PROCESS"
    assert json.loads(options.environment_config) == {"command": PLACE.worker}
    assert options.job_server_timeout >= 86_400


@pytest.mark.parametrize("name", ["flink", "spark", "prism"])
def test_commands_of_job_servers(name: str) -> None:
    """Flags of Beam name the program, and the port is the one that is asked for."""
    engine = ENGINES[name]
    flags = PipelineOptions([*engine.presets(PLACE), "--artifact_port=6"])
    command = engine.server(flags.get_all_options(), 5)
    assert all(isinstance(word, str) for word in command)
    assert PLACE.program in command
    assert "5" in command
    if name != "prism":
        assert command[0] == PLACE.java
        assert command[command.index("--artifact-port") + 1] == "6"
        assert PLACE.master in command


def test_presets_of_flink() -> None:
    """The flags that are easily wrong: version, master, parallelism, places."""
    flags = ENGINES["flink"].presets(PLACE)
    options = PipelineOptions(flags)
    assert options.view_as(FlinkRunnerOptions).flink_version == "1.20"
    assert options.view_as(FlinkRunnerOptions).parallelism == 4
    assert options.view_as(JobServerOptions).artifacts_dir == PLACE.artifacts
    assert "--sdk_worker_parallelism=2" in flags


def test_presets_of_spark_stay_on_loopback() -> None:
    """A driver for a master on loopback listens on loopback alone."""
    flags = " ".join(ENGINES["spark"].presets(PLACE))
    assert "-Dspark.driver.bindAddress=127.0.0.1" in flags
    assert "-Dspark.cores.max=4" in flags


@pytest.mark.parametrize("name", ["flink", "spark"])
def test_own_flags_win_over_presets(name: str) -> None:
    """Flags after -- come later, and the later flag counts."""
    own = ["--job_server_timeout=5", "--artifacts_dir=/mine"]
    options = PipelineOptions([*ENGINES[name].presets(PLACE), *own])
    assert options.view_as(PortableOptions).job_server_timeout == 5
    assert options.view_as(JobServerOptions).artifacts_dir == "/mine"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        *(("flink", "flink"), ("FlinkRunner", "flink"), ("SparkRunner", "spark")),
        *(("PrismRunner", "prism"), ("local", None), ("FnApiRunner", None)),
        ("DirectRunner", None),
    ],
)
def test_runner_names(given: str, name: str | None) -> None:
    """Our name of an engine and Beam's mean the same."""
    engine = engine_of(given)
    assert (engine.name if engine else None) == name


def test_unknown_runner_is_refused_with_a_hint() -> None:
    """A misspelt name is reported with a suggestion."""
    with pytest.raises(SpecError, match=r"'flnk'.*Did you mean 'flink'\?"):
        spec(runner="flnk")
    with pytest.raises(SpecError, match="Did you mean 'SparkRunner'"):
        choose(spec(), ["--runner=SprkRunner"])


def test_flags_of_another_engine_are_unknown() -> None:
    """Storage levels are Spark's: Flink's job server would silently drop the flag."""
    check_beam_flags(["--storage_level=DISK_ONLY"], ENGINES["spark"])
    with pytest.raises(SpecError, match="storage_level is none"):
        check_beam_flags(["--storage_level=DISK_ONLY"], ENGINES["flink"])


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ([], None),
        (["--runner=a", "--runner", "b"], "b"),
        (["--runner", "a", "--runner=b"], "b"),
        (["--runners=a"], None),
    ],
)
def test_flag_given(flags: Sequence[str], value: str | None) -> None:
    """The last one counts, in either form."""
    assert flag_given(flags, "runner") == value


def test_local_needs_nothing(cache: Folder) -> None:
    """Without an engine nothing is looked for."""
    assert choose(spec(), []) is None


def test_missing_job_server_names_the_command(cache: Folder, java: Folder) -> None:
    """The jar's place is named, and what fetches it."""
    with pytest.raises(UsageError, match=r"scripts/cluster spark up.*PATH\."):
        choose(spec(runner="spark"), [])
    with pytest.raises(UsageError, match=r"Prism .*scripts/cluster prism up"):
        choose(spec(runner="prism"), [])


def test_the_published_job_server_comes_first(cache: Folder) -> None:
    """One that was put together of Maven's parts serves where there is none."""
    assert checks.find_jar("server", "9.9.9") is None
    published = checks.jar_path("server", "9.9.9")
    made = published.with_name("server-9.9.9-of-2.77.jar")
    made.parent.mkdir(parents=True)
    made.touch()
    assert checks.find_jar("server", "9.9.9") == made
    assert checks.find_jar("server", "9.9.10") is None
    published.touch()
    assert checks.find_jar("server", "9.9.9") == published


def test_missing_java_is_refused(
    cache: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither JAVA_HOME nor the PATH: said before the job server is started."""
    put_jar("spark")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(UsageError, match=r"need Java 17, .*'/nowhere/bin/java'"):
        choose(spec(runner="spark"), [])
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=r"need Java 17, .*'java'"):
        choose(spec(runner="spark"), [])


def test_the_file_that_starts_a_worker_is_in_tmpdir(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work folder is in a store and is removed when the job has ended."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with submit._room("s3://bucket/.out.beam-tfrecord/w") as room:
        assert room.startswith(f"{tmp_path}/")
        assert os.access(os.path.join(room, "worker"), os.X_OK)
    assert list(tmp_path.iterdir()) == []


def test_a_master_is_no_path(
    cache: Folder, java: Folder, tmp_path: Folder, capfd: pytest.CaptureFixture[str]
) -> None:
    """A master's scheme is not that of an object store; the command line accepts it."""
    (tmp_path / "rows.csv").write_text("a\n1\n")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                *("convert", str(tmp_path / "rows.csv"), str(tmp_path / "out")),
                *("--runner", "spark", "--spark-master", "spark://127.0.0.1:1"),
            ]
        )
    assert ended.value.code == 2
    # As far as that: there is no job server in an empty cache.
    assert "Beam's job server" in capfd.readouterr().err


def failures(*errors: BeamTFRecordError) -> list[Failure]:
    return [(float(number), error) for number, error in enumerate(errors)]


def test_failures_end_a_job_by_their_type() -> None:
    """Only faults of storage may pass; whatever else a worker raises ends the job."""
    assert lasting([]) is None
    assert lasting(failures(StorageError("disk"))) is None
    limit = RejectLimitError("At most 1%")
    assert lasting(failures(StorageError("disk"), limit)) is limit
    assert lasting(failures(limit, StorageError("full"))) is limit
    assert lasting(failures(StorageError("no"), WorkerError("old"))) is not None


@pytest.mark.parametrize(
    ("seconds", "lasts"),
    [
        # A task in each of eight slots, at once; then the engine's next try as well.
        ([0.0] * 8, False),
        ([0, 0, 0, 0, 10, 10, 10, 10], False),
        # A full disk: try after try.
        ([*range(0, 62, 2)], True),
        # A store that stays away; each try is made for half a minute.
        ([0, 30, 60, 90], True),
        ([0, 70, 71], False),
        # Two faults that have passed, hours apart, and one of another day.
        ([0, 1, 2, 9_000, 9_001, 9_002, 90_000], False),
    ],
)
def test_faults_of_storage_that_do_not_pass(
    seconds: Sequence[float], lasts: bool
) -> None:
    """Who goes on meeting one for a minute is not left to the engine's patience."""
    errors = [StorageError(f"full {number}") for number in range(len(seconds))]
    error = lasting(list(zip(seconds, errors, strict=True)))
    assert str(error) == (f"full {len(seconds) - 1}" if lasts else "None")


def test_submitted_job_stays_small(tmp_path: Folder) -> None:
    """The listing travels by path: a thousand files more cost the job nothing."""
    sizes = []
    for count in (10, 1_010):
        folder = tmp_path / str(count) / "in"
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"rows-{number:05d}.csv").write_text("a,b\n1,2\n")
        settings = {"source": str(folder), "output": str(folder.parent / "out")}
        plan = make_plan(make_spec(settings))
        job = make_job(plan, Store(plan.work_folder))
        pipeline = beam.Pipeline(runner="FnApiRunner")
        build(pipeline, job)
        sizes.append(pipeline.to_runner_api().ByteSize())
    assert max(sizes) < 1_000_000
    assert abs(sizes[1] - sizes[0]) < 2_000
