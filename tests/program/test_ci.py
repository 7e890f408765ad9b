"""CI runs the quick part first, and engines and stores if their code has changed."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

Folder = pathlib.Path

ROOT = Folder(__file__).parents[2]
NOTE = ".ci/clusters-passed"
STEPS = ["check", "quick", "", "test-clusters", "test"]


@pytest.fixture
def checkout(tmp_path: Folder) -> Folder:
    """A folder with CI's scripts, whose steps only write down that they were run."""
    for name in (".ci/run", "scripts/clusters_due.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    script = tmp_path / "run_local.sh"
    script.write_text('#!/bin/sh\necho "step:$1"\n[ "$1" != "$FAILING" ]\n')
    script.chmod(0o755)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    for name in ("transforms/storage/remote.py", "transforms/core/arrays.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("a = 1\n")
    return tmp_path


def run(checkout: Folder, *arguments: str, failing: str = "none") -> tuple[int, str]:
    """Runs `.ci/run`; returns its exit code and what it printed."""
    done = subprocess.run(
        [str(checkout / ".ci" / "run"), *arguments],
        env=os.environ | {"FAILING": failing},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def steps(printed: str) -> list[str]:
    """Returns the steps that were run, "" for the sample."""
    lines = printed.splitlines()
    return [line[len("step:") :] for line in lines if line.startswith("step:")]


def test_everything_runs_until_engines_and_stores_have_passed(checkout: Folder) -> None:
    """Without a note all steps run, the suite last; a note leaves the engines out."""
    code, printed = run(checkout)
    assert code == 0
    assert steps(printed) == STEPS
    assert printed.endswith("step:test\n")
    assert (checkout / NOTE).read_text().startswith("unknown ")
    code, printed = run(checkout)
    assert code == 0
    assert steps(printed) == ["check", "quick", "", "test"]
    assert "Engines and stores have passed" in printed
    assert steps(run(checkout, "--all")[1]) == STEPS


def test_only_code_of_engines_and_stores_makes_their_tests_due(
    checkout: Folder,
) -> None:
    """Changed, new and deleted files count; other code and caches do not."""
    run(checkout)
    (checkout / "transforms/core/arrays.py").write_text("a = 2\n")
    (checkout / "transforms/storage/__pycache__").mkdir()
    (checkout / "transforms/storage/__pycache__/remote.pyc").write_text("")
    assert "test-clusters" not in steps(run(checkout)[1])
    remote = checkout / "transforms/storage/remote.py"
    for change in (
        lambda: remote.write_text("a = 2\n"),
        lambda: (checkout / "setup.py").write_text(""),
        lambda: remote.rename(remote.with_name("far.py")),
        lambda: remote.with_name("far.py").unlink(),
        lambda: (checkout / NOTE).write_text("no note\n"),
        (checkout / NOTE).unlink,
    ):
        change()
        assert "test-clusters" in steps(run(checkout)[1])
        assert "test-clusters" not in steps(run(checkout)[1])


@pytest.mark.parametrize(
    ("failing", "wanted"), [("check", 1), ("quick", 2), ("test-clusters", 5)]
)
def test_a_failure_ends_the_run_early_and_leaves_no_note(
    checkout: Folder, failing: str, wanted: int
) -> None:
    """After a failed check or quick test nothing else runs; later steps all run."""
    code, printed = run(checkout, failing=failing)
    assert code == 1
    assert steps(printed) == STEPS[:wanted]
    assert not (checkout / NOTE).exists()


def test_the_note_names_the_commit(checkout: Folder) -> None:
    """A reader of the note finds the code that has passed."""
    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "scripts"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=a"], check=True)
    head = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    )
    run(checkout)
    assert (checkout / NOTE).read_text().startswith(head.stdout.strip() + " ")


def test_the_code_of_engines_and_stores_is_where_the_script_looks() -> None:
    """A folder that has been renamed would never make the tests due."""
    script = (ROOT / "scripts" / "clusters_due.py").read_text()
    names = script.partition("TESTED = (")[2].partition(")")[0].split()
    assert len(names) > 5
    for name in names:
        assert (ROOT / name.strip('",')).exists(), name


def test_make_installs_extras_that_the_script_knows(tmp_path: Folder) -> None:
    """Its targets stop where the script refuses what they ask for."""
    for name in ("run_local.sh", "setup.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    make = (ROOT / "Makefile").read_text()
    extras = {*re.findall(r"run_local\.sh setup (\w+)", make)}
    assert extras >= {"clusters", "dev", "test"}
    for extra in extras:
        for stamp in python.parents[1].glob(".beam-tfrecord*"):
            stamp.unlink()
        command = [str(tmp_path / "run_local.sh"), "setup", extra]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert f"--editable {tmp_path}[{extra}]" in done.stdout
