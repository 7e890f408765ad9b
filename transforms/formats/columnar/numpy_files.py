"""NumPy arrays as a table format: .npy and .npz files, one row per first index.

    .npz   a zip of .npy members of equal first dimension: columns by their names
    .npy   one array: the column "value", or a column for each field of its dtype

| stored                        | read as                                          |
| ----------------------------- | ------------------------------------------------ |
| .npy, members not compressed  | blocks of rows, each of which is read by itself  |
| compressed members            | one block, unpacked once, piece after piece      |

An array of more dimensions is a column of lists of fixed size, one inside the other.
Memory is that of a block or a piece, except for a compressed member in Fortran order,
which is unpacked whole. Pickles are never loaded: `object` arrays are an error. Files
are read, not mapped: a mapped file that is cut off meanwhile ends the process.

Source: `numpy/lib/_format_impl.py` of NumPy 2 for the header, APPNOTE.TXT of PKWARE
for the zip's local header.
"""

import collections
import contextlib
import dataclasses
import io
import lzma
import os
import shlex
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, BinaryIO, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib import format as npy

from transforms.core.model import Block
from transforms.errors import InputError
from transforms.formats.columnar.arrow_batches import (
    PIECE_BYTES,
    PLACES,
    ColumnarFile,
    ColumnarReader,
    SampledRows,
    piece_of,
    raw_rows,
    readable,
)
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, SourceFile

# Arrays that a message names.
_NAMED = 8
_STEP = 1 << 20
# Of a zip's local header: two bytes each for the lengths of name and extra field.
_LOCAL_BYTES = 30
_LOCAL_LENGTHS = struct.Struct("<HH")
_DATES = [(unit, 1) for unit in ("D", "s", "ms", "us", "ns")]
_TEXTS = {"S": pa.binary(), "U": pa.string()}

# What zipfile, its codecs and the header's parser raise of a damaged file; the last one
# also of a member that is encrypted, packed in another way, or nested too deep.
FAULTS = (
    *(zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error),
    *(tokenize.TokenError, EOFError, OverflowError, SyntaxError, SystemError),
    *(TypeError, ValueError, RuntimeError),
)


# Of an array: its shape, whether it is in Fortran order, its type.
Header = tuple[tuple[int, ...], bool, np.dtype[Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class NumpyReader(ColumnarReader):
    """NumPy files of the same arrays.

    Attributes:
      columns: of an .npz, read these arrays only; empty for all.
    """

    title: ClassVar[str] = "NumPy arrays"
    # Rows are views of what is read: small files add up.
    least_sample_bytes: ClassVar[int] = 1 << 12

    columns: tuple[str, ...] = ()

    @contextlib.contextmanager
    def open(
        self, file: SourceFile, columns: Sequence[str] | None = None
    ) -> Iterator[ColumnarFile]:
        """Opens a file; of an .npz the arrays that columns come from."""
        with readable(file.origin, self.title, FAULTS), file.open() as stream:
            if stream.read(4) == b"PK\x03\x04":
                arrays = _members(stream, file.origin, self.columns, columns)
            elif self.columns:
                raise InputError(
                    f"{file.origin} holds one array; --columns is for the arrays of an "
                    f".npz. Leave it out."
                )
            else:
                size = stream.seek(0, os.SEEK_END)
                stream.seek(0)
                arrays = [StoredArray("value", stream, file.origin, 0, size)]
            yield Arrays(arrays, file.origin)


class Arrays(ColumnarFile):
    """The arrays of one file, of equal first dimension."""

    def __init__(self, arrays: Sequence["StoredArray"], origin: str) -> None:
        lengths = {array.name: array.rows for array in arrays}
        if len(set(lengths.values())) > 1:
            [(most, _)] = collections.Counter(lengths.values()).most_common(1)
            alike = [name for name, rows in lengths.items() if rows == most]
            shown = ", ".join(f"{k!r} {v:,}" for k, v in list(lengths.items())[:_NAMED])
            raise InputError(
                f"{origin}: the arrays of an .npz must have the same first dimension, "
                f"the number of rows; found {shown}. Name those to read together with "
                f"--columns {shlex.quote(','.join(alike[:_NAMED]))}."
            )
        self.stored = arrays
        self._rows = arrays[0].rows if arrays else 0
        self._row_bytes = max(sum(array.row_bytes for array in arrays), 1)
        self.packed = any(array.packed for array in arrays)
        self.features = {}
        none = self.columns([array.none() for array in arrays])
        self.types = {name: column.type for name, column in none.items()}

    def look(self, budget: int, places: int) -> SampledRows:
        """Returns rows spread evenly; of compressed arrays the first."""
        rows = max(1, budget // self._row_bytes)
        spread = [(0, min(rows, self._rows))]
        if self._rows > rows and not self.packed:
            count = min(PLACES, rows)
            spread = [(i * self._rows // count, rows // count) for i in range(count)]
        return SampledRows(
            [self.columns(self.take(*span)) for span in spread], self._rows
        )

    def parts(
        self, file: InputFile, block_bytes: int, limit_rows: int | None
    ) -> Iterator[tuple[int, int]]:
        """Yields the rows of blocks; a file with a compressed array is one."""
        for array in self.stored:
            if not array.packed:
                array.check_end()
        rows = self._rows if limit_rows is None else min(self._rows, limit_rows)
        step = max(rows, 1) if self.packed else -(-block_bytes // self._row_bytes)
        for first in range(0, rows, step):
            stop = min(first + step, rows)
            size = (file.size - self.begin) * stop // self._rows
            yield stop - first, self.begin + size

    def read(self, block: Block, columns: Sequence[str]) -> Iterator[RawRows]:
        """Yields the rows of a block; of compressed arrays in pieces of 16 MiB."""
        step = max(1, PIECE_BYTES // self._row_bytes)
        stop = min(block.first_row + block.rows, self._rows)
        for first in range(block.first_row, stop, step):
            rows = min(step, stop - first)
            piece = piece_of(block, first, rows)
            yield self.raw(piece, columns)
        if stop == self._rows:
            for array in self.stored:
                if array.packed:
                    array.check_end()

    def raw(self, piece: Block, columns: Sequence[str]) -> RawRows:
        """Returns the rows of a piece."""
        rows = self.columns(self.take(piece.first_row, piece.rows))
        return raw_rows(piece, rows, columns)

    def take(self, first: int, rows: int) -> list[npt.NDArray[Any]]:
        """Returns rows of all arrays."""
        return [array.read(first, rows) for array in self.stored]

    def columns(self, values: Sequence[npt.NDArray[Any]]) -> dict[str, pa.Array]:
        """Returns rows of all arrays as columns."""
        return {
            name: column
            for array, rows in zip(self.stored, values, strict=True)
            for name, column in array.columns(rows).items()
        }


def _members(
    stream: BinaryIO, origin: str, names: Sequence[str], columns: Sequence[str] | None
) -> list["StoredArray"]:
    """Returns the arrays of an .npz, or of them those whose columns are wanted."""
    archive = zipfile.ZipFile(stream)
    infos: dict[str, zipfile.ZipInfo] = {}
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
    out = []
    for name in chosen:
        info = infos[name]
        # It compares the local header, and the checksum at its end.
        member, size = archive.open(info), info.file_size
        if info.compress_type == zipfile.ZIP_STORED:
            begin = info.header_offset + _LOCAL_BYTES
            stream.seek(begin - _LOCAL_LENGTHS.size)
            begin += sum(_LOCAL_LENGTHS.unpack(stream.read(_LOCAL_LENGTHS.size)))
            out.append(StoredArray(name, stream, origin, begin, size, member=member))
        else:
            out.append(StoredArray(name, member, origin, 0, size, packed=True))
    return out


class StoredArray:
    """One array in a file, whose header is read, and whose values are not.

    Attributes:
      name: of its column.
      rows: its first dimension.
      row_bytes: of one index of it.
      origin: of the file, for messages.
      begin: where its values are in the file.
      packed: whether it can only be read from its beginning.
    """

    def __init__(
        self,
        name: str,
        stream: IO[bytes],
        origin: str,
        start: int,
        size: int | None,
        *,
        header: Callable[[IO[bytes]], Header] | None = None,
        packed: bool = False,
        member: IO[bytes] | None = None,
    ) -> None:
        """Reads the header of an array.

        Args:
          name, origin, packed: see the class.
          stream, start, size: where it is; None for a size that is not known.
          header: reads what comes before the values; None for that of NumPy.
          member: of a zip, its bytes with a checksum at the end; else None.
        """
        self.name = name
        self.origin = origin
        self.packed = packed
        self._stream = stream
        self._member = stream if packed else member
        self._title = "an array" if header else "NumPy arrays"
        if not packed:
            stream.seek(start)
        with readable(origin, self._title, FAULTS):
            shape, self._fortran, self._dtype = (header or _header)(stream)
        self.begin = stream.tell()
        self._check(shape, self.begin - start, size)
        self.rows = int(shape[0])
        self._inner = tuple(map(int, shape[1:]))
        self._each = int(np.prod(self._inner, dtype=np.int64))
        self.row_bytes = self._each * self._dtype.itemsize
        self._whole: npt.NDArray[Any] | None = None
        # In one dimension both orders are the same.
        self._fortran &= sum(n != 1 for n in shape) > 1

    def _check(
        self, shape: tuple[int, ...], header_bytes: int, size: int | None
    ) -> None:
        where = f"{self.origin}: array {self.name!r}"
        if self._dtype.hasobject:
            raise InputError(
                f"{where} is of dtype object, which is stored as a pickle; pickles can "
                f"run code and are never loaded. Save it with a dtype of numbers, "
                f"bools or texts."
            )
        if not shape:
            raise InputError(
                f"{where} must have a first dimension, of rows; it is a single value. "
                f"Leave it out, or name the arrays to read with --columns."
            )
        stated = header_bytes + int(np.prod(shape, dtype=object)) * self._dtype.itemsize
        if size is not None and stated != size:
            raise InputError(
                f"{where} of shape {shape} and dtype {self._dtype} takes {stated:,} "
                f"bytes with its header; found {size:,}. Fetch or write it again."
            )

    def check_end(self) -> None:
        """Reads a member of a zip to its end, where its checksum is compared.

        Raises:
          InputError: a compressed array goes on after its last row.
        """
        with readable(self.origin, self._title, FAULTS):
            if self.packed and self._stream.read(1):
                raise ValueError(f"it goes on after its {self.rows:,} rows")
            while self._member and self._member.read(_STEP):
                pass

    def none(self) -> npt.NDArray[Any]:
        """Returns no rows."""
        return np.zeros((0, *self._inner), self._dtype)

    def columns(self, values: npt.NDArray[Any]) -> dict[str, pa.Array]:
        """Returns rows as Arrow columns."""
        names = values.dtype.names
        if names is None:
            return {self.name: _arrow(values, f"{self.origin}: {self.name!r}")}
        where = f"{self.origin}: field"
        return {n: _arrow(values[n], f"{where} {n!r}") for n in names}

    def read(self, first: int, rows: int) -> npt.NDArray[Any]:
        """Returns rows as an array; of a packed one, those that come next."""
        if self._fortran and self.packed:
            if self._whole is None:
                data = self._take(self.rows * self.row_bytes)
                self._whole = self._values(data, self.rows)
            return self._whole[first : first + rows]
        if self._fortran:
            # A run of each inner index.
            width = self._dtype.itemsize
            places = (index * self.rows + first for index in range(self._each))
            runs = (self._take(rows * width, offset * width) for offset in places)
            return self._values(b"".join(runs), rows)
        offset = None if self.packed else first * self.row_bytes
        return self._values(self._take(rows * self.row_bytes, offset), rows)

    def _values(self, data: bytes, rows: int) -> npt.NDArray[Any]:
        flat = np.frombuffer(data, self._dtype)
        order: Literal["F", "C"] = "F" if self._fortran else "C"
        return flat.reshape((rows, *self._inner), order=order)

    def _take(self, size: int, place: int | None = None) -> bytes:
        """Returns bytes of the values, from a place on or those that come next."""
        if place is not None:
            self._stream.seek(self.begin + place)
        with readable(self.origin, self._title, FAULTS):
            data = self._stream.read(size)
            if len(data) < size:
                raise EOFError("it ends early")
        return data


def _header(stream: IO[bytes]) -> Header:
    """Reads an .npy header: shape, Fortran order, dtype. Values come next.

    Raises:
      ValueError: the magic, the version or the header is not NumPy's.
    """
    version = npy.read_magic(stream)
    if version == (1, 0):
        return npy.read_array_header_1_0(stream)
    if version == (2, 0):
        return npy.read_array_header_2_0(stream)
    if version != (3, 0):
        raise ValueError(f"version {version} of the .npy format is not known")
    # Names in UTF-8 become escapes, which the function for version 2 reads.
    size = int.from_bytes(stream.read(4), "little")
    text = stream.read(size).decode().encode("ascii", "backslashreplace")
    header = io.BytesIO(len(text).to_bytes(4, "little") + text)
    return npy.read_array_header_2_0(header)


def _arrow(values: npt.NDArray[Any], where: str) -> pa.Array:
    """Returns an array as an Arrow column; inner dimensions as lists of fixed size."""
    flat = _flat_column(np.ascontiguousarray(values).reshape(-1), where)
    for size in reversed(values.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _flat_column(values: npt.NDArray[Any], where: str) -> pa.Array:
    """Returns values of one dimension as a column; InputError for other dtypes."""
    dtype = values.dtype
    if dtype.kind in _TEXTS:
        return pa.array(values.tolist(), _TEXTS[dtype.kind])
    is_date = dtype.kind == "M" and np.datetime_data(dtype) in _DATES
    if is_date or (dtype.kind in "iufb" and dtype.itemsize <= 8):
        return pa.array(values.astype(dtype.newbyteorder("="), copy=False))
    raise InputError(
        f"{where} is of dtype {dtype}, which no feature can hold exactly; numbers of "
        f"up to 64 bits, bools, texts, bytes and datetime64 are read. Convert it."
    )
