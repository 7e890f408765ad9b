"""Splits by shares of rows without a key, end to end: only what a row says decides."""

import collections
import dataclasses
import hashlib
import json
import pathlib
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import convert_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.outputs import manifest_of, records
from tests.support.placing import MASK, batch_of, mixed
from tests.support.segments import waiting
from transforms.core.manifest import Manifest
from transforms.core.model import Block
from transforms.core.placing.hashes import LOCK, SPLIT, order_hashes, unit_hashes
from transforms.core.placing.splitting import (
    SplitRule,
    SplitSource,
    SplitTables,
    split_rows,
)
from transforms.errors import EncodingError, SpecError
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.scan import CsvDialect
from transforms.formats.json_lines.reader import JsonLinesReader, learned
from transforms.formats.table import InputFile
from transforms.stages.splits import hash_classes

Folder = pathlib.Path
HALVES = "train=0.5,test=0.5"
ROWS = 400


def table(ids: Sequence[int]) -> pa.Table:
    """Rows whose numbers are as programs write them, some of them missing."""
    return pa.table(
        {
            "id": [f"u{i}" for i in ids],
            "x": [i * 37 % 101 / 7 for i in ids],
            "whole": [float(i % 50) for i in ids],
            "count": [i * 10**15 for i in ids],
            "gap": [None if i % 7 == 0 else i % 3 for i in ids],
            "animal": [("cat", "dog", "goat")[i % 3] for i in ids],
            "flag": [i % 2 == 0 for i in ids],
        }
    )


def csv_of(rows: pa.Table, path: Folder) -> Folder:
    path.parent.mkdir(exist_ok=True)
    pyarrow.csv.write_csv(rows, path)
    return path


@pytest.fixture
def source(tmp_path: Folder) -> Folder:
    return csv_of(table(range(ROWS)), tmp_path / "in" / "a.csv")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The split of each row of the table, by its id."""
    folder = tmp_path_factory.mktemp("before")
    csv_of(table(range(ROWS)), folder / "in" / "a.csv")
    return convert(folder / "in", folder / "out")[1]


def splits_in(output: Folder, feature: str = "id") -> dict[str, str]:
    """Returns id -> split as the records have it; no id may be in two splits."""
    found: dict[str, str] = {}
    manifest = manifest_of(output)
    for split in manifest.splits:
        for row in records(output, split.name):
            (key,) = row[feature]
            assert found.setdefault(key.decode(), split.name) == split.name
    return found


def convert(
    source: Folder | str,
    output: Folder,
    feature: str = "id",
    where: str = "",
    **settings: Any,
) -> tuple[Manifest, dict[str, str]]:
    shutil.rmtree(output, ignore_errors=True)
    given = {"source": str(source), "output": str(output), "splits": HALVES, **settings}
    with waiting(where):
        plan = make_plan(make_spec(given))
    manifest = convert_plan(plan)
    return manifest, splits_in(output, feature)


def _shuffled(rows: pa.Table) -> pa.Table:
    return rows.take(np.random.default_rng(3).permutation(len(rows)))


def _json_lines(rows: pa.Table, folder: Folder) -> Folder:
    path = folder / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    return path


def _parquet(rows: pa.Table, folder: Folder) -> Folder:
    pyarrow.parquet.write_table(rows, folder / "a.parquet", row_group_size=70)
    return folder / "a.parquet"


def _arrow(rows: pa.Table, folder: Folder) -> Folder:
    encoded = rows.set_column(0, "id", rows["id"].dictionary_encode())
    pyarrow.feather.write_feather(encoded, folder / "a.feather")
    return folder / "a.feather"


CHANGES: dict[str, Callable[[pa.Table, Folder], Folder]] = {
    "a row first": lambda rows, to: csv_of(
        pa.concat_tables([table([ROWS]), rows]), to / "a.csv"
    ),
    "another order of columns": lambda rows, to: csv_of(
        rows.select(rows.column_names[::-1]), to / "a.csv"
    ),
    "another name": lambda rows, to: csv_of(rows, to / "other.csv"),
    "pandas' CSV": lambda rows, to: Folder(
        str(rows.to_pandas().to_csv(to / "a.csv", index=False) or to / "a.csv")
    ),
    "JSON lines": _json_lines,
    "Parquet": _parquet,
    "Arrow": _arrow,
    "a column that is empty": lambda rows, to: csv_of(
        rows.append_column("more", pa.nulls(len(rows), pa.string())), to / "a.csv"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_row_moves(before: dict[str, str], tmp_path: Folder, change: str) -> None:
    """The place of a row and its file's name, compression and format do not count."""
    assert 150 < collections.Counter(before.values())["train"] < 250
    folder = tmp_path / "changed"
    folder.mkdir()
    changed = CHANGES[change](table(range(ROWS)), folder)
    _, after = convert(changed, tmp_path / "after")
    assert len(after) >= ROWS - 1
    assert {key: after[key] for key in before if key in after} == {
        key: split for key, split in before.items() if key in after
    }


OPTIONS: dict[str, dict[str, Any]] = {
    "kind": {"features": {"count": {"kind": "text"}, "x": {"kind": "text"}}},
    "rename": {"features": {"new": {"kind": "float", "column": "x"}}},
    "fill": {"features": {"gap": {"kind": "int64", "missing": "fill", "fill": 9}}},
    "label": {"label_column": "animal"},
    "drop": {"drop": ["x", "animal"]},
    "shards": {"shards": 3, "seed": 7, "shuffle": False},
}


@pytest.mark.parametrize("format_name", ["csv", "jsonl"])
@pytest.mark.parametrize("option", OPTIONS)
def test_options_of_features_move_no_row(
    before: dict[str, str],
    source: Folder,
    tmp_path: Folder,
    option: str,
    format_name: str,
) -> None:
    """The content is the source's own, before all that is said of features."""
    if format_name == "jsonl":
        source = _json_lines(table(range(ROWS)), tmp_path)
    _, after = convert(source, tmp_path / "after", **OPTIONS[option])
    assert after == before


def test_a_dropped_column_refuses_no_row(tmp_path: Folder) -> None:
    """What cannot be read in it counts for the split, and for nothing else."""
    data = b"a,1\nb,\xff\nc\nd,\n"
    block = Block("a.csv", 0, len(data), rows=4)
    raw = read_raw(data, block, CsvDialect(), ["id", "x"], ["id"], ["x"])
    assert raw.columns["id"].to_pylist() == ["a", "b", "d"]
    assert raw.columns["x"].to_pylist() == [b"1", b"\xff", None]
    assert [row for row, _, _ in raw.refused] == [2]
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": "a", "x": {"y": 1}}\n{"id": "b", "x": {"y": "z"}}\n'
        '{"id": 3, "x": {"y": 3}}\n{"x": {"y": 4}, "id": "d"}\n'
    )
    file = InputFile("a.jsonl", str(path), path.stat().st_size)
    kind = learned(b'{"id": "a", "x": {"y": 1}}\n')
    reader = JsonLinesReader(kind=kind).giving(["x/y"])
    block = Block("a.jsonl", 0, file.size, rows=4)
    (raw,) = reader.read(file, block, ["id"])
    assert raw.columns["id"].to_pylist() == ["a", "b", "d"]
    assert raw.columns["x/y"].to_pylist() == [1, None, 4]
    assert [row for row, _, _ in raw.refused] == [2]


def test_equal_rows_share_a_stratified_split(tmp_path: Folder) -> None:
    """50 rows that occur 20 times each: no split has a row of another."""
    path = tmp_path / "leak.csv"
    lines = [f"u{i % 50},{i % 50}\n" for i in range(1000)]
    path.write_text("id,x\n" + "".join(lines))
    _, found = convert(
        path, tmp_path / "out", splits="train=0.8,test=0.2", stratify_column="id"
    )
    assert len(found) == 50
    assert set(found.values()) == {"train", "test"}


def notes(manifest: Manifest) -> list[str]:
    return [note for note in manifest.run["notes"] if "share" in note]


def test_a_split_off_its_share_is_noted(tmp_path: Folder) -> None:
    """The note names the splits."""
    path = tmp_path / "a.csv"
    lines = ["a,1\n", *(f"u{i},{i}\n" for i in range(500)), *["a,1\n"] * 499]
    path.write_text("id,x\n" + "".join(lines))
    manifest, found = convert(path, tmp_path / "out", splits="one=0.5,two=0.5")
    (note,) = notes(manifest)
    assert f"{found['a']} has 7" in note
    assert "of 1,000 records, and its share is 50%" in note
    path.write_text("id,x\n" + "".join(lines[1:101]))
    manifest, _ = convert(path, tmp_path / "out", splits="one=0.99,two=0.01,no=0.00001")
    (note,) = notes(manifest)
    assert "no has 0 of 100 records" in note
    assert "meet the shares only roughly; with a --key-column" in note
    # Nobody is told to do what they have done.
    shares = "one=0.99,two=0.01,no=0.00001"
    manifest, _ = convert(path, tmp_path / "out", splits=shares, key_column="id")
    (note,) = notes(manifest)
    assert "no has 0 of 100 records" in note
    assert "--key-column" not in note
    path.write_text("id,x\n" + "".join(lines[1:501]))
    manifest, _ = convert(path, tmp_path / "out", splits="one=0.5,two=0.5")
    assert not notes(manifest)


def test_the_manifest_says_what_identifies_rows(
    source: Folder, tmp_path: Folder
) -> None:
    """Their content, by its columns; nothing where a key or a group decides."""
    manifest, _ = convert(source, tmp_path / "out", drop=["x"])
    assert manifest.settings["rows_known_by"] == {"content": table([0]).column_names}
    for settings in (
        {"splits": None},
        {"key_column": "id"},
        {"group_column": "animal"},
        {"splits": None, "split_column": "animal"},
    ):
        manifest, _ = convert(source, tmp_path / "out", **settings)
        assert "rows_known_by" not in manifest.settings


def test_a_lock_of_places_is_refused_by_name(source: Folder, tmp_path: Folder) -> None:
    """Its rows cannot be found; a lock of contents holds in any order of the rows."""
    lock = tmp_path / "rows.lock"
    _, before = convert(source, tmp_path / "out", split_lock=str(lock))
    csv_of(_shuffled(table(range(ROWS + 100))), source)
    _, after = convert(
        source, tmp_path / "out", split_lock=str(lock), splits="train=0.1,test=0.9"
    )
    assert {key: after[key] for key in before} == before
    lock.unlink()
    by_column: dict[str, Any] = {"splits": None, "split_column": "animal"}
    convert(source, tmp_path / "out", split_lock=str(lock), **by_column)
    with pytest.raises(
        SpecError, match=r"rows\.lock.*by their content.*by their place"
    ):
        convert(source, tmp_path / "out", split_lock=str(lock))


def test_batches_without_contents_are_refused() -> None:
    """Rows of a step that leaves them out would be known by something else."""
    rule = SplitRule(SplitSource.SHARES, ("a", "b"), ("1", "1"), by_content=True)
    batch = batch_of(range(3))
    contents = np.arange(3, dtype=np.uint64)
    known = dataclasses.replace(batch, contents=contents)
    assert len(split_rows(known, rule, SplitTables()).index) == 3
    plain = dataclasses.replace(rule, by_content=False)
    short = dataclasses.replace(batch, contents=contents[1:])
    for wrong, given in ((batch, rule), (short, rule), (known, plain)):
        with pytest.raises(EncodingError, match="hash of its content"):
            split_rows(wrong, given, SplitTables())
        stratified = dataclasses.replace(
            given, source=SplitSource.STRATIFIED, stratify_by="label"
        )
        with pytest.raises(EncodingError, match="hash of its content"):
            hash_classes(wrong, stratified, None)


GOLDEN_UNITS = [0x85110B968BEA8070, 0xB9514BA35B750117, 0x02824831CC44D275]


def test_a_content_gives_a_hash_for_each_purpose() -> None:
    """Literal hashes of units: the splits and the locks of contents hang on them."""
    contents = np.array([0, 1, 2**64 - 1], np.uint64)
    batch = dataclasses.replace(batch_of(range(3)), contents=contents)
    for purpose, seed in ((SPLIT, 0), (SPLIT, 7), (LOCK, 0)):
        salt = f"content\0{purpose}\0{seed}\0".encode()
        digest = hashlib.blake2b(salt, digest_size=8).digest()
        base = int.from_bytes(digest, "little")
        wanted = [mixed((base + content) & MASK) for content in contents.tolist()]
        assert unit_hashes(batch, purpose=purpose, seed=seed).tolist() == wanted
    assert unit_hashes(batch, purpose=SPLIT).tolist() == GOLDEN_UNITS
    ordered = order_hashes(batch, seed=0).tolist()
    assert ordered == order_hashes(batch_of(range(3)), seed=0).tolist()
