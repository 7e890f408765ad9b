"""Parquet: pyarrow and pandas reading whole files are the oracles."""

import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.arrow_ipc import write as write_arrow
from tests.support.arrow_tables import expected, mixed
from tests.support.table_reading import listed, read_all, rows_of
from transforms.core.reasons import Reason
from transforms.core.schema import Feature, Kind
from transforms.errors import SourceError
from transforms.formats.columnar import arrow_batches, parquet
from transforms.formats.columnar.arrow_ipc import ArrowReader
from transforms.formats.columnar.parquet import ParquetReader


@pytest.mark.parametrize("block_bytes", [1, 2000, 20_000, 1 << 24])
@pytest.mark.parametrize("group_rows", [1, 37, 1000])
def test_rows_are_those_of_the_whole_file(
    tmp_path: pathlib.Path, block_bytes: int, group_rows: int
) -> None:
    """By blocks of row groups, values and types are those that pyarrow reads."""
    table = mixed(40 if group_rows == 1 else 400)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=group_rows)
    read = read_all(ParquetReader(), tmp_path, ["a.parquet"], block_bytes=block_bytes)
    found = [dict(sorted(row.items())) for row in rows_of(read)]
    assert found == [dict(sorted(row.items())) for row in expected(table)]
    assert read.sample.total_rows == table.num_rows
    groups = -(-table.num_rows // group_rows)
    assert (
        len(read.blocks) == groups if block_bytes == 1 else len(read.blocks) <= groups
    )
    types = {name: column.type for name, column in read.sample.columns.items()}
    assert types["d"] == pa.string()
    assert types["ts"] == pa.timestamp("us", "UTC")
    assert types["u"] == pa.uint64()
    assert pa.types.is_decimal(types["m"])


def test_a_large_row_group_comes_in_pieces(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row group is one block; its pieces stay near the size of a piece."""
    monkeypatch.setattr(arrow_batches, "PIECE_BYTES", 10_000)
    monkeypatch.setattr(parquet, "_STEP_BYTES", 2_000)
    table = pa.table({"i": np.arange(100_000)})
    pq.write_table(table, tmp_path / "a.parquet")
    read = read_all(ParquetReader(), tmp_path, ["a.parquet"])
    assert len(read.blocks) == 1
    assert len(read.pieces) > 50
    assert max(piece.rows for piece in read.pieces) * 8 < 20_000
    assert read.columns["i"] == list(range(100_000))


def test_only_wanted_columns_are_read(tmp_path: pathlib.Path) -> None:
    """Of a struct only the members that are wanted; the rest may be damaged."""
    table = mixed(1000)
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=1000, use_dictionary=False)
    meta = pq.read_metadata(path).row_group(0)
    data = bytearray(path.read_bytes())
    for index in range(meta.num_columns):
        chunk = meta.column(index)
        if chunk.path_in_schema not in ("s.b.c", "i"):
            begin = chunk.data_page_offset
            data[begin : begin + chunk.total_compressed_size] = bytes(
                chunk.total_compressed_size
            )
    (tmp_path / "b.parquet").write_bytes(data)
    files = listed(tmp_path, ["b.parquet"])
    (block,) = ParquetReader().blocks(files[0], block_bytes=1 << 20, limit_rows=None)
    (raw,) = ParquetReader().read(files[0], block, ["i", "s/b/c"])
    assert list(raw.columns) == ["i", "s/b/c"]
    assert raw.columns["i"].to_pylist() == list(range(1000))
    with pytest.raises(SourceError, match=r"b\.parquet cannot be read as Parquet"):
        list(ParquetReader().read(files[0], block, ["f"]))


def test_widths_are_no_drift(tmp_path: pathlib.Path) -> None:
    """int32 and int64, float and double, string and large_string go together."""
    narrow = pa.schema([("i", "int32"), ("f", "float32"), ("t", "utf8"), ("n", "null")])
    wide = [("n", "int64"), ("t", "large_utf8"), ("f", "float64"), ("i", "int64")]
    rows = [
        {"i": 1, "f": 0.5, "t": "x", "n": None},
        {"i": 2**40, "f": 1.5, "t": "y", "n": 3},
    ]
    for name, row, schema in zip("ab", rows, (narrow, pa.schema(wide)), strict=True):
        table = pa.Table.from_pylist([row], schema)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    read = read_all(ParquetReader(), tmp_path, ["a.parquet", "b.parquet"])
    assert rows_of(read) == rows
    assert read.sample.columns["i"].type == pa.int64()
    assert read.sample.columns["i"].to_pylist() == [1, 2**40]


@pytest.mark.parametrize(
    ("other", "match"),
    [
        ({"i": [1]}, r"'t' only in a\.parquet"),
        ({"i": [1], "t": ["x"], "z": [1]}, r"'z' only in b\.parquet"),
        ({"i": ["1"], "t": ["x"]}, r"'i' is int64 in a\.parquet and string in b"),
        ({"i": [1.0], "t": ["x"]}, r"'i' is int64 in a\.parquet and double in b"),
    ],
)
def test_drift_between_files_is_an_error(
    tmp_path: pathlib.Path, other: dict[str, Any], match: str
) -> None:
    """It names both files and the columns: missing, extra, or of another type."""
    pq.write_table(pa.table({"i": [1], "t": ["x"]}), tmp_path / "a.parquet")
    pq.write_table(pa.table(other), tmp_path / "b.parquet")
    with pytest.raises(SourceError, match=match):
        ParquetReader().plan(listed(tmp_path, ["a.parquet", "b.parquet"]))


def test_damage_is_an_error_that_names_the_file(tmp_path: pathlib.Path) -> None:
    """Cut off, overwritten at any tenth of the file, or no Parquet at all."""
    path = tmp_path / "a.parquet"
    pq.write_table(
        pa.table({"t": [f"text {i}" for i in range(5000)], "i": range(5000)}),
        path,
        row_group_size=1000,
        write_page_checksum=True,
    )
    whole = path.read_bytes()
    damaged = [b"", b"PAR1", whole[:-1], whole[: len(whole) // 2], b"id,x\n1,2\n" * 99]
    for tenth in range(1, 10):
        at = len(whole) * tenth // 10
        damaged.append(whole[:at] + bytes(64) + whole[at + 64 :])
    for data in damaged:
        path.write_bytes(data)
        with pytest.raises(SourceError, match=r"a\.parquet"):
            read_all(ParquetReader(), tmp_path, ["a.parquet"])


def test_fault_100_doubled_names_are_an_error(tmp_path: pathlib.Path) -> None:
    """Arrow keeps two columns of one name; here no column is lost unseen."""
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="'a' occurs twice"):
        ParquetReader().plan(listed(tmp_path, ["a.parquet"]))


def test_fault_101_a_file_without_rows_is_read(tmp_path: pathlib.Path) -> None:
    """It has columns and no block; beside others it counts as nothing."""
    pq.write_table(pa.table({"i": pa.array([], pa.int64())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"i": [1, 2]}), tmp_path / "b.parquet")
    read = read_all(ParquetReader(), tmp_path, ["a.parquet", "b.parquet"])
    assert read.columns == {"i": [1, 2]}
    assert [block.origin for block in read.blocks] == ["b.parquet"]


def test_text_that_is_not_utf_8_is_refused_by_row(tmp_path: pathlib.Path) -> None:
    """Parquet checks no text; a row that holds none is a reject, not a crash."""
    good = pa.array([b"a", b"\xff", b"c", None], pa.binary())
    view = pa.Array.from_buffers(pa.string(), 4, good.buffers())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 2, 3], pa.int32()), view[:3])
    pq.write_table(pa.table({"t": view, "l": lists}), tmp_path / "a.parquet")
    read = read_all(ParquetReader(), tmp_path, ["a.parquet"])
    assert read.numbers == [("a.parquet", 0), ("a.parquet", 3)]
    inputs = listed(tmp_path, ["a.parquet"])
    (block,) = ParquetReader().blocks(inputs[0], block_bytes=1, limit_rows=None)
    (raw,) = ParquetReader().read(inputs[0], block, ["t", "l"])
    assert [(n, reason) for n, reason, _ in raw.refused] == [
        (1, Reason.INVALID_ENCODING),
        (2, Reason.INVALID_ENCODING),
    ]


def test_sample_of_many_row_groups_is_spread_and_bounded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows come from all parts of the files, not more than the sample may hold."""
    monkeypatch.setattr(ParquetReader, "sample_bytes", 1 << 18)
    for number in range(3):
        values = np.random.default_rng(number).permutation(100_000) + number * 100_000
        table = pa.table({"i": np.sort(values)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=1000)
    files = listed(tmp_path, ["0.parquet", "1.parquet", "2.parquet"])
    sample = ParquetReader().plan(files).sample
    values = np.array(sample.columns["i"])
    assert sample.total_rows == 300_000
    assert not sample.complete
    assert sample.rows == len(values) < 60_000
    assert len({value // 10_000 for value in values.tolist()}) == 30


def test_one_large_row_group_is_sampled_beyond_its_beginning(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of one row group gives rows further on than its first ones."""
    monkeypatch.setattr(ParquetReader, "sample_bytes", 1 << 17)
    monkeypatch.setattr(parquet, "_MANY_ROWS", 1 << 12)
    pq.write_table(pa.table({"i": np.arange(40_000)}), tmp_path / "a.parquet")
    sample = ParquetReader().plan(listed(tmp_path, ["a.parquet"])).sample
    assert sample.rows < 20_000
    assert sample.columns["i"].to_pylist()[-1] > 35_000


def test_a_file_written_again_is_read_by_its_new_footer(tmp_path: pathlib.Path) -> None:
    """A worker keeps the footer of the last file, which another may replace."""
    for rows in (7, 30):
        for name, first in (("a.parquet", 0), ("b.parquet", 100)):
            table = pa.table({"i": range(first, first + rows)})
            pq.write_table(table, tmp_path / name, row_group_size=5)
        for names in (["a.parquet", "b.parquet"], ["b.parquet"]):
            read = read_all(ParquetReader(), tmp_path, names, block_bytes=1)
            starts = [0, 100][-len(names) :]
            expected = [i for start in starts for i in range(start, start + rows)]
            assert read.columns["i"] == expected


def test_small_row_groups_are_sampled_as_one(tmp_path: pathlib.Path) -> None:
    """Their rows come in order, and in as few pieces as those of one group."""
    table = mixed(900)
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    sample = ParquetReader().plan(listed(tmp_path, ["a.parquet"])).sample
    assert sample.complete
    pq.write_table(table, tmp_path / "b.parquet")
    whole = ParquetReader().plan(listed(tmp_path, ["b.parquet"])).sample
    assert sample.columns == whole.columns
    assert {len(column.chunks) for column in sample.columns.values()} == {1}


def hugging_face(table: pa.Table, **features: Any) -> pa.Table:
    """The table with metadata as the library `datasets` writes it."""
    metadata = json.dumps({"info": {"features": features}})
    return table.replace_schema_metadata({"huggingface": metadata})


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_class_names_of_hugging_face_are_labels(
    tmp_path: pathlib.Path, suffix: str
) -> None:
    """Numbers become names, -1 is a missing value, others are refused."""
    animals = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    things = [{"kind": {"names": ["b", "a"], "_type": "ClassLabel"}}]
    number = {"dtype": "int64", "_type": "Value"}
    columns = {
        "n": range(4),
        "label": [1, -1, 2, 0],
        "things": [[{"kind": 0}, {"kind": 1}], None, [], []],
    }
    table = hugging_face(pa.table(columns), n=number, label=animals, things=things)
    path = tmp_path / f"a.{suffix}"
    pq.write_table(table, path) if suffix == "parquet" else write_arrow(path, table)
    reader = ParquetReader() if suffix == "parquet" else ArrowReader()
    read = read_all(reader, tmp_path, [path.name])
    assert rows_of(read) == [
        {"n": 0, "label": "dog", "things/kind": ["b", "a"]},
        {"n": 1, "label": None, "things/kind": None},
        {"n": 3, "label": "cat", "things/kind": []},
    ]
    assert read.planned.features == (
        Feature("label", Kind.LABEL, vocabulary=("cat", "dog")),
        Feature("things/kind", Kind.LABEL, shape=(None,), vocabulary=("b", "a")),
    )
    (file,) = listed(tmp_path, [path.name])
    (raw,) = read.reader.read(file, read.blocks[0], ["label"])
    assert [(n, reason) for n, reason, _ in raw.refused] == [(2, Reason.UNKNOWN_LABEL)]


def test_class_names_that_differ_between_files_are_an_error(
    tmp_path: pathlib.Path,
) -> None:
    """A number would stand for two classes; metadata of another form says nothing."""
    for name, names in (("a", ["x", "y"]), ("b", ["y", "x"]), ("c", ["y", "y"])):
        label = {"names": names, "_type": "ClassLabel"}
        table = hugging_face(pa.table({"label": [0, 1]}), label=label)
        pq.write_table(table, tmp_path / f"{name}.parquet")
    files = listed(tmp_path, ["a.parquet", "b.parquet", "c.parquet"])
    with pytest.raises(SourceError, match=r"'label' in b\.parquet"):
        ParquetReader().plan(files)
    label = {"names": ["x", "y"], "_type": "ClassLabel"}
    lists = hugging_face(pa.table({"label": [[0], [1]]}), label=label)
    pq.write_table(lists, tmp_path / "d.parquet")
    files += listed(tmp_path, ["d.parquet"])
    with pytest.raises(SourceError, match=r"int64 in a\.parquet and list"):
        ParquetReader().plan([files[0], files[3]])
    assert ParquetReader().plan(files[2:3]).features == ()
    read = read_all(ParquetReader(), tmp_path, ["a.parquet", "c.parquet"])
    assert read.columns == {"label": ["x", "y", "x", "y"]}
