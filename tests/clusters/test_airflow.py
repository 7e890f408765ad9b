"""examples/airflow_dag.py, run by Airflow's own operator: flags, exit codes, report."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from beam_pipeline.commands.group import convert as convert_command
from beam_pipeline.commands.options import split_flags
from tests.clusters.environments import environment
from tests.clusters.runs import ROOT, committed, convert, same

Folder = pathlib.Path
Done = subprocess.CompletedProcess[str]

DAG = ROOT / "examples" / "airflow_dag.py"
DAY = "2026-01-02"
# Of the time when the example was written.
AIRFLOW = ("apache-airflow==3.3.2", "apache-airflow-providers-apache-beam==6.3.1")
# Loads the file as Airflow does, and does with its task what Airflow's worker does.
_RUN_TASK = """
import functools, importlib.util, json, sys, types
from airflow.providers.apache.beam.hooks import beam as hooks
from airflow.providers.apache.beam.operators import beam as operators

if operators.GOOGLE_PROVIDER is None:
    # Google's provider, another gigabyte and a half. The operator wants it to be there,
    # and of it, where the runner is none of Google's, one class of settings.
    operators.GOOGLE_PROVIDER = object()
    operators.DataflowConfiguration = functools.partial(
        types.SimpleNamespace, job_name=None
    )
path, day = sys.argv[1:]
spec = importlib.util.spec_from_file_location("example", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
run = hooks.run_beam_command

def shown(cmd, **extra):
    print("COMMAND", json.dumps(cmd), flush=True)
    return run(cmd=cmd, **extra)

hooks.run_beam_command = shown
(after,) = module.dag.get_task("convert").downstream_task_ids
assert after == "verify"
for name in ("convert", "verify"):
    task = module.dag.get_task(name)
    context = {"ds": day}
    task.render_template_fields(context)
    if name == "verify":
        print("VERIFY", json.dumps(task.bash_command), flush=True)
    else:
        task.execute(context)
"""


@pytest.fixture(scope="session")
def airflow() -> str:
    """An interpreter with Airflow and Beam's operator."""
    return environment("airflow", *AIRFLOW)


@pytest.fixture
def place(tmp_path: Folder) -> Folder:
    """Where the example finds the rows of the day, and puts what it makes."""
    for name in ("sets", "reports"):
        (tmp_path / name).mkdir()
    return tmp_path


def write_rows(place: Folder, *, bad: int = 0) -> Folder:
    path = place / f"rows-{DAY}.csv"
    rows = [f"{n},class {n % 3}{',more' * (n < bad)}\n" for n in range(300)]
    path.write_text("number,label\n" + "".join(rows))
    return path


def run_task(python: str, place: Folder) -> Done:
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(place / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "BEAM_TFRECORD_PYTHON": sys.executable,
        "BEAM_TFRECORD_DATA": str(place),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [python, "-c", _RUN_TASK, str(DAG), DAY],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=place,
    )


def told(done: Done, what: str) -> object:
    (line,) = (x for x in done.stdout.splitlines() if x.startswith(f"{what} "))
    return json.loads(line.partition(" ")[2])


def test_task_converts_the_day(airflow: str, place: Folder) -> None:
    """The operator's command reaches the pipeline; the dataset is that of `convert`."""
    source = write_rows(place)
    done = run_task(airflow, place)
    assert done.returncode == 0, done.stderr
    command = told(done, "COMMAND")
    assert isinstance(command, list)
    assert command[:3] == [sys.executable, "-m", "beam_pipeline"]
    ours, beams = split_flags(command[3:], convert_command)
    assert {"--overwrite", "--no-shuffle", "--max-reject-rate=0.001"} <= set(ours)
    assert [flag.partition("=")[0] for flag in beams] == ["--labels"]
    part = f"part={DAY}"
    flags = ["--splits", "train=0.8,test=0.2", "--label-column", "label"]
    flags += ["--key-column", "number", "--part", DAY, "--no-shuffle"]
    here = place / "here" / "rows"
    here.parent.mkdir()
    committed(convert(source, here, *flags), here / part)
    same(place / "sets" / "rows" / part, here / part)
    report = json.loads((place / "reports" / f"rows-{DAY}.json").read_text())
    assert (report["status"], report["exit_code"]) == ("committed", 0)
    assert report["records"] == 300
    checked = subprocess.run(
        ["sh", "-c", str(told(done, "VERIFY"))], check=False, cwd=ROOT
    )
    assert checked.returncode == 0


def test_task_fails_as_the_program_does(airflow: str, place: Folder) -> None:
    """Too many rejects: the operator names exit code 3, the report says why."""
    write_rows(place, bad=5)
    done = run_task(airflow, place)
    assert done.returncode != 0
    assert "failed with return code 3" in done.stderr
    report = json.loads((place / "reports" / f"rows-{DAY}.json").read_text())
    assert (report["status"], report["exit_code"]) == ("failed", 3)
    assert report["error"] == "RejectLimitError"
    assert not (place / "sets" / "rows" / f"part={DAY}").exists()
