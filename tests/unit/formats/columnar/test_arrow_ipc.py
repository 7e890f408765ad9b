"""Arrow IPC: pyarrow reading whole files is the oracle; damage is never a crash."""

import pathlib

import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from tests.support.arrow_ipc import write
from tests.support.arrow_tables import expected, mixed
from tests.support.table_reading import listed, read_all, rows_of
from transforms.errors import SourceError
from transforms.formats.columnar import arrow_batches
from transforms.formats.columnar.arrow_ipc import ArrowReader


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("block_bytes", [1, 20_000, 1 << 24])
def test_rows_are_those_of_the_whole_file(
    tmp_path: pathlib.Path, stream: bool, compression: str | None, block_bytes: int
) -> None:
    """By record batches, or in turn, values are those that pyarrow reads."""
    table = mixed(400)
    write(tmp_path / "a.arrow", table, stream=stream, compression=compression)
    read = read_all(ArrowReader(), tmp_path, ["a.arrow"], block_bytes=block_bytes)
    found = [dict(sorted(row.items())) for row in rows_of(read)]
    assert found == [dict(sorted(row.items())) for row in expected(table)]
    assert read.sample.total_rows == 400
    assert read.sample.complete
    if stream:
        assert len(read.blocks) == 1
    elif block_bytes == 1:
        assert len(read.blocks) == 11


def test_feather_and_views_and_run_ends(tmp_path: pathlib.Path) -> None:
    """Feather 2 is an IPC file; ways of storing values are not their types."""
    table = pa.table(
        {
            "v": pa.array(["x", None, "long enough to lie outside"], pa.string_view()),
            "r": pa.RunEndEncodedArray.from_arrays([2, 3], [7, None]),
            "big": pa.array(["a", "b", None], pa.large_string()),
            "n": pa.array([["a"], None, []], pa.list_(pa.dictionary("int8", "string"))),
        }
    )
    write(tmp_path / "a.arrow", table)
    read = read_all(ArrowReader(), tmp_path, ["a.arrow"])
    assert rows_of(read) == table.to_pylist()
    types = [str(column.type) for column in read.sample.columns.values()]
    assert types == ["string", "int64", "string", "list<item: string>"]
    pyarrow.feather.write_feather(pd.DataFrame({"a": [1, 2]}), tmp_path / "b.feather")
    assert read_all(ArrowReader(), tmp_path, ["b.feather"]).columns == {"a": [1, 2]}


def test_large_batches_come_in_pieces(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece holds about as much as a piece may, in both formats."""
    monkeypatch.setattr(arrow_batches, "PIECE_BYTES", 10_000)
    table = pa.table({"i": range(50_000)})
    for stream in (False, True):
        write(tmp_path / "a.arrow", table, stream=stream, rows=50_000)
        read = read_all(ArrowReader(), tmp_path, ["a.arrow"])
        assert read.columns["i"] == list(range(50_000))
        assert len(read.pieces) > 20


def test_what_is_no_arrow_is_an_error(tmp_path: pathlib.Path) -> None:
    """Empty, cut off, text, and Feather of version 1, which is another format."""
    write(tmp_path / "a.arrow", pa.table({"i": range(1000)}), rows=100)
    whole = (tmp_path / "a.arrow").read_bytes()
    cuts = [b"", whole[:5], whole[:-1], whole[: len(whole) // 2]]
    for data in (*cuts, b"i\n1\n" * 20, b"FEA1" + bytes(100)):
        (tmp_path / "a.arrow").write_bytes(data)
        with pytest.raises(SourceError, match=r"a\.arrow"):
            read_all(ArrowReader(), tmp_path, ["a.arrow"])


@pytest.mark.parametrize("large", [False, True])
def test_list_views_of_any_layout(tmp_path: pathlib.Path, large: bool) -> None:
    """Lists that overlap, go backwards, or hold garbage where they are null."""
    make = pa.LargeListViewArray if large else pa.ListViewArray
    offsets = pa.array([5, 0, 3, 4, 1, 0], pa.int64() if large else pa.int32())
    sizes = pa.array([2, 3, 2, 3, 0, 7], offsets.type)
    missing = pa.array([False, False, False, True, False, False])
    values = pa.array([10, 11, None, 13, 14, 15, 16])
    wanted = [[15, 16], [10, 11, None], [13, 14], None, [], values.to_pylist()]
    numbers = make.from_arrays(offsets, sizes, values, mask=missing)
    texts = make.from_arrays(
        *(offsets, sizes, values.cast(pa.string()).dictionary_encode()), mask=missing
    )
    inner = pa.StructArray.from_arrays([numbers.slice(1, 5)], ["i"])
    table = pa.table(
        {
            "n": numbers.slice(1, 5),
            "t": texts.slice(1, 5),
            "s": inner,
            "deep": pa.ListArray.from_arrays([0, 2, 2, 3, 4, 5], numbers.slice(1, 5)),
        }
    )
    write(tmp_path / "a.arrow", table, rows=2)
    read = read_all(ArrowReader(), tmp_path, ["a.arrow"])
    assert read.columns["n"] == wanted[1:]
    assert read.columns["s/i"] == wanted[1:]
    assert read.columns["t"] == [
        None if row is None else [None if v is None else str(v) for v in row]
        for row in wanted[1:]
    ]
    assert read.columns["deep"] == table["deep"].to_pylist()


def test_intervals_are_named(tmp_path: pathlib.Path) -> None:
    """pyarrow knows the type of months, and has no class for arrays of it."""
    from pyarrow.cffi import ffi

    schema = ffi.new("struct ArrowSchema*")
    release = ffi.callback(
        "void(struct ArrowSchema*)", lambda it: setattr(it, "release", ffi.NULL)
    )
    kind, name = ffi.new("char[]", b"tiM"), ffi.new("char[]", b"")
    schema.format, schema.name, schema.release = kind, name, release
    months = pa.DataType._import_from_c(int(ffi.cast("uintptr_t", schema)))
    columns = pa.schema([("n", pa.int64()), ("m", pa.list_(months))])
    with pa.ipc.new_stream(tmp_path / "a.arrows", columns):
        pass
    with pytest.raises(SourceError, match="column 'm' is list<item: month_interval>"):
        ArrowReader().plan(listed(tmp_path, ["a.arrows"]))
