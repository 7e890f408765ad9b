"""Makes the datasets beside this file, with version 0.2; see README.md.

PYTHON make.py         makes all but the bucket; PYTHON is that of 0.2
PYTHON make.py bucket  makes the bucket; needs the S3 server of the tests
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

HERE = pathlib.Path(__file__).parent
SOURCES = HERE / "sources"
# When every source was changed last, for the jobs that go by that.
MODIFIED = 1_750_000_000
KILLED = ("writing", "publishing", "published")
PACKED = ("wide", "sparse", *KILLED)

TABLE = (
    *("--splits", "train=0.7,test=0.3", "--label-column", "kind", "--shards", "2"),
    *("--max-reject-rate", "0.2"),
)
# Name -> source and flags of what `convert` has made.
JOBS: Mapping[str, Sequence[str]] = {
    "table": ("in/table.csv", *TABLE, "--fingerprint", "content"),
    "photos": ("in/photos", "--shards", "2", "--max-reject-rate", "0.2"),
    "gzip": (
        *("in/table.csv", *TABLE, "--compression", "gzip", "--index", "text"),
        *("--catalogue", "full"),
    ),
    "wide": ("in/wide.csv", "--shards", "1"),
    "locked": (
        *("in/table.csv", *TABLE, "--key-column", "id", "--fingerprint", "content"),
        *("--split-lock", "split.lock", "--vocabulary-lock", "names.lock"),
    ),
    "parts": (
        *("in/parts", "--shards", "4", "--segments", "files", "--workers", "1"),
        *("--fingerprint", "content"),
    ),
}
SPARSE_KEYS = 2000
SPLIT = {"num_shards": 2, "splits": {"train": 0.7, "test": 0.3}}
BUCKET = "beam-tfrecord"
# Kills itself at a file operation; the shards are synced in pairs.
DRIVER = """
import glob, os, signal, sys
from beam_pipeline.cli import main
from tests.support.file_operations import watched
from transforms.storage import draft_group

draft_group._FILES = 2
moment, exchanged = sys.argv[1], False

def hook(what, path):
    global exchanged
    at = {
        "writing": bool(glob.glob(".parts.*/*/receipts/*.shards")),
        "publishing": what == "renameat2" and path.endswith("/parts"),
        "published": exchanged,
    }
    if at[moment]:
        os.kill(os.getpid(), signal.SIGKILL)
    exchanged = exchanged or at["publishing"]

with watched(hook):
    main(sys.argv[2:])
"""


def row(number: int) -> str:
    """Returns a row of the table; every sixth has no note."""
    note = "" if number % 6 == 5 else f'"note, {number}"'
    return f"{number},{number / 8},{str(number % 2 == 0).lower()},{note},{kind(number)}"


def kind(number: int) -> str:
    """Returns the class of a row."""
    return ("고양이", "dog", "goat")[number % 3]


def sparse_row(number: int) -> dict[str, Any]:
    """Returns a row with a few of many keys."""
    keys = (f"k{(number * 37 + j * 101) % SPARSE_KEYS:04}" for j in range(40))
    return {"id": number, **{key: number / 8 + j for j, key in enumerate(keys)}}


def pipeline_row(number: int) -> dict[str, Any]:
    """Returns a row of the pipeline."""
    return {"id": number, "x": number / 8, "tags": [number % 3] * (number % 3)}


def write_sources() -> None:
    """Writes what the jobs read."""
    from PIL import Image

    shutil.rmtree(SOURCES, ignore_errors=True)
    (SOURCES / "parts").mkdir(parents=True)
    header = "id,weight,tame,note,kind"
    rows = [row(n) for n in range(24)]
    write_lines("table.csv", [header, *rows[:12], "1,2", *rows[12:], "no,comma"])
    write_lines("more.csv", [header, *(row(n) for n in range(100, 106))])
    columns = [f"x{c:03}" for c in range(300)]
    cells = ([str((r * 300 + c) / 4) for c in range(300)] for r in range(5))
    write_lines("wide.csv", map(",".join, [columns, *cells]))
    for part in range(3):
        lines = [row(part * 20 + n) for n in range(20)]
        write_lines(f"parts/{part}.csv", [header, *lines])
    for number in range(8):
        label, split = (
            ("cat", "dog")[number % 2],
            ("train", "train", "test")[number % 3],
        )
        suffix = "png" if number < 6 else "jpg"
        path = SOURCES / "photos" / split / label / f"{number}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4 + number, 5), (number * 30, 200, 9)).save(path)
    (SOURCES / "photos" / "train" / "dog" / "bad.png").write_bytes(b"\x89PNG")


def write_lines(name: str, lines: Iterable[str]) -> None:
    """Writes a text file among the sources."""
    (SOURCES / name).write_text("\n".join([*lines, ""]), encoding="utf-8")


def copy_sources(folder: pathlib.Path) -> None:
    """Copies the sources, with the time of their last change."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    for path in folder.rglob("*"):
        os.utime(path, (MODIFIED, MODIFIED))


def make() -> None:
    """Makes all but the bucket."""
    write_sources()
    with tempfile.TemporaryDirectory(prefix="v0.2-") as name:
        folder = pathlib.Path(name)
        copy_sources(folder / "in")
        for output, (source, *flags) in JOBS.items():
            run("convert", source, output, *flags, cwd=folder)
        write_rows(folder, "rows", range(30), pipeline_row)
        # Version 0.2 has mixed up the keys of rows in several small shards.
        write_rows(folder, "sparse", range(60), sparse_row, said={"num_shards": 1})
        for moment in KILLED:
            kill(folder, moment)
        for each in ("table", "photos", "gzip", "locked", "rows", *PACKED):
            pack(folder / each, HERE / each)
        for each in ("split.lock", "names.lock"):
            shutil.copy(folder / each, HERE / each)
    write_order()


def make_bucket() -> None:
    """Makes what runs leave in a bucket, on the S3 server of the tests."""
    import boto3

    with tempfile.TemporaryDirectory(prefix="v0.2-") as name:
        folder = pathlib.Path(name)
        copy_sources(folder / "in")
        python([str(root() / "scripts" / "storage"), "s3", "up", "server"], folder, 0)
        state = json.loads((folder / "server" / "server.json").read_bytes())
        os.environ |= {
            "AWS_ENDPOINT_URL": state["endpoint"],
            "AWS_ACCESS_KEY_ID": state["access_key"],
            "AWS_SECRET_ACCESS_KEY": state["secret_key"],
            "AWS_REGION": "us-east-1",
        }
        store = boto3.client("s3", region_name="us-east-1")
        store.create_bucket(Bucket=BUCKET)

        try:
            source, *flags = JOBS["table"]
            again = ["--seed", "1", "--overwrite"]
            for more in ([], again):
                run(
                    *("convert", source, f"s3://{BUCKET}/bucket", *flags, *more),
                    cwd=folder,
                )
            listed = store.list_objects_v2(Bucket=BUCKET, Prefix="bucket/")
            for each in listed["Contents"]:
                path = folder / "bucket" / each["Key"]
                path.parent.mkdir(parents=True, exist_ok=True)
                found = store.get_object(Bucket=BUCKET, Key=each["Key"])["Body"]
                path.write_bytes(found.read())
            pack(folder / "bucket", HERE / "bucket")
        finally:
            python(
                [str(root() / "scripts" / "storage"), "s3", "down", "server"], folder, 0
            )


def root() -> pathlib.Path:
    """Returns the checkout of the program of this Python."""
    import beam_pipeline

    return pathlib.Path(beam_pipeline.__file__).parents[1]


def write_order() -> None:
    """Writes what tells the rows of each split, in the order of the records."""
    from beam_pipeline import open_dataset

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name in ("table", "gzip", "locked", "photos", "wide", "rows", "sparse"):
            place = HERE / name
            if name in PACKED:
                place = pathlib.Path(folder, name)
                zipfile.ZipFile(HERE / f"{name}.zip").extractall(place)
            key = {"photos": "filename", "wide": "x000"}.get(name, "id")
            opened = open_dataset(place)
            order = {
                split: [
                    v if isinstance(v := row[key], str) else int(v)
                    for row in opened[split]
                ]
                for split in opened
            }
            lines.append(f' "{name}": {json.dumps(order)}')
    (HERE / "order.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def run(*arguments: object, cwd: pathlib.Path, ends: int = 0) -> None:
    """Runs the program of this Python."""
    python(["-m", "beam_pipeline", *map(str, arguments)], cwd, ends)


def python(arguments: Sequence[str], cwd: pathlib.Path, ends: int) -> None:
    """Runs this Python with the program and its tests' helpers."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(root())},
        check=False,
    )
    if done.returncode != ends:
        sys.exit(f"{arguments} ended with {done.returncode}, not {ends}")


def kill(folder: pathlib.Path, moment: str) -> None:
    """Keeps what a run leaves that is killed when it replaces a dataset."""
    at = folder / moment
    at.mkdir()
    copy_sources(at / "in")
    shutil.copytree(folder / "parts", at / "parts")
    line = ["convert", *JOBS["parts"][:1], "parts", *JOBS["parts"][1:]]
    line += ["--seed", "1", "--overwrite"]
    python(["-c", DRIVER, moment, *line], at, -signal.SIGKILL)
    shutil.rmtree(at / "in")


def write_rows(
    folder: pathlib.Path, output: str, numbers: range, row: Any, *, said: Any = SPLIT
) -> None:
    """Writes rows with a pipeline."""
    rows = json.dumps([row(number) for number in numbers])
    program = f"""
import json
import apache_beam as beam
from beam_tfrecord import WriteDataset

rows = json.loads({rows!r})
with beam.Pipeline(runner="FnApiRunner") as pipeline:
    pipeline | beam.Create(rows) | WriteDataset(
        {output!r}, key="id", **{said!r}
    )
"""
    python(["-c", program], folder, 0)


def pack(folder: pathlib.Path, place: pathlib.Path) -> None:
    """Copies a folder, as one ZIP file where it is large or has empty folders."""
    shutil.rmtree(place, ignore_errors=True)
    if place.name not in PACKED:
        shutil.copytree(folder, place)
        return
    with zipfile.ZipFile(
        f"{place}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as z:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix() + "/" * path.is_dir()
            data = b"" if path.is_dir() else path.read_bytes()
            z.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    if sys.argv[1:] == ["bucket"]:
        make_bucket()
    else:
        make()
