"""Memory: however large the source is, each process stays small."""

import json
import os
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from beam_pipeline import sample
from tests.conftest import Headline
from tests.support.datasets import write_records
from tests.support.memory import LIMIT, converted, run_measured
from tests.support.stress import sizes

Folder = pathlib.Path

ROOT = pathlib.Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(scope="module", params=sizes(200_000_000, 2_000_000_000))
def large_csv(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Folder]:
    """Short rows, the same ones again and again; removed at the end."""
    path = tmp_path_factory.mktemp("memory") / "rows.csv"
    rng = np.random.default_rng(37)
    rows = 200_000
    text = pa.array(["cat", "dog", "chicken", "horse", "a longer word"])
    columns = {f"x{n}": rng.standard_normal(rows).round(4) for n in range(4)}
    table = pa.table(
        {
            **columns,
            "n": rng.integers(-9, 10**12, rows),
            "w": text.take(rng.integers(0, 5, rows)),
        }
    )
    sink = pa.BufferOutputStream()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="none")
    pyarrow.csv.write_csv(table, sink, options)
    piece = memoryview(sink.getvalue())
    with path.open("wb") as file:
        file.write(",".join(table.column_names).encode() + b"\n")
        while file.tell() < request.param:
            file.write(piece)
    yield path
    path.unlink()


@pytest.fixture(scope="module", params=sizes(5_000, 50_000))
def many_images(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Folder:
    """A few photos, each under many names."""
    folder = tmp_path_factory.mktemp("memory-images")
    sample.write_photos(folder / "few")
    few = sorted(path for path in (folder / "few").rglob("*.*") if path.is_file())
    for number in range(request.param):
        given = few[number % len(few)]
        path = folder / "many" / given.parent.name / f"{number:06d}{given.suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(given, path)
    return folder / "many"


@pytest.mark.parametrize("workers", sizes("2", "1"))
def test_a_large_table(large_csv: Folder, tmp_path: Folder, workers: str) -> None:
    """No process of the run holds more than 500 MB, how many rows there may be."""
    peak = converted(large_csv, tmp_path, "--workers", workers)
    assert peak.code == 0, peak.errors
    assert peak.processes == (1 if workers == "1" else 3)
    assert peak.process < LIMIT


@pytest.mark.parametrize("workers", sizes("2", "1"))
def test_many_images(many_images: Folder, tmp_path: Folder, workers: str) -> None:
    """No process of the run holds more than 500 MB, how many images there may be."""
    peak = converted(many_images, tmp_path, "--workers", workers)
    assert peak.code == 0, peak.errors
    assert peak.process < LIMIT


@pytest.mark.stress
@pytest.mark.parametrize("names", sizes(60_000, 1_000_000))
def test_many_names(names: int, tmp_path: Folder) -> None:
    """The plan of a tree takes less than 300 MB, how many names there may be."""
    links = 50_000
    for number in range(names):
        folder = tmp_path / "tree" / f"{number // 10_000:03}"
        if not number % 10_000:
            folder.mkdir(parents=True)
        given = tmp_path / f"{number // links}.jpg"
        if not number % links:
            given.write_bytes(b"x" * 100)
        os.link(given, folder / f"image-{number:08}.jpg")
    program = [sys.executable, "-m", "beam_pipeline", "plan"]
    peak = run_measured([*program, str(tmp_path / "tree"), "out"], cwd=tmp_path)
    assert peak.code == 0, peak.errors
    assert peak.process < 300_000_000


@pytest.mark.stress
@pytest.mark.parametrize("names", sizes(60_000, 50_000_000))
def test_many_names_in_a_store(
    names: int, tmp_path: Folder, headline: Headline
) -> None:
    """Neither the plan of a bucket nor the submitted job grows with its objects."""
    program = [sys.executable, "-m", "tests.support.plan_of_store", str(names)]
    peak = run_measured([*program, str(tmp_path)], cwd=ROOT, timeout=7_200)
    assert peak.code == 0, peak.errors
    measured = json.loads((tmp_path / "measured.json").read_text())
    headline("H15", f"{names:,} names: {peak.process >> 20} MB, {measured}")
    assert measured["records"] == names
    assert measured["job bytes"] < 200_000
    assert peak.process < LIMIT


@pytest.mark.parametrize("size", sizes(1_000_000, 1_000))
def test_indexes_of_many_files(size: int, tmp_path: Folder) -> None:
    """30 files of 60 MB, by any program, take the memory that 3 of them take."""
    records = [bytes(size)] * (60_000_000 // size)
    peaks = []
    for files in (3, 30):
        folder = tmp_path / f"{files}"
        folder.mkdir()
        write_records(folder / "00.tfrecord", records)
        for number in range(1, files):
            os.link(folder / "00.tfrecord", folder / f"{number:02}.tfrecord")
        program = [sys.executable, "-m", "beam_pipeline", "index", str(folder)]
        peaks.append(run_measured(program, cwd=ROOT))
        assert peaks[-1].code == 0, peaks[-1].errors
        assert len([*(folder / "index").iterdir()]) == 2 * files
    few, many = peaks
    assert few.process < LIMIT
    assert many.process < 1.1 * few.process


@pytest.mark.stress
def test_row_groups_of_the_catalogue(tmp_path: Folder) -> None:
    """Eight take what two do; kept by Arrow, they took 11 to 18 MB more."""
    code = """
import sys, numpy, pyarrow
from transforms.core.catalogue import write_part

def batches(groups):
    for start in range(0, groups << 17, 1 << 15):
        rows = pyarrow.array(numpy.arange(start, start + (1 << 15)))
        names = pyarrow.array([f"folder/image-{row}.jpg" for row in rows])
        yield {"_origin": names, "_row": rows}

schema = pyarrow.schema([("_origin", pyarrow.string()), ("_row", pyarrow.int64())])
write_part(sys.argv[1], batches(int(sys.argv[2])), schema, {})
"""
    peaks = []
    for groups in ("2", "8"):
        program = [sys.executable, "-c", code, str(tmp_path / groups), groups]
        peaks.append(run_measured(program, cwd=ROOT))
        assert peaks[-1].code == 0, peaks[-1].errors
    few, many = peaks
    assert many.process - few.process < 5_000_000


@pytest.mark.parametrize("rows", sizes(300_000, 1_000_000))
@pytest.mark.parametrize("option", sizes("--label-column", "--stratify-column"))
def test_as_many_classes_as_rows(option: str, rows: int, tmp_path: Folder) -> None:
    """A million class names are arrays, and no million of Python's texts."""
    path = tmp_path / "rows.csv"
    lines = "".join(f"{number},c{number}\n" for number in range(rows))
    path.write_text(f"x,y\n{lines}")
    splits = ("--splits", "train=0.7,val=0.2,test=0.1")
    peak = converted(path, tmp_path, option, "y", *splits)
    assert peak.code == 0, peak.errors
    # What every run takes, and the classes: 700 MB for a million.
    assert peak.process < 450_000_000 + rows * 250
