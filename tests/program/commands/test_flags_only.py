"""Calls without a sub-command, as schedulers write them."""

import json
import os
import pathlib
import subprocess

import click
import pytest

from beam_pipeline.commands.group import convert
from beam_pipeline.commands.options import split_flags
from tests.support.runs import python
from transforms.errors import UsageError

ROOT = pathlib.Path(__file__).parents[3]
BOTH = ["--source=in.csv", "--output=out"]


@pytest.mark.parametrize(
    ("flags", "ours", "beams"),
    [
        (["--max_reject_rate=0.5"], ["--max-reject-rate=0.5"], []),
        (["--max-reject-rate", "0.5"], ["--max-reject-rate=0.5"], []),
        (["--overwrite"], ["--overwrite"], []),
        (["--overwrite=true"], ["--overwrite"], []),
        (["--overwrite=False"], ["--no-overwrite"], []),
        (["--no_shuffle"], ["--no-shuffle"], []),
        (["--no-shuffle=false"], ["--shuffle"], []),
        (["--include=*.csv", "--include=b"], ["--include=*.csv", "--include=b"], []),
        (["--runner=flink"], ["--runner=flink"], []),
        (["--parallelism=4"], [], ["--parallelism=4"]),
        (["--flink-master=a:1"], [], ["--flink_master=a:1"]),
        (["--job-endpoint", "a:1"], [], ["--job_endpoint=a:1"]),
        (["--temp_location", "gs://b/t"], [], ["--temp_location=gs://b/t"]),
        (["--streaming", "--region=x"], [], ["--streaming", "--region=x"]),
        (["--labels=airflow-version=v2-9-0"], [], ["--labels=airflow-version=v2-9-0"]),
        (['--labels={"team": "vision"}'], [], ['--labels={"team": "vision"}']),
        (["--labels=classes.csv"], ["--labels=classes.csv"], []),
        (["--quiet", "--report_json=r"], ["--quiet", "--report-json=r"], []),
        (["--report_json", "-"], ["--report-json=-"], []),
    ],
)
def test_flags_find_their_owner(
    flags: list[str], ours: list[str], beams: list[str]
) -> None:
    """Ours become those of `convert`, in either case; all others are Beam's."""
    expected = [*ours, "--", "in.csv", "out"], beams
    assert split_flags([*flags, *BOTH], convert) == expected


@pytest.mark.parametrize(
    "flags",
    [
        ["--source=a"],
        ["--output=b"],
        ["--source=a", "--output"],
        ["--source=a", "--output=b", "c"],
        ["--source=a", "--output=b", "--overwrite=perhaps"],
        ["--spec=s", "--output=b"],
        [*BOTH, "--allow_empty"],
        [*BOTH, "--no-verify"],
        [*BOTH, "--spark-master=spark://a:1"],
    ],
)
def test_what_cannot_be_meant(flags: list[str]) -> None:
    """Half a job, and what is no flag, are refused."""
    with pytest.raises((UsageError, click.UsageError)):
        split_flags(flags, convert)


def test_the_file_is_run_by_its_path(tmp_path: pathlib.Path) -> None:
    """From any folder, with exit codes and the report that `convert` has."""
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n2,y\n")
    main = ROOT / "beam_pipeline" / "__main__.py"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}

    def run(*flags: str) -> subprocess.CompletedProcess[str]:
        return python(main, *flags, cwd=tmp_path, env=environment, timeout=120)

    given = ["--source=rows.csv", "--output=out", "--report_json=report.json"]
    done = run(*given, "--direct_running_mode=in_memory")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report.json").read_text())["status"] == "committed"
    done = run(*given, "--overwrite", "--no_such_flag=1")
    assert done.returncode == 2
    assert "--no_such_flag" in done.stderr
