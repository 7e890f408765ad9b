"""One array in an .npy file or a zip: header, rows, Arrow columns.

Source: `numpy/lib/_format_impl.py` of NumPy 2.
"""

import ast
import re
import struct
import sys
import zipfile
import zlib
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib import format as npy

from transforms.errors import InputError

_STEP_BYTES = 1 << 20

_UNITS = ("s", "ms", "us", "ns")

# Of each version of the .npy format: the header's length, its encoding.
_VERSIONS = {
    (1, 0): (struct.Struct("<H"), "latin-1"),
    (2, 0): (struct.Struct("<I"), "latin-1"),
    (3, 0): (struct.Struct("<I"), "utf-8"),
}

_HEADER_KEYS = {"descr", "fortran_order", "shape"}

_MAX_HEADER_BYTES = 1 << 20

# A text, which stays as it is, or the digits of a long integer.
_LONG = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\b(\d+)L\b""")


class StoredArray:
    """One array in a file, whose header is read, and whose values are not.

    Attributes:
      name: of its column.
      rows: its first dimension.
      row_bytes: of one index of it.
      packed: whether it can only be read from its beginning.
      columns: its columns and their types.
    """

    def __init__(
        self,
        name: str,
        stream: IO[bytes],
        origin: str,
        start: int,
        size: int,
        *,
        packed: bool = False,
        crc: int | None = None,
    ) -> None:
        self.name = name
        self.packed = packed
        self._origin = origin
        self._stream = stream
        self._start = start
        self._size = size
        self._crc = crc
        if not packed:
            stream.seek(start)
        shape, self._fortran, self._dtype = _header(stream)
        self._begin = stream.tell() if packed else stream.tell() - start
        self._check(shape, size)
        self.rows = int(shape[0])
        self._inner = tuple(map(int, shape[1:]))
        self._each = int(np.prod(self._inner, dtype=np.int64))
        self.row_bytes = self._each * self._dtype.itemsize
        self._next = 0
        self._whole: npt.NDArray[Any] | None = None
        # In one dimension both orders are the same.
        self._fortran &= sum(n != 1 for n in shape) > 1

    def _check(self, shape: tuple[int, ...], size: int) -> None:
        where = f"{self._origin}: array {self.name!r}"
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
        stated = self._begin + int(np.prod(shape, dtype=object)) * self._dtype.itemsize
        if stated != size:
            raise InputError(
                f"{where} of shape {shape} and dtype {self._dtype} takes {stated:,} "
                f"bytes with its header; found {size:,}. Fetch or write it again."
            )

    def columns(self) -> list[tuple[str, pa.DataType]]:
        """Returns the names and types of its columns."""
        empty = np.zeros((0, *self._inner), self._dtype)
        return [(name, array.type) for name, array in self.arrow(empty)]

    def arrow(self, values: npt.NDArray[Any]) -> list[tuple[str, pa.Array]]:
        """Returns values as Arrow columns."""
        if values.dtype.names is None:
            return [(self.name, _arrow(values, f"{self._origin}: {self.name!r}"))]
        out = []
        for field in values.dtype.names:
            where = f"{self._origin}: field {field!r}"
            out.append((field, _arrow(values[field], where)))
        return out

    def read(self, first: int, rows: int) -> npt.NDArray[Any]:
        """Returns rows as an array; of a packed one, those that come next."""
        if self._fortran and self.packed:
            return self._whole_array()[first : first + rows]
        if self._fortran:
            return self._strided(first, rows)
        if self.packed:
            # A compressed member has no seek: read and drop what is before.
            self._skip((first - self._next) * self.row_bytes)
            self._next = first + rows
        else:
            self._stream.seek(self._start + self._begin + first * self.row_bytes)
        data = self._take(rows * self.row_bytes)
        return np.frombuffer(data, self._dtype).reshape(rows, *self._inner)

    def _strided(self, first: int, rows: int) -> npt.NDArray[Any]:
        """Returns rows of an array in Fortran order: a run of each inner index."""
        width = self._dtype.itemsize
        parts = []
        for index in range(self._each):
            at = (index * self.rows + first) * width
            self._stream.seek(self._start + self._begin + at)
            parts.append(self._take(rows * width))
        flat = np.frombuffer(b"".join(parts), self._dtype)
        return flat.reshape((rows, *self._inner), order="F")

    def _whole_array(self) -> npt.NDArray[Any]:
        if self._whole is None:
            data = self._take(self.rows * self.row_bytes)
            flat = np.frombuffer(data, self._dtype)
            self._whole = flat.reshape((self.rows, *self._inner), order="F")
            self._next = self.rows
        return self._whole

    def _take(self, size: int) -> bytes:
        parts = []
        while size and (part := self._stream.read(size)):
            parts.append(part)
            size -= len(part)
        if size:
            raise EOFError(f"array {self.name!r} ends early")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _skip(self, size: int) -> None:
        while size > 0:
            size -= len(self._take(min(size, _STEP_BYTES)))

    def check_sum(self) -> None:
        """Compares a member that is not compressed with its checksum in the zip."""
        if self._crc is None or self.packed:
            return
        self._stream.seek(self._start)
        crc, left = 0, self._size
        while left:
            part = self._take(min(left, _STEP_BYTES))
            crc = zlib.crc32(part, crc)
            left -= len(part)
        if crc != self._crc:
            raise zipfile.BadZipFile(f"array {self.name!r} has a wrong checksum")

    def finish(self) -> None:
        """Reads a packed member to its end, where its checksum is compared."""
        if self.packed:
            while self._stream.read(_STEP_BYTES):
                pass

    def close(self) -> None:
        """Closes what was opened for this array alone."""
        if self.packed:
            self._stream.close()


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Reads an .npy header: shape, Fortran order, dtype. Values come next.

    Raises:
      ValueError: the magic, the version or the header is not NumPy's.
    """
    version = npy.read_magic(stream)
    if version not in _VERSIONS:
        raise ValueError(f"version {version} of the .npy format is not known")
    length, encoding = _VERSIONS[version]
    (size,) = length.unpack(stream.read(length.size))
    if size > _MAX_HEADER_BYTES:
        raise ValueError(f"its header claims {size:,} bytes")
    header = _literal(stream.read(size).decode(encoding))
    if not isinstance(header, dict) or header.keys() != _HEADER_KEYS:
        raise ValueError("its header does not say descr, fortran_order and shape")
    shape = header["shape"]
    if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
        raise ValueError(f"its shape is {shape!r}")
    dtype = npy.descr_to_dtype(header["descr"])
    return shape, bool(header["fortran_order"]), dtype


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except SyntaxError:
        # Python 2 wrote its long integers as 3L.
        return ast.literal_eval(_LONG.sub(r"\1\2", text))


def _arrow(values: npt.NDArray[Any], where: str) -> pa.Array:
    """Returns an array as an Arrow column; inner dimensions as lists of fixed size."""
    flat = _flat(np.ascontiguousarray(values).reshape(-1), where)
    for size in reversed(values.shape[1:]):
        flat = pa.FixedSizeListArray.from_arrays(flat, size)
    return flat


def _flat(values: npt.NDArray[Any], where: str) -> pa.Array:
    dtype = values.dtype
    if dtype.kind in "iufb" and dtype.itemsize <= 8:
        return pa.array(values.astype(dtype.newbyteorder("="), copy=False))
    if dtype.kind == "S":
        return pa.array(values.tolist(), pa.binary())
    if dtype.kind == "U":
        _check_text(values, where)
        return pa.array(values.tolist(), pa.string())
    if dtype.kind == "M" and np.datetime_data(dtype) in [(u, 1) for u in _UNITS]:
        return pa.array(values.astype(dtype.newbyteorder("="), copy=False))
    if dtype.kind == "M" and np.datetime_data(dtype) == ("D", 1):
        return pa.array(values.astype("<M8[D]"))
    raise InputError(
        f"{where} is of dtype {dtype}, which no feature can hold exactly; numbers of "
        f"up to 64 bits, bools, texts, bytes and datetime64 are read. Convert it."
    )


def _check_text(values: npt.NDArray[Any], where: str) -> None:
    """Raises InputError for numbers that are not Unicode characters."""
    if not values.nbytes:
        return
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    codes = np.ascontiguousarray(native).view(np.uint32)
    bad = (codes > sys.maxunicode) | ((codes >= 0xD800) & (codes < 0xE000))
    if bad.any():
        raise InputError(
            f"{where} must hold Unicode texts; found the character number "
            f"{int(codes[bad][0]):#x}. Fetch or write it again."
        )
