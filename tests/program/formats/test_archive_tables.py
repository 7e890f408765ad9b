"""Tables in archives: alone, many small ones together, bad ones."""

import collections
import gzip
import io
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.archive_sources import (
    ARCHIVES,
    PETS,
    csv_of,
    plan,
    readings,
    rows_of,
    skipped,
    write,
)
from tests.support.outputs import flip
from transforms.errors import DamageError, SourceError, SpecError
from transforms.formats.archive import reader as archive_reader

Folder = pathlib.Path


@pytest.mark.parametrize("count", [3, 20])
def test_tables_that_are_all_empty(count: int, tmp_path: Folder) -> None:
    """Few are the sample; of many it is a part."""
    path = write(tmp_path / "a.zip", [(f"{i}.csv", b"") for i in range(count)])
    with pytest.raises(SourceError, match=r"a\.zip/0\.csv: no header"):
        plan(path, tmp_path)


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_a_limit_counts_what_is_skipped(name: str, tmp_path: Folder) -> None:
    """Whether or not the rows that are read are of the first name."""
    members = [(f"{i:02}.csv", csv_of(i, 1)) for i in reversed(range(30))]
    planned = plan(write(tmp_path / name, [*members, ("x", b"")]), tmp_path, limit=3)
    assert [row["id"] for row in rows_of(planned, tmp_path)] == [29, 28, 27]
    assert skipped(planned, tmp_path) == {"other_suffix": 1}


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("packed", [False, True])
def test_csv_in_archives(name: str, packed: bool, tmp_path: Folder) -> None:
    """Members are tables of one schema; a row's origin is its member."""
    suffix = ".csv.gz" if packed else ".csv"
    members = []
    for i in range(3):
        data = csv_of(100 * i, 100)
        data = gzip.compress(data) if packed else data
        members.append((f"data/part{i}{suffix}", data))
    members.append(("README", b"about"))
    planned = plan(write(tmp_path / name, members), tmp_path)
    rows = rows_of(planned, tmp_path)
    assert [(r["id"], r["name"], r["weight"]) for r in rows] == [
        (i, f'a "quoted"\nname, {i}', i / 4) for i in range(300)
    ]
    assert [(r["__origin"], r["__row"]) for r in rows] == [
        (f"{name}/data/part{i // 100}{suffix}", i % 100) for i in range(300)
    ]
    assert skipped(planned, tmp_path) == {"other_suffix": 1}
    limited = plan(tmp_path / name, tmp_path, limit=150)
    assert [r["id"] for r in rows_of(limited, tmp_path)] == list(range(150))


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_other_tables_in_archives(kind: str, name: str, tmp_path: Folder) -> None:
    """A format that has to seek is read from memory; a folder's name is passed over."""
    members = []
    for numbers in (range(50), range(50, 100)):
        out = io.BytesIO("".join(f'{{"id": {n}}}\n' for n in numbers).encode())
        if kind == "parquet":
            out = io.BytesIO()
            pq.write_table(pa.table({"id": numbers}), out, row_group_size=20)
        members.append((f"d/{numbers[0]}.{kind}", out.getvalue()))
    rows = rows_of(plan(write(tmp_path / name, members), tmp_path), tmp_path)
    assert [row["id"] for row in rows] == [*range(100)]


def _messy_tables(count: int) -> list[tuple[str, bytes]]:
    """Small CSV files in folders, some empty, with other line ends or bad rows."""
    made = []
    for number in range(count):
        rows = [f"{number * 10 + row},{'x' if row == 3 else row}" for row in range(4)]
        end = "\r\n" if number % 5 == 4 else "\n"
        text = end.join(["id,height", *rows[: number % 6]])
        if number % 7 == 3:
            text += f"{end}1,2,3"
        mark = b"\xef\xbb\xbf" if number % 4 == 1 else b""
        name = f"{'ab'[number % 2]}/{number * 7919 % 1000:03}.csv"
        made.append((name, mark + text.encode() + end.encode()))
    return [*made, ("readme.txt", b"")]


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_small_tables_together_are_what_each_is(
    name: str, order: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, their order, positions and rejects are those of members read one by one."""
    members = _messy_tables(60)
    source = write(tmp_path / name, sorted(members) if order == "sorted" else members)
    monkeypatch.setattr(archive_reader, "_RUN_MEMBERS", 25)
    monkeypatch.setattr(archive_reader, "_HELD_MEMBERS", 7)

    def read() -> tuple[int, list[str], list[str], Any]:
        planned = plan(source, tmp_path, features={"height": {"kind": "int64"}})
        rows, bad = [], []
        skipped: collections.Counter[str] = collections.Counter()
        blocks = set()
        for block, reading in readings(planned, tmp_path):
            blocks.add(block)
            batch = reading.batch
            positions, values = batch.positions, batch.rows.to_pylist()
            if positions is None:
                positions = batch.block.positions_of(batch.numbers)
            places = zip(batch.numbers.tolist(), positions.tolist(), strict=True)
            for at, (number, position) in enumerate(places):
                origin = batch.block.origin
                if batch.origins is not None:
                    origin = batch.origins[at].as_py()
                rows.append((origin, number, position, *values[at].values()))
            bad += [
                (r.source, r.row, r.line, r.reason, r.message, r.raw)
                for r in reading.rejections
            ]
            skipped.update(reading.skipped)
        return len(blocks), sorted(map(repr, rows)), sorted(map(repr, bad)), skipped

    count, *together = read()
    monkeypatch.setattr(archive_reader, "_FEWEST_MEMBERS", 1000)
    alone, *apart = read()
    assert together == apart
    assert len(together[1]) > 10
    assert together[2] == {"other_suffix": 1}
    if name != "a.tar.gz":
        assert count == 3 < alone


def test_csv_settings_reach_the_members(tmp_path: Folder) -> None:
    """Dialects are for tables in archives, and refused for images."""
    path = write(tmp_path / "a.zip", [("a.csv", b"id;x\n1;a\n2;b\n")])
    rows = rows_of(plan(path, tmp_path, delimiter=";"), tmp_path)
    assert [(r["id"], r["x"]) for r in rows] == [(1, "a"), (2, "b")]
    with pytest.raises(SpecError, match="delimiter is not for images"):
        plan(write(tmp_path / "b.zip", PETS), tmp_path, delimiter=";")


def test_bad_rows_of_tables_in_archives(tmp_path: Folder) -> None:
    """A reject names the member, the row and the line in it."""
    text = "id,x\n" + "".join(f"{i},a\n" for i in range(500)) + "oops,b\n1,2,3\n"
    path = write(tmp_path / "a.tar.gz", [("t.csv", text.encode())])
    planned = plan(path, tmp_path)
    found = [r for _, item in readings(planned, tmp_path) for r in item.rejections]
    assert [(r.source, r.row, r.line, str(r.reason)) for r in found] == [
        ("a.tar.gz/t.csv", 501, 502, "not_an_integer"),
        ("a.tar.gz/t.csv", 502, 503, "field_count"),
    ]


def test_fault_118_damaged_tables_are_errors(tmp_path: Folder) -> None:
    """A table that is damaged or of another kind: no rows are lost."""
    path = write(
        tmp_path / "a.zip", [("a.csv", csv_of(0, 100)), ("b.csv", csv_of(0, 9))]
    )
    flip(path, 60)
    with pytest.raises(DamageError, match=r"a\.zip: member 'a\.csv'"):
        plan(path, tmp_path)
    write(path, [("a.csv", csv_of(0, 3)), ("b.parquet", b"")])
    with pytest.raises(SourceError, match="of one format; found csv, parquet"):
        plan(path, tmp_path)
    write(path, [("a.csv", csv_of(0, 3)), ("../b.csv", csv_of(0, 3))])
    with pytest.raises(SourceError, match="must be relative paths"):
        plan(path, tmp_path)
