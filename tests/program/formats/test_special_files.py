"""Pipes, devices and sockets where a file is to be: an error at once, never a wait."""

import contextlib
import errno
import os
import pathlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from PIL import Image

from beam_pipeline.planning.inputs import find_inputs
from beam_pipeline.settings.spec import make_spec
from tests.support.datasets import animals, write_dataset
from tests.support.fuzzing import at_most
from tests.support.runs import Run, command
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import InputError, SourceError
from transforms.storage.files import storage
from transforms.storage.local import LocalPath

Folder = pathlib.Path

SECONDS = 60
SCRIPT = pathlib.Path(sys.executable).with_name("beam-tfrecord")


def pipe(path: Folder) -> None:
    os.mkfifo(path)


def device(path: Folder) -> None:
    """A link to one that never ends: only root makes the device itself."""
    path.symlink_to("/dev/zero")


def unix_socket(path: Folder) -> None:
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


@pytest.fixture
def place(tmp_path: Folder) -> Folder:
    """A folder with a table, a dataset and a tree of files."""
    (tmp_path / "t.csv").write_text("a,b\n" + "".join(f"{i},r{i}\n" for i in range(9)))
    write_dataset(tmp_path / "ds", {"train": animals(3, 2)})
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (4, 4)).save(tmp_path / "photos" / "1.png")
    return tmp_path


def run(place: Folder, *arguments: str) -> Run:
    with contextlib.chdir(place), at_most(SECONDS):
        return command(*arguments)


def check(done: Run, path: str) -> None:
    said = done.out + done.err
    assert done.code in (1, 2, 4), said
    assert "Traceback" not in said
    assert os.path.basename(path) in said or f"{os.path.dirname(path)!r}" in said


CONVERT = ("convert", "t.csv", "out")
SHARD = "ds/animals-train.tfrecord-00000-of-00002"


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        (SHARD, ("verify", SHARD)),
        (SHARD, ("repair", SHARD, "fixed")),
        (SHARD, ("head", "ds")),
        (SHARD, ("spec", SHARD)),
        (SHARD, ("convert", SHARD, "out")),
        ("ds/manifest.json", ("verify", "ds")),
        ("ds/manifest.json", ("rejects", "ds")),
        ("ds/manifest.json", ("convert", "t.csv", "ds", "--overwrite")),
        ("ds/dataset_info.json", ("verify", "ds")),
        ("t.csv", ("convert", "t.csv", "out")),
        ("t.csv", ("plan", "t.csv", "out")),
        ("t.csv", ("spec", "t.csv")),
        ("x.parquet", ("convert", "x.parquet", "out")),
        ("x.npz", ("convert", "x.npz", "out")),
        ("x.tar", ("convert", "x.tar", "out")),
        ("x.json", ("convert", "x.json", "out")),
        ("job.yaml", (*CONVERT, "--spec", "job.yaml")),
        (
            "x.csv",
            ("convert", "photos", "out", "--labels", "x.csv", "--id-column", "a"),
        ),
        ("x.csv", (*CONVERT, "--key-column", "a", "--split-ids", "x.csv")),
        ("x.pq", (*CONVERT, "--key-column", "a", "--split-ids", "x.pq")),
        ("lock", (*CONVERT, "--split-lock", "lock")),
        ("x", (*CONVERT, "--label-column", "b", "--vocabulary", "x")),
        ("rej.jsonl", ("rejects", "rej.jsonl")),
        ("out.rejects.jsonl", ("rejects", "out")),
    ],
)
def test_it_is_an_error_at_once(
    path: str, arguments: tuple[str, ...], place: Folder
) -> None:
    """In the place of whatever file a command reads; the message names it."""
    (place / path).unlink(missing_ok=True)
    os.mkfifo(place / path)
    check(run(place, *arguments), path)
    assert not (place / "out").exists()


@pytest.mark.parametrize("special", [pipe, device, unix_socket])
def test_in_a_folder_of_tables(
    special: Callable[[Folder], None], place: Folder
) -> None:
    """Beside files that can be read it is named too, or left out."""
    (place / "in").mkdir()
    shutil.copy(place / "t.csv", place / "in" / "t.csv")
    special(place / "in" / "u.csv")
    for arguments in (("convert", "in", "out"), ("plan", "in", "out2")):
        done = run(place, *arguments)
        check(done, "u.csv")
        assert done.code == InputError.exit_code
        assert "--exclude" in done.err
    left_out = run(place, "convert", "in", "out", "--exclude", "u.csv")
    assert left_out.code == 0


@pytest.mark.parametrize("special", [pipe, device, unix_socket])
def test_every_way_to_open_a_file(
    special: Callable[[Folder], None], tmp_path: Folder
) -> None:
    """All functions of the file layer and of the reader raise an error."""
    special(tmp_path / "x")
    path = str(tmp_path / "x")
    file = storage(path)
    openings: tuple[Callable[[], object], ...] = (
        *(file.open_input, file.open_unbuffered, file.read_bytes, file.mapped),
        lambda: file.read_range(0, 1),
        lambda: file.opened().__enter__(),
        lambda: next(iter(TFRecordReader(path))),
    )
    for opening in openings:
        with pytest.raises((OSError, SourceError)):
            opening()
    assert storage(str(tmp_path / "?")).expand() == [path]
    assert [entry.path for entry in storage(str(tmp_path)).entries_in(str(tmp_path))]


def test_arguments_from_a_pipe(place: Folder) -> None:
    """`--spec /dev/stdin` is refused where it is a pipe, and read from a file."""
    arguments = [str(SCRIPT), "plan", "t.csv", "out", "--spec", "/dev/stdin"]
    options: dict[str, Any]
    options = {"cwd": place, "capture_output": True, "text": True, "timeout": SECONDS}
    piped = subprocess.run(arguments, input="seed: 1\n", check=False, **options)
    assert piped.returncode == 2
    assert "not a regular file" in piped.stderr
    (place / "job.yaml").write_text("seed: 1\n")
    with open(place / "job.yaml", encoding="utf-8") as file:
        read = subprocess.run(arguments, stdin=file, check=False, **options)
    assert read.returncode == 0, read.stderr


def test_a_file_of_another_user(place: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a format is recognised by cannot be read: the source does not fit."""

    def refuse(path: LocalPath) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", path.path)

    spec = make_spec({"source": str(place / "t.csv"), "output": str(place / "out")})
    monkeypatch.setattr(LocalPath, "open_input", refuse)
    with pytest.raises(InputError, match=r"t\.csv' is not: Permission denied"):
        find_inputs(spec, "file")
