"""Files of one table whose columns have types of several widths."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.runs import convert


def test_files_of_other_widths_are_one_table(tmp_path: pathlib.Path) -> None:
    """The note that compares files of different names takes their common type."""
    source = tmp_path / "source"
    source.mkdir()
    for name, kind in (("a", pa.int64()), ("b", pa.int32())):
        table = pa.table({"id": pa.array(range(5), kind)})
        pq.write_table(table, source / f"{name}.parquet")
    assert "10 " in convert(source, tmp_path / "out").out
