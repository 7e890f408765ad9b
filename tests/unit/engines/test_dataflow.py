"""Dataflow as far as it needs nothing of Google's: flags, refusals, what is sent."""

from collections.abc import Sequence

import pytest
from apache_beam.options.pipeline_options import (
    DebugOptions,
    PipelineOptions,
    SetupOptions,
    WorkerOptions,
)

from beam_pipeline.engines.presets import ENGINES
from beam_pipeline.settings.spec import Spec, make_spec
from tests.support.engines import choose
from transforms.errors import SpecError, TargetError, UsageError
from transforms.storage import paths

DATAFLOW = ENGINES["dataflow"]
FLAGS = [
    *("--project=my-project", "--region=europe-west1"),
    *("--temp_location=gs://bucket/tmp", "--sdk_container_image=image"),
]


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No paths with keys from elsewhere."""
    monkeypatch.setattr(paths, "_parameters", {})


def spec(**settings: object) -> Spec:
    places = {"source": "gs://bucket/rows.csv", "output": "gs://bucket/out"}
    return make_spec({"runner": "dataflow", **places, **settings})


def without(name: str) -> list[str]:
    return [flag for flag in FLAGS if not flag.startswith(f"--{name}=")]


def test_presets_are_read_by_beam() -> None:
    """No main session; --workers is the most there may be; the user's flags win."""
    presets = DATAFLOW.flags(spec(workers=7), [], "")
    own = ["--number_of_worker_harness_threads=5", "--max_num_workers=3"]
    for flags, threads, workers in ((presets, 2, 7), ([*presets, *own], 5, 3)):
        options = PipelineOptions(flags)
        assert options.view_as(SetupOptions).save_main_session is False
        assert options.view_as(WorkerOptions).max_num_workers == workers
        assert options.view_as(DebugOptions).number_of_worker_harness_threads == threads


def test_a_whole_job_is_accepted() -> None:
    """With project, region and a folder for what is staged; in Beam's words too."""
    chosen = choose(spec(workers=4), FLAGS)
    assert chosen is not None
    assert chosen.engine is DATAFLOW
    assert "--max_num_workers=4" in chosen.flags
    by_beam = choose(spec(runner="local"), [*FLAGS, "--runner=DataflowRunner"])
    assert by_beam is not None
    assert by_beam.engine is DATAFLOW


PACKAGES = ("setup_file", "extra_package", "extra_packages")


@pytest.mark.parametrize(
    "flags",
    [
        *([*without("sdk_container_image"), f"--{f}=p"] for f in PACKAGES),
        # Beam stages there, too.
        [*without("temp_location"), "--staging_location=gs://bucket/tmp"],
    ],
)
def test_other_ways_to_say_it(flags: list[str]) -> None:
    """A package; another folder; a bucket that is read without an account."""
    # That it is read so is no secret.
    assert choose(spec(source="gs://bucket/rows.csv?anonymous=true"), flags)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (without("project"), "--project"),
        (without("region"), "--region"),
        (without("temp_location"), "--temp_location"),
        # Beam would try to make the bucket, and hang.
        ([*without("temp_location"), "--temp_location=/tmp/here"], "'/tmp/here'"),
        ([*without("temp_location"), "--staging_location=gs://b/x"], "'gs://b/x'"),
        ([*without("temp_location"), "--temp_location=gs://bucket"], "'gs://bucket'"),
        (without("sdk_container_image"), "--sdk_container_image=IMAGE"),
    ],
)
def test_missing_and_wrong_flags(flags: Sequence[str], says: str) -> None:
    """Each is named, with an example, before anything is planned."""
    with pytest.raises(UsageError, match=says):
        choose(spec(), flags)


def test_paths_elsewhere_are_refused() -> None:
    """Google's machines see stores alone, of any kind."""
    with pytest.raises(TargetError, match="must see the source"):
        choose(spec(source="/data/rows.csv"), FLAGS)
    assert choose(spec(source="s3://bucket/rows.csv"), FLAGS)


def test_keys_in_paths_are_refused() -> None:
    """They would be stored with the job in the bucket; the message hides them."""
    given = spec(labels="s3://ids/a.csv?access_key=me&secret_key=hush", id_column="id")
    with pytest.raises(SpecError, match=r"access_key, secret_key was given") as caught:
        choose(given, FLAGS)
    assert "hush" not in str(caught.value)
