"""Timestamps of 96 bits in Parquet: the instant that is stored, or a reject."""

import datetime as dt
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.outputs import examples, manifest, rejects, rows
from tests.support.runs import convert
from transforms.formats.columnar import parquet
from transforms.formats.columnar.parquet import ParquetReader
from transforms.publishing import target

Folder = pathlib.Path

# Spark's and Impala's value for never, and values around the limits of nanoseconds.
NEVER = dt.datetime(9999, 12, 31)
LAST_NANOSECOND = dt.datetime(2262, 4, 11, 23, 47, 16, 854_775)
# The last whole second that microseconds can hold.
LAST_MICROSECOND = (2**63 - 1) // 10**6


def int96_file(
    path: Folder,
    values: list[Any],
    unit: str = "us",
    *,
    text: list[bytes] | None = None,
    **options: Any,
) -> None:
    """Writes a column `t` of timestamps of 96 bits, as Spark does."""
    columns = {"n": list(range(len(values))), "t": pa.array(values, pa.timestamp(unit))}
    table = pa.table(columns)
    if text is not None:
        # Not checked to be UTF-8.
        buffers = pa.array(text, pa.binary()).buffers()
        table = table.append_column(
            "x", pa.StringArray.from_buffers(len(text), *buffers[1:])
        )
    options |= {"use_deprecated_int96_timestamps": True, "store_schema": False}
    pq.write_table(table, path, **options)
    schema = pq.ParquetFile(path).schema
    assert schema.column(1).physical_type == "INT96"


def typed(path: Folder, out: Folder, *flags: str) -> tuple[str, list[Any], list[Any]]:
    """Converts a file; returns unit and values of `t`, and the rejects by row."""
    convert(path, out, "--no-shuffle", *flags)
    (feature,) = [
        facts.feature
        for facts in target.read_manifest(str(out)).features
        if facts.feature.name == "t"
    ]
    found = rejects(out) if (out / "rejects.jsonl").exists() else []
    return feature.unit, [row.get("t") for row in rows(out)], found


def test_int96_within_nanoseconds_keeps_them(tmp_path: Folder) -> None:
    """What int64 holds in nanoseconds is stored in them, to the last digit."""
    instants = [0, 1_714_570_200_123_456_789, None, -1, 2**63 - 1, -(2**63) + 1]
    int96_file(tmp_path / "t.parquet", instants, "ns")
    found = typed(tmp_path / "t.parquet", tmp_path / "out")
    assert found == ("ns", instants, [])


def test_int96_beyond_nanoseconds_is_read_in_microseconds(tmp_path: Folder) -> None:
    """9999-12-31 is that day, not one of 1816, and so is every other one."""
    instants = [NEVER, dt.datetime(1, 1, 1), None, LAST_NANOSECOND]
    instants.append(LAST_NANOSECOND + dt.timedelta(microseconds=1))
    int96_file(tmp_path / "t.parquet", instants, row_group_size=2)
    epoch = dt.datetime(1970, 1, 1)
    step = dt.timedelta(microseconds=1)
    wanted = [None if each is None else (each - epoch) // step for each in instants]
    found = typed(tmp_path / "t.parquet", tmp_path / "out")
    assert found == ("us", wanted, [])


def test_digits_beyond_microseconds_are_cut_off_and_counted(tmp_path: Folder) -> None:
    """Beside 9999-12-31 nanoseconds are lost: a note counts the rows, and shows one."""
    folder = tmp_path / "s"
    folder.mkdir()
    int96_file(folder / "a.parquet", [NEVER, None])
    instants = [0, 1_000, 1_001, None, -1, 2**63 - 1]
    int96_file(folder / "b.parquet", instants, "ns", row_group_size=2)
    unit, values, found = typed(folder, tmp_path / "out")
    assert (unit, values[2:]) == ("us", [0, 1, 1, None, -1, (2**63 - 1) // 1_000])
    assert found == []
    notes = manifest(tmp_path / "out")["run"]["notes"]
    (note,) = [note for note in notes if "'t'" in note]
    assert note.startswith("3 values ")
    assert note.endswith(": row 3 of b.parquet")


def test_a_row_with_a_bad_text_too_is_rejected_once(tmp_path: Folder) -> None:
    """After the year 294247 an instant is one, by its value; a bad text comes first."""
    instants = [0, LAST_MICROSECOND, *[LAST_MICROSECOND + 1] * 2, None]
    texts = [b"a", b"b", b"\xff", b"c", b"d"]
    int96_file(tmp_path / "t.parquet", instants, "s", text=texts)
    flags = ("--max-reject-rate", "0.5")
    unit, values, found = typed(tmp_path / "t.parquet", tmp_path / "out", *flags)
    assert (unit, values) == ("us", [0, LAST_MICROSECOND * 10**6, None])
    assert [(r["row"], r["reason"]) for r in found] == [
        (3, "invalid_encoding"),
        (4, "out_of_range"),
    ]
    assert "column 't' holds 294247-01-10T04:00:55" in found[1]["message"]


def test_int96_beyond_the_sample_is_rejected(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A unit that the sample has settled does not wrap later; --infer full sees all."""
    monkeypatch.setattr(ParquetReader, "sample_bytes", 64)
    monkeypatch.setattr(parquet, "PLACES", 1)
    days = [dt.datetime(2024, 1, 1), None] * 50 + [NEVER]
    int96_file(tmp_path / "t.parquet", days, row_group_size=10)
    unit, values, found = typed(tmp_path / "t.parquet", tmp_path / "out")
    assert (unit, len(values)) == ("ns", 100)
    assert [(r["row"], r["reason"]) for r in found] == [(101, "out_of_range")]
    assert "9999-12-31T00:00:00" in found[0]["message"]
    flags = ("--infer", "full")
    unit, values, found = typed(tmp_path / "t.parquet", tmp_path / "full", *flags)
    assert (unit, len(values), found) == ("us", 101, [])


def test_int96_in_lists_and_structs(tmp_path: Folder) -> None:
    """Nested instants are looked at one by one; a row falls by any of them."""
    stamp = pa.timestamp("us")
    table = pa.table(
        {
            "l": pa.array([[0, 1], [], None, [2]], pa.list_(stamp)),
            "s": pa.array([{"t": 0}, {"t": 1}, None, {"t": None}]),
        }
    )
    struct = pa.struct([("t", stamp)])
    table = table.set_column(1, "s", table["s"].cast(pa.struct([("t", stamp)])))
    late = pa.table(
        {
            "l": pa.array([[0, 10**18]], pa.list_(stamp)),
            "s": pa.array([{"t": 0}], struct),
        }
    )
    folder = tmp_path / "s"
    folder.mkdir()
    options = {"use_deprecated_int96_timestamps": True}
    pq.write_table(table, folder / "a.parquet", **options)
    pq.write_table(late, folder / "b.parquet", **options)
    convert(folder, tmp_path / "out", "--no-shuffle")
    found = examples(*sorted((tmp_path / "out").glob("*.tfrecord*")))
    lists = [row.get("l", []) for row in found]
    assert [list(each) for each in lists] == [[0, 1], [], [], [2], [0, 10**18]]
    assert list(found[1]["s/t"]) == [1]
