"""The files of a source as columns: a tree of many millions is no Python objects.

    path      binary  relative to the root, as the file system has it
    size      int64   bytes
    modified  int64   time of modification, nanoseconds since the epoch
    hidden    bool    whether the file is not read; see `StoredPath.list_tree`

A `FileList` gives its batches to what works on columns, and its entries one by one to
what does not.
"""

import functools
import itertools
import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import InputError
from transforms.storage.paths import FileEntry
from transforms.storage.row_spool import BATCH_ROWS, RowSorter, RowSpool

_SCHEMA = pa.schema(
    {
        "path": pa.binary(),
        "size": pa.int64(),
        "modified": pa.int64(),
        "hidden": pa.bool_(),
    }
)
# See `transforms.storage.paths.stamp`.
_STAMP_FACTOR = np.uint64(0x9E3779B97F4A7C15)


class FileList:
    """Files in a fixed order.

    >>> found = FileList.of([FileEntry("b/1.jpg", 7, 0), FileEntry("a", 5, 0)])
    >>> len(found), found.bytes, [entry.path for entry in found.by_origin()]
    (2, 12, ['a', 'b/1.jpg'])
    """

    def __init__(self, rows: RowSpool, *, by_path: bool = False) -> None:
        """Takes files.

        Args:
          rows: under the schema that the module draws.
          by_path: whether they are in the byte order of their paths.
        """
        self._rows = rows
        self._by_path = by_path

    @classmethod
    def of(cls, entries: Iterable[FileEntry], *, by_path: bool = False) -> "FileList":
        """Returns a list of entries, as they are ordered; see the constructor."""
        rows, remaining = RowSpool(_SCHEMA), iter(entries)
        while some := list(itertools.islice(remaining, BATCH_ROWS)):
            facts = (
                (_path_bytes(entry.path), entry.size, entry.modified_ns, entry.skipped)
                for entry in some
            )
            paths, sizes, modified, skipped = zip(*facts, strict=True)
            rows.append(_batch([paths, sizes, modified, [*map(bool, skipped)]]))
        return cls(rows, by_path=by_path)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[FileEntry]:
        for batch in self.batches():
            columns = (batch[name].to_pylist() for name in _SCHEMA.names)
            for path, size, modified, is_hidden in zip(*columns, strict=True):
                skipped = "hidden" if is_hidden else ""
                yield FileEntry(os.fsdecode(path), size, modified, skipped)

    @functools.cached_property
    def bytes(self) -> int:
        """Of all files."""
        # In Python: int64 does not hold the sum of two files of 4 EiB.
        return sum(sum(batch["size"].to_pylist()) for batch in self.batches())

    def first(self, count: int) -> list[FileEntry]:
        """Returns the first entries."""
        return list(itertools.islice(self, count))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields all files as rows under the schema that the module draws."""
        return self._rows.batches()

    def filter(
        self, keep: Callable[[pa.RecordBatch], npt.NDArray[np.bool_]]
    ) -> "FileList":
        """Returns the files for which `keep`, called with each batch, has True."""
        rows = RowSpool(_SCHEMA)
        for batch in self.batches():
            rows.append(batch.filter(pa.array(keep(batch))))
        return FileList(rows, by_path=self._by_path)

    def by_origin(self) -> "FileList":
        """Returns the files sorted by their origins' bytes.

        What is no UTF-8 counts as question marks.
        """
        # Paths in ASCII are their own origins.
        if self._by_path and all(_is_ascii(batch["path"]) for batch in self.batches()):
            return self
        sorter = RowSorter(_SCHEMA.append(pa.field("origin", pa.binary())), "origin")
        for batch in self.batches():
            sorter.add(batch.append_column("origin", origins_of(batch)))
        rows = RowSpool(_SCHEMA)
        for batch in sorter.sorted().batches():
            rows.append(batch.select(_SCHEMA.names))
        return FileList(rows)


def _batch(columns: Iterable[Sequence[Any]]) -> pa.RecordBatch:
    """Returns files as rows, from the values of each column."""
    arrays = map(pa.array, columns, _SCHEMA.types)
    return pa.RecordBatch.from_arrays([*arrays], schema=_SCHEMA)


def _path_bytes(path: str) -> bytes:
    """Returns a path as bytes; also one in an archive, which no disk could have."""
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        # No name of a file: that of a member of an archive, perhaps.
        return path.encode("utf-8", "surrogatepass")


def origins_of(batch: pa.RecordBatch) -> pa.BinaryArray:
    """Returns the paths in NFC: the identities that placement hashes."""
    paths = batch["path"]
    if _is_ascii(paths):
        return paths
    return pa.array(
        [
            unicodedata.normalize("NFC", os.fsdecode(path)).encode(errors="replace")
            for path in paths.to_pylist()
        ],
        pa.binary(),
    )


def _is_ascii(texts: pa.BinaryArray) -> bool:
    """Whether all paths are ASCII; looks at the buffer, for millions of them."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)
    start, stop = offsets[texts.offset], offsets[texts.offset + len(texts)]
    data = texts.buffers()[2]
    return data is None or data[start:stop].to_pybytes().isascii()


def lines_of(*columns: pa.Array, end: bytes) -> bytes:
    r"""Returns rows of text: cells with a NUL between, and `end` behind each row.

        >>> lines_of(pa.array([b"a", b"b"]), pa.array([1, 22]), end=b"\n")
        b'a\x001\nb\x0022\n'

    Args:
      columns: binary, or integers.
      end: of a row.
    """
    cells = [
        column.cast(pa.string()).cast(pa.binary())
        if pa.types.is_integer(column.type)
        else column
        for column in columns
    ]
    joined = pc.binary_join_element_wise(*cells, b"\0")
    # An empty cell, for a separator behind each row.
    rows = pc.binary_join_element_wise(joined, b"", end)
    stop = np.frombuffer(rows.buffers()[1], np.int32)[len(rows)]
    return bytes(rows.buffers()[2][:stop])


def stamps_of(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """Returns the stamps of listed files; see `transforms.storage.paths.stamp`."""
    size, modified = (
        batch[name].to_numpy(zero_copy_only=False).view(np.uint64)
        for name in ("size", "modified")
    )
    stamps: npt.NDArray[np.int64] = (modified * _STAMP_FACTOR + size).view(np.int64)
    return stamps


class FileLister:
    """Takes the files of a tree as they are found, in any order.

    A path that is found twice is listed once, as it was found last: a folder may be
    read again after a failure.
    """

    def __init__(self) -> None:
        self._sorter = RowSorter(_SCHEMA, "path", unique=True)
        self._start()

    def _start(self) -> None:
        # Columns: a million rows would be as many objects for the garbage collector.
        self._paths: list[str] = []
        self._sizes: list[int] = []
        self._modified: list[int] = []
        self._hidden: list[bool] = []

    def add(
        self, path: str, size: int, modified_ns: int, *, hidden: bool = False
    ) -> None:
        """Takes a file.

        Args:
          path: relative to the root.
          size: bytes.
          modified_ns: time of modification.
          hidden: whether it is only counted, and neither read nor entered.
        """
        self._paths.append(path)
        self._sizes.append(size)
        self._modified.append(modified_ns)
        self._hidden.append(hidden)
        if len(self._paths) >= BATCH_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._paths:
            # No name of a file holds a NUL.
            paths = os.fsencode("\0".join(self._paths)).split(b"\0")
            self._sorter.add(_batch([paths, self._sizes, self._modified, self._hidden]))
            self._start()

    def files(self) -> FileList:
        """Returns what was found, in the byte order of the paths."""
        self._flush()
        return FileList(self._sorter.sorted(), by_path=True)


def in_source_order(entries: FileList) -> FileList:
    """Returns the input files by their origins' bytes.

    Raises:
      InputError: names that are equal in NFC or are not UTF-8.
    """
    ordered = entries.by_origin()
    # Paths of a tree differ, and plain ones are their origins.
    before: FileEntry | None = None
    for entry in ordered if ordered is not entries else ():
        try:
            entry.path.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"File names must be UTF-8; {os.fsencode(entry.path)!r} is not. "
                f"Rename it, or leave it out with --exclude."
            ) from error
        if before and before.origin == entry.origin:
            raise InputError(
                f"File names must differ after Unicode normalisation (NFC); "
                f"{before.path.encode()!r} and {entry.path.encode()!r} do not. "
                f"Rename one."
            )
        before = entry
    return ordered
