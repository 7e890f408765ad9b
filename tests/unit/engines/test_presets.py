"""The engines by name: flags of Beam for a job, and where it is to run."""

import json
import pathlib
from collections.abc import Sequence

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import (
    FlinkRunnerOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)

from beam_pipeline.engines import checks
from beam_pipeline.engines.checks import values_of
from beam_pipeline.engines.presets import ENGINES, engine_of
from beam_pipeline.graph import build, make_job
from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import check_beam_flags
from beam_pipeline.settings.spec import make_spec
from tests.support.engines import ROOM, choose, put_jar, spec
from transforms.errors import SpecError
from transforms.work.store import Store

Folder = pathlib.Path


@pytest.fixture(autouse=True)
def around(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that answers, a Flink of two machines, a Java, and an empty cache."""
    monkeypatch.setattr(checks, "check_answers", lambda *_: None)
    monkeypatch.setattr(checks, "flink_size", lambda _master: (4, 2))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", "/jdk")


def flags_of(*flags: str, **settings: object) -> list[str]:
    chosen = choose(spec(**settings), flags)
    assert chosen is not None
    return chosen.flags


def presets_of(name: str) -> list[str]:
    """Returns the flags of a job with all that presets name."""
    put_jar(name)
    return ENGINES[name].flags(spec(runner=name, workers=4), [], ROOM)


@pytest.mark.parametrize("name", ENGINES)
def test_presets_are_flags_of_beam(name: str) -> None:
    """Each is known to Beam or the engine's job server; the user's come later."""
    flags = presets_of(name)
    check_beam_flags(flags, ENGINES[name])
    if name == "dataflow":
        return
    options = PipelineOptions(flags).view_as(PortableOptions)
    assert options.environment_type == "PROCESS"
    assert json.loads(options.environment_config) == {"command": f"{ROOM}/worker"}
    assert options.job_server_timeout >= 86_400
    own = PipelineOptions([*flags, "--job_server_timeout=5"])
    assert own.view_as(PortableOptions).job_server_timeout == 5


def test_presets_of_flink_and_spark() -> None:
    """What is easily wrong: version, parallelism, places, and ports that are open."""
    flags = presets_of("flink")
    options = PipelineOptions(flags)
    assert options.view_as(FlinkRunnerOptions).flink_version == "1.20"
    assert options.view_as(FlinkRunnerOptions).parallelism == 4
    assert options.view_as(JobServerOptions).artifacts_dir == ROOM
    assert "--sdk_worker_parallelism=2" in flags
    spark = " ".join(presets_of("spark"))
    assert "-Dspark.driver.bindAddress=127.0.0.1" in spark
    assert "-Dspark.cores.max=4" in spark


def test_names_of_runners() -> None:
    """Our name of an engine and Beam's mean the same; a near one is suggested."""
    for name in ENGINES:
        assert engine_of(name) is engine_of(f"{name.title()}Runner") is ENGINES[name]
    for local in ("local", "FnApiRunner", "DirectRunner"):
        assert engine_of(local) is None
    assert choose(spec(), []) is None
    with pytest.raises(SpecError, match=r"'flnk'.*Did you mean 'flink'\?"):
        spec(runner="flnk")
    with pytest.raises(SpecError, match="Did you mean 'SparkRunner'"):
        choose(spec(), ["--runner=SprkRunner"])


@pytest.mark.parametrize(
    ("runner", "flag"),
    [
        *(("flink", "storage_level=DISK_ONLY"), ("spark", "batch=1")),
        *(("local", "flink_master=h:1"), ("local", "spark_master_url=h:1")),
        *(("local", "job_endpoint=h:1"), ("dataflow", "job_endpoint=h:1")),
        *(("local", "flink_master=[auto]"), ("local", "spark_master_url=local[4]")),
        *(("dataflow", "no_wait_until_finish"), ("dataflow", "template_location=x")),
    ],
)
def test_flags_of_another_way_to_run(runner: str, flag: str) -> None:
    """Beam or the engine would silently drop them: storage levels are Spark's."""
    check_beam_flags(["--storage_level=DISK_ONLY"], ENGINES["spark"])
    with pytest.raises(SpecError, match=f"--{flag.partition('=')[0]} is none"):
        check_beam_flags([f"--{flag}"], engine_of(runner))


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ([], None),
        (["--runner=a", "--runner", "b"], "b"),
        (["--runner", "a", "--runner=b"], "b"),
        (["--runners=a"], None),
    ],
)
def test_values_of_flags(flags: Sequence[str], value: str | None) -> None:
    """The last one counts, in either form."""
    assert values_of(flags).get("runner") == value


@pytest.mark.parametrize(
    ("settings", "flags", "expected"),
    [
        ({}, [], "--spark_master_url=spark://localhost:7077"),
        ({}, ["--spark_master_url=spark://b:1"], "--spark_master_url=spark://b:1"),
        # Two machines of two slots; --workers says otherwise.
        ({"runner": "flink"}, [], "--parallelism=4"),
        ({"runner": "flink", "workers": 3}, [], "--parallelism=3"),
    ],
)
def test_where_a_job_runs(
    settings: dict[str, object], flags: list[str], expected: str
) -> None:
    """Beam's flags first, then what is usual."""
    shared = {"runner": "spark", "shared_output": True, **settings}
    assert expected in flags_of(*flags, **shared)


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("out/Photos 2/", "beam-tfrecord-photos-2"),
        ("s3://b/äöü", "beam-tfrecord"),
        (f"/x/{'x' * 90}", f"beam-tfrecord-{'x' * 40}"),
    ],
)
def test_names_of_jobs(output: str, name: str) -> None:
    """An engine's list of jobs says whose each is; no two have one name."""
    one, two = (values_of(flags_of(runner="flink", output=output)) for _ in range(2))
    assert one["job_name"].rpartition("-")[0] == name
    assert one["job_name"] != two["job_name"]


def test_running_job_server() -> None:
    """No job server, Java or jar is looked for."""
    put_jar("spark")
    flags = flags_of("--job_endpoint=localhost:1", runner="spark")
    assert "--job_endpoint=localhost:1" in flags
    assert not any("_jar" in flag or "_launcher" in flag for flag in flags)


def test_the_published_job_server_comes_first() -> None:
    """One that was put together of Maven's parts serves where there is none."""

    def program() -> str | None:
        return values_of(flags_of(runner="spark")).get("spark_job_server_jar")

    assert program() is None
    made = put_jar("spark", "-of-2.70.0")
    assert program() == made
    put_jar("flink")
    assert program() == made
    published = put_jar("spark")
    assert program() == published


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
