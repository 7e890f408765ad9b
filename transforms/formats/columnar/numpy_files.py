"""NumPy arrays as a table format: .npy and .npz files, one row per first index.

    .npz   a zip of .npy members of equal first dimension: columns by their names
    .npy   one array: the column "value", or a column for each field of its dtype

| stored                        | read as                                          |
| ----------------------------- | ------------------------------------------------ |
| .npy, members not compressed  | blocks of rows, each of which is read by itself  |
| compressed members            | one block, unpacked once, piece after piece      |

An array of more dimensions is a column of lists of fixed size, one inside the other.
Memory is that of a block or a piece, except for a compressed member in Fortran order,
which is unpacked whole. Pickles are never loaded: `object` arrays are an error.

Source: `numpy/lib/_format_impl.py` of NumPy 2 for the header, APPNOTE.TXT of PKWARE
for the zip's local header.
"""

import collections
import contextlib
import dataclasses
import errno
import lzma
import os
import shlex
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO, ClassVar, Literal

import pyarrow as pa

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    SAMPLE_BYTES,
    joined_sample,
    piece_of,
    raw_rows,
)
from transforms.formats.columnar.arrow_types import CommonColumns
from transforms.formats.columnar.numpy_array import StoredArray
from transforms.formats.table import (
    InputFile,
    Planned,
    RawRows,
    SourceFile,
    TableReader,
)

# Arrays that a message names.
_NAMED = 8
_PLACES = 64
# Of a zip's local header: two bytes each for the lengths of name and extra field.
_LOCAL_BYTES = 30
_LOCAL_LENGTHS = struct.Struct("<HH")


@dataclasses.dataclass(frozen=True, slots=True)
class NumpyReader(TableReader):
    """NumPy files of the same arrays.

    Attributes:
      columns: of an .npz, read these arrays only; empty for all.
      value: the column's name for an .npy file without named fields.
      null_values: see `TableReader`.
    """

    title: ClassVar[str] = "NumPy"
    content: ClassVar[Literal["none", "read", "all"]] = "read"

    columns: tuple[str, ...] = ()
    value: str = "value"
    null_values: tuple[str, ...] = ()

    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Samples rows spread evenly over the files; of compressed ones the first."""
        if not files:
            raise InputError("a sample needs at least one NumPy file; found none")
        common = CommonColumns()
        parts: list[dict[str, pa.Array]] = []
        total = 0
        budget = max(SAMPLE_BYTES // len(files), 1 << 12)
        for file in files:
            with self._opened(file) as arrays:
                types = {
                    name: kind for item in arrays.items for name, kind in item.columns()
                }
                common.add(file.origin, types)
                total += arrays.rows
                for first, rows in arrays.places(budget):
                    parts.append(arrays.read(first, rows))
        sample = joined_sample(common.columns, parts, total_rows=total)
        return Planned(self, sample)

    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields blocks of rows; a file with a compressed array is one block."""
        with self._opened(file) as arrays:
            for item in arrays.items:
                item.check_sum()
            total, each = arrays.rows, arrays.row_bytes
            whole = arrays.packed
        rows = total if limit_rows is None else min(total, limit_rows)
        step = max(rows, 1) if whole else max(1, -(-block_bytes // max(each, 1)))
        for first in range(0, rows, step):
            count = min(step, rows - first)
            low = file.size * first // total
            high = file.size * (first + count) // total
            yield file.block(
                first, first + high - low, rows=count, before=low, first_row=first
            )

    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the rows of a block; of compressed files, in pieces of 16 MiB."""
        with self._opened(file, columns) as arrays:
            step = max(1, PIECE_BYTES // max(arrays.row_bytes, 1))
            stop = block.first_row + block.rows
            if stop > arrays.rows:
                raise InputError(f"{block.origin} has lost rows; run again")
            for first in range(block.first_row, stop, step):
                rows = min(step, stop - first)
                found = arrays.read(first, rows)
                yield raw_rows(piece_of(block, first, rows), found, columns)
            if stop == arrays.rows:
                for item in arrays.items:
                    item.finish()

    @contextlib.contextmanager
    def _opened(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> Iterator["_Arrays"]:
        with file.open() as stream, contextlib.ExitStack() as stack:
            try:
                if stream.read(4) == b"PK\x03\x04":
                    archive = stack.enter_context(zipfile.ZipFile(stream))
                    items = _members(
                        archive, stream, file.origin, self.columns, columns
                    )
                elif self.columns:
                    raise InputError(
                        f"{file.origin} holds one array; --columns is for the arrays "
                        f"of an .npz. Leave it out."
                    )
                else:
                    size = os.fstat(stream.fileno()).st_size
                    items = [StoredArray(self.value, stream, file.origin, 0, size)]
                for item in items:
                    stack.callback(item.close)
                yield _Arrays(items, file.origin)
            except (
                zipfile.BadZipFile,
                lzma.LZMAError,
                zlib.error,
                struct.error,
                TypeError,
                MemoryError,
                RecursionError,
                EOFError,
                OverflowError,
                NotImplementedError,
                RuntimeError,
                ValueError,
                SyntaxError,
                UnicodeDecodeError,
            ) as error:
                # RuntimeError: a member that is encrypted.
                raise _damaged(file.origin, error) from error
            except OSError as error:
                # Of bzip2, without a number; or a place before the file.
                if error.errno not in (None, errno.EINVAL):
                    raise
                raise _damaged(file.origin, error) from error


def _damaged(origin: str, error: Exception) -> InputError:
    return InputError(
        f"{origin} cannot be read as NumPy arrays: {error}. Write it again with "
        f"numpy.save or numpy.savez."
    )


class _Arrays:
    """The arrays of one file, of equal first dimension."""

    def __init__(self, items: Sequence[StoredArray], origin: str) -> None:
        lengths = {item.name: item.rows for item in items}
        if len(set(lengths.values())) > 1:
            [(most, _)] = collections.Counter(lengths.values()).most_common(1)
            alike = [name for name, rows in lengths.items() if rows == most]
            shown = ", ".join(f"{k!r} {v:,}" for k, v in list(lengths.items())[:_NAMED])
            raise InputError(
                f"{origin}: the arrays of an .npz must have the same first dimension, "
                f"the number of rows; found {shown}. Name those to read together with "
                f"--columns {shlex.quote(','.join(alike[:_NAMED]))}."
            )
        self.items = items
        self.rows = items[0].rows if items else 0
        self.row_bytes = sum(item.row_bytes for item in items)
        self.packed = any(item.packed for item in items)

    def read(self, first: int, rows: int) -> dict[str, pa.Array]:
        """Returns rows as columns."""
        return {
            name: array
            for item in self.items
            for name, array in item.arrow(item.read(first, rows))
        }

    def places(self, budget: int) -> list[tuple[int, int]]:
        """Returns rows to sample: (first, count), about `budget` bytes in all."""
        if not self.rows:
            return [(0, 0)]
        rows = max(1, budget // max(self.row_bytes, 1))
        if self.rows <= rows or self.packed:
            return [(0, min(rows, self.rows))]
        count = min(_PLACES, rows)
        return [(i * self.rows // count, rows // count) for i in range(count)]


def _members(
    archive: zipfile.ZipFile,
    stream: BinaryIO,
    origin: str,
    names: Sequence[str],
    columns: Sequence[str] | None,
) -> list[StoredArray]:
    """Returns the arrays of an .npz, or of them those whose columns are wanted."""
    infos = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name in infos:
            raise InputError(f"{origin}: the array {name!r} occurs twice in the zip")
        infos[name] = info
    if absent := [name for name in names if name not in infos]:
        raise InputError(f"{origin} has no array {absent[0]!r}; it has {list(infos)}")
    chosen = list(names or infos)
    if columns is not None and set(columns) & set(infos):
        # At least one, for the number of rows.
        chosen = [name for name in chosen if name in columns] or chosen[:1]
    size_of_all = os.fstat(stream.fileno()).st_size
    out = []
    for name in chosen:
        info = infos[name]
        if not 0 <= info.header_offset < size_of_all:
            raise zipfile.BadZipFile(f"{name!r} would begin outside the file")
        if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1:
            begin = info.header_offset
            stream.seek(begin + _LOCAL_BYTES - _LOCAL_LENGTHS.size)
            begin += _LOCAL_BYTES + sum(_LOCAL_LENGTHS.unpack(stream.read(4)))
            size, crc = info.file_size, info.CRC
            out.append(StoredArray(name, stream, origin, begin, size, crc=crc))
        else:
            member = archive.open(info)
            out.append(
                StoredArray(name, member, origin, 0, info.file_size, packed=True)
            )
    return out
