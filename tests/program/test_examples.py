"""The files in examples/ do what they say."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from beam_pipeline import api
from tests.support.runs import command, python

Folder = pathlib.Path

EXAMPLES = Folder(__file__).parents[2] / "examples"
CRON = EXAMPLES / "cron.sh"
# The examples import the program from where it is.
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}


def cron(
    folder: Folder,
    *arguments: str,
    program: str = f"{sys.executable} -m beam_pipeline",
) -> "subprocess.CompletedProcess[str]":
    given = {"BEAM_TFRECORD": program, "LOGS": str(folder / "logs")}
    return subprocess.run(
        ["sh", str(CRON), *arguments],
        cwd=folder,
        env=ENVIRONMENT | given,
        capture_output=True,
        text=True,
        check=False,
    )


def report(folder: Folder) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "logs" / "out.json").read_text())
    return found


def test_five_nights_of_parts(tmp_path: Folder) -> None:
    """Killed runs, drift, days at once and a reader: whole days, each row once."""
    program = EXAMPLES / "nightly" / "five_days.py"
    done = python(program, tmp_path / "events", env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "5 days, classes b, d, a\n"
    assert python(program, env=ENVIRONMENT).stderr.startswith("usage: five_days.py ")


def test_cron_commits_has_nothing_to_do_and_keeps_the_dataset_on_rejects(
    tmp_path: Folder,
) -> None:
    """0 and no word, so no mail; 3, a line for the mail and a report of the failure."""
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n2,y\n")
    done = cron(tmp_path, "rows.csv", "out")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert report(tmp_path)["status"] == "committed"
    done = cron(tmp_path, "rows.csv", "out/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert report(tmp_path)["status"] == "up to date"
    log = (tmp_path / "logs" / "out.log").read_text()
    assert "committed out" in log
    assert "up to date out" in log
    assert sorted(os.listdir(tmp_path / "logs")) == ["out.json", "out.log"]
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    (tmp_path / "rows.csv").write_text("a,b\n1,x\n2,y,z\n")
    done = cron(tmp_path, "rows.csv", "out")
    assert done.returncode == 3
    assert done.stderr.startswith("out: too many rejects; the error says how to list")
    (listed,) = re.findall(r"beam-tfrecord rejects (\S+)\.", done.stderr)
    shown = command("rejects", listed)
    assert "1 item rejected by a run that committed nothing" in shown.out
    assert (
        "\nerror: At most 1.000% of the items may be rejected; 1 of 2 " in done.stderr
    )
    assert report(tmp_path)["exit_code"] == 3
    assert report(tmp_path)["error"] == "RejectLimitError"
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before


def test_cron_tells_a_bad_source_from_a_bad_command(tmp_path: Folder) -> None:
    """4 blames the file of the day, 2 the crontab; both print the error."""
    (tmp_path / "rows.csv").write_bytes(b"a,b\n1,x\n2,caf\xe9\n")
    done = cron(tmp_path, "rows.csv", "out")
    assert done.returncode == 4, (tmp_path / "logs" / "out.log").read_text()
    head, error = done.stderr.splitlines()
    assert head.startswith("out: the source does not fit; see ")
    assert error.startswith("error: rows.csv, line 3: column 'b' holds")
    assert report(tmp_path)["status"] == "failed"
    assert report(tmp_path)["exit_code"] == 4
    done = cron(tmp_path, "rows.csv", "out", "--shard=3")
    assert done.returncode == 2
    head, error = done.stderr.splitlines()
    assert head.startswith("out: wrong command, or no such source; see ")
    # The error of this run, not of the one before.
    assert error.startswith("error: No such option '--shard'.")
    # Nothing was run, so the last report is still that of before.
    assert report(tmp_path)["exit_code"] == 4
    assert cron(tmp_path, "none.csv", "out").returncode == 2
    assert cron(tmp_path, "rows.csv").returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_cron_stops_the_run_with_itself(tmp_path: Folder, number: int) -> None:
    """A signal to the script alone reaches the program, whose code it returns."""
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\ntrap 'sleep 0.3; echo stopped; exit 143' TERM\necho $$ >begun\n"
        "while :; do sleep 0.05; done\n"
    )
    program.chmod(0o755)
    logs = {"BEAM_TFRECORD": str(program), "LOGS": str(tmp_path / "logs")}
    with subprocess.Popen(
        ["sh", str(CRON), "rows.csv", "out"],
        cwd=tmp_path,
        env={**os.environ, **logs},
        stderr=subprocess.PIPE,
        text=True,
    ) as script:
        begun = tmp_path / "begun"
        while not (begun.exists() and begun.read_text()):
            assert script.poll() is None
            time.sleep(0.01)
        script.send_signal(number)
        _, said = script.communicate(timeout=30)
    assert script.returncode == 143
    assert said.splitlines()[-1] == "stopped"
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)


def test_own_pipeline(tmp_path: Folder) -> None:
    """Rows are scored, written and read again."""
    arguments = (tmp_path / "out", "--parts", 2)
    done = python(EXAMPLES / "own_pipeline.py", *arguments, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    result, *rows = done.stdout.splitlines()
    found = re.search(r"records=\{'train': (\d+), 'test': (\d+)\}", result)
    assert found is not None, result
    train, test = map(int, found.groups())
    assert train + test == 2_000
    assert 150 < test < 250
    assert len(rows) == 3
    assert all(row.startswith("{'species': '") for row in rows)


@pytest.mark.stress
def test_dataset_statistics(tmp_path: Folder) -> None:
    """Counts, means and extents of all columns, and the classes, as tables."""
    lines = ["id,mass,tags,ok,species"]
    lines += [f"{i},{i / 2 if i % 4 else ''},a,true,{'xyx'[i % 3]}" for i in range(12)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    api.convert(tmp_path / "rows.csv", tmp_path / "out", label_column="species")
    program = EXAMPLES / "dataset_statistics.py"
    options = ("--label=species", "--runner=FnApiRunner")
    done = python(program, "out", *options, cwd=tmp_path, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["feature", "count", "missing", "mean", "min", "max"],
        ["id", "12", "0", "5.5", "0", "11"],
        ["mass", "9", "3", "3", "0.5", "5.5"],
        ["tags", "12", "0"],
        ["ok", "12", "0", "1", "1", "1"],
        ["species", "12", "0"],
        [],
        ["species", "records"],
        ["x", "8"],
        ["y", "4"],
    ]
