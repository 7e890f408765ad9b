"""Arrow IPC files, whole and damaged."""

import pathlib

import pyarrow as pa


def write(
    path: pathlib.Path,
    table: pa.Table,
    *,
    stream: bool = False,
    rows: int = 37,
    compression: str | None = None,
) -> None:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    with make(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)


DAMAGE = """
import pathlib, sys
from tests.support.table_reading import read_all
from transforms.errors import SourceError
from transforms.formats.columnar.arrow_ipc import ArrowReader
folder = pathlib.Path(sys.argv[1])
whole = (folder / "whole").read_bytes()
outcomes = [0, 0]
for at in range(0, len(whole) - 8, 8):
    for patch in (b"\\xff" * 8, b"\\x7f\\xff\\xff\\x7f" * 2):
        (folder / "a.arrow").write_bytes(whole[:at] + patch + whole[at + 8 :])
        try:
            read_all(ArrowReader(), folder, ["a.arrow"])
            outcomes[0] += 1
        except SourceError as error:
            assert "a.arrow" in str(error) or "occurs twice" in str(error), error
            outcomes[1] += 1
print(outcomes)
"""


def empty(table: pa.Table) -> pa.RecordBatch:
    """A batch of no rows."""
    columns = [pa.array([], kind) for kind in table.schema.types[1:]]
    children = [pa.array([], pa.int64()), pa.array([], pa.string())]
    union = pa.UnionArray.from_sparse(pa.array([], pa.int8()), children)
    return pa.record_batch([union, *columns], schema=table.schema)
