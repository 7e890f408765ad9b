"""A run through the fork server is what a real process would be."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.support import fork_server

Folder = pathlib.Path

# Where a run says how long it took, it is quiet.
COMMANDS = (
    ("convert", "t.csv", "out", "--seed", "-1"),
    ("convert", "bad.csv", "bad", "--workers", "2"),
    ("convert", "t.csv", "out", "--quiet"),
    ("clean", "."),
)


@pytest.fixture
def place(tmp_path: Folder) -> Folder:
    """A folder with a table, and one with too many rejects."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "t.csv").write_text("n,w\n" + "".join(f"{n},w{n}\n" for n in range(99)))
    (place / "bad.csv").write_text("n,w\n1,a\n2,b,c\n")
    return place


def process(*arguments: str, cwd: Folder) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "beam_pipeline", *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def files(folder: Folder) -> dict[str, bytes]:
    """Returns every file but those that hold times, with its permissions."""
    return {
        f"{path.relative_to(folder)} {path.stat().st_mode:o}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


def without_free_space(printed: str) -> str:
    """Returns what a run printed, less the disk's free space, which others change."""
    return re.sub(r"\S+ .?B free", "free", printed)


@pytest.mark.stress
def test_it_prints_and_writes_the_same(place: Folder, tmp_path: Folder) -> None:
    """A command has the same output, exit code and files as a real process."""
    codes = []
    seen: list[list[object]] = [[], []]
    for found, run in zip(seen, (process, fork_server.run), strict=True):
        old = os.umask(0o027)
        try:
            for command in COMMANDS:
                done = run(*command, cwd=place)
                out = without_free_space(done.stdout)
                found.append((command, done.returncode, out, done.stderr))
                codes.append(done.returncode)
        finally:
            os.umask(old)
        found.append(files(place))
        (place / "out").rename(tmp_path / f"out{len(codes)}")
    assert seen[0] == seen[1]
    assert set(codes) == {0, 2, 3}
