"""Parts that `WriteDataset` writes: whole or absent, and like each other."""

import pathlib
import tempfile
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

from beam_pipeline import (
    Committed,
    ReadDataset,
    ReadRows,
    WriteDataset,
    open_dataset,
)
from tests.support.memory_store import MemoryStore, install
from tests.support.runs import command, convert
from tests.support.sources import write_files
from transforms.core.image.png import encode_png
from transforms.errors import InputError, SpecError, TargetError

Folder = pathlib.Path
ROWS = 40
HALVES = {"train": 0.5, "test": 0.5}
PNG = encode_png(np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3))[0].as_py()


def day(number: int, kinds: str, **more: Any) -> list[dict[str, Any]]:
    """Returns the rows of a day; `kinds` are letters, one a class in turns."""
    return [
        {"id": number * 1000 + n, "kind": kinds[n % len(kinds)], "age": n, **more}
        for n in range(ROWS)
    ]


def write(output: str, number: int, rows: list[dict[str, Any]], **settings: Any) -> str:
    """Writes a day as a part; returns what the commit said."""
    given = {"label": "kind", "key": "id", "splits": HALVES, **settings}
    pipeline = beam.Pipeline(runner="BundleBasedDirectRunner")
    with tempfile.NamedTemporaryFile("r") as said:
        made = pipeline | beam.Create(rows)
        done = made | WriteDataset(output, part=f"2026-11-0{number}", **given)
        _ = done | beam.Map(_note, said.name)
        pipeline.run().wait_until_finish()
        return said.read()


def _note(committed: Committed, path: str) -> None:
    pathlib.Path(path).write_text(committed.status)


@pytest.fixture(params=["disk", "bucket"])
def output(
    request: pytest.FixtureRequest, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A folder of parts on a disk, or in a bucket."""
    if request.param == "bucket":
        install(MemoryStore(), monkeypatch)
        yield "s3://bucket/sets/events"
    else:
        yield str(tmp_path / "sets" / "events")


def rows_in(output: str) -> list[dict[str, Any]]:
    opened = open_dataset(output, labels="names")
    found = [dict(row) for split in opened for row in opened[split]]
    return sorted(found, key=lambda row: int(row["id"]))


def test_nights_of_a_pipeline(output: str) -> None:
    """Nothing doubles, no id moves, and drift is refused until it is allowed."""
    first, second = day(1, "bd"), day(2, "dba", extra="x")
    assert write(output, 1, first) == "committed"
    assert write(output, 1, first) == "up to date"
    with pytest.raises(InputError) as caught:
        write(output, 2, second)
    assert all(word in str(caught.value) for word in ("'a'", "'extra' is new"))
    assert rows_in(output) == first
    allowed = ["new-classes", "new-columns"]
    assert write(output, 2, second, allow=allowed) == "committed"
    # The list of classes has grown, and the first day has no column `extra`.
    assert write(output, 1, first) == "up to date"
    assert write(output, 2, second) == "up to date"
    assert open_dataset(output).classes == {"kind": ("b", "d", "a")}
    assert rows_in(output) == [
        *(row | {"extra": None} for row in first),
        *second,
    ]
    corrected = day(1, "db")
    with pytest.raises(TargetError, match="2026-11-01"):
        write(output, 1, corrected)
    assert write(output, 1, corrected, overwrite=True) == "committed"
    assert rows_in(output)[:ROWS] == [row | {"extra": None} for row in corrected]
    assert command("verify", output).code == 0


def test_parts_of_convert_and_of_a_pipeline(tmp_path: Folder) -> None:
    """Either goes on with what the other began; columns may be named as features."""
    spec, table = tmp_path / "spec.yaml", tmp_path / "1.csv"
    spec.write_text("features: {kind: {column: Class}}\n")
    rows = day(1, "bd")
    lines = [f"{row['id']},{row['kind']},{row['age']}" for row in rows]
    table.write_text("\n".join(["id,Class,age", *lines, ""]))
    output = tmp_path / "events"
    given = ("--spec", spec, "--label-column", "Class", "--key-column", "id")
    shares = ("--splits", "train=0.5,test=0.5")
    convert(table, output, "--part", "2026-11-01", *given, *shares)
    later = day(2, "d")
    assert (
        write(str(output), 2, later, label=None, key=None, splits=None) == "committed"
    )
    table.write_text(table.read_text().replace("\n1", "\n3"))
    convert(table, output, "--part", "2026-11-03", *given)
    wanted = [*rows, *later, *(row | {"id": row["id"] + 2000} for row in rows)]
    assert rows_in(str(output)) == wanted


def test_parts_agree_in_what_decides_splits(tmp_path: Folder) -> None:
    """Another seed is refused when the transform is made."""
    output = str(tmp_path / "events")
    write(output, 1, day(1, "bd"))
    with pytest.raises(SpecError, match="seed"):
        WriteDataset(output, part="2026-11-02", seed=1)


def test_keys_of_another_kind_are_drift(tmp_path: Folder) -> None:
    """As with `convert`: the source does not fit, and the step before is at fault."""
    output = str(tmp_path / "events")
    write(output, 1, day(1, "bd"))
    with pytest.raises(InputError, match=r"must be like .*'id' holds 0\.5"):
        write(output, 2, [{"id": 0.5, "kind": "b", "age": 1}])


def test_parts_of_images(tmp_path: Folder) -> None:
    """Rows name images by paths or hold them; sizes are read off them again."""
    photos, output = tmp_path / "photos", tmp_path / "parts"
    write_files(photos, dict.fromkeys(("a/1.png", "a/2.png", "b/1.png"), PNG))
    convert(photos, output, "--part", "1")
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | ReadRows(photos)
        _ = read.rows | WriteDataset(output, part="2", images_root=str(photos))
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        stored = pipeline | ReadDataset(output / "part=1")
        _ = stored | WriteDataset(output, part="3")
    opened = open_dataset(output, labels="names")
    found = [(row["label"], row["filename"], row["height"]) for row in opened["train"]]
    wanted = [("a", "a/1.png", 4), ("a", "a/2.png", 4), ("b", "b/1.png", 4)]
    assert sorted(found) == sorted(3 * wanted)
