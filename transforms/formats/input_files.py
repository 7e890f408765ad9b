"""The files of a table format's source as columns: thousands of files are no objects.

The listing, which workers read as well, is in source order:

    path      string  relative to the root
    size      int64   bytes
    position  int64   bytes of the files before it
    stamp     int64   of the file as it was listed; see `transforms.files.stamp`
"""

import operator
import os
from collections.abc import Iterator, Sequence
from typing import SupportsIndex, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.errors import InputError
from transforms.formats.table import InputFile
from transforms.storage.file_list import FileList, stamps_of

_LISTING = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "position": pa.int64(),
        "stamp": pa.int64(),
    }
)


class InputFiles(Sequence[InputFile]):
    """Files of a source in their order; each is made as it is asked for.

        >>> files = InputFiles.of([InputFile("a.csv", "/data/a.csv", 7)], root="/data")
        >>> len(files), files[0].path, files.sizes.tolist()
        (1, '/data/a.csv', [7])

    Attributes:
      table: the listing, as the module draws it.
    """

    def __init__(self, table: pa.Table, *, root: str) -> None:
        """Takes a listing, and the folder that its paths are relative to."""
        self.table = table
        self._root = root
        self._folder = os.path.join(root, "")

    @classmethod
    def of(cls, files: Sequence[InputFile], *, root: str) -> "InputFiles":
        """Returns files that are listed one by one, with the positions that they have.

        Args:
          files: of the source.
          root: the folder that their origins are relative to.
        """
        if isinstance(files, cls):
            return files
        columns = [
            [file.origin for file in files],
            [file.size for file in files],
            [file.position for file in files],
            [file.stamp for file in files],
        ]
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, _LISTING, strict=True)
        ]
        return cls(pa.Table.from_arrays(arrays, schema=_LISTING), root=root)

    @classmethod
    def listed(cls, entries: FileList, *, root: str) -> "InputFiles":
        """Returns all files of a list, each after the bytes of those before it.

        Args:
          entries: in source order.
          root: the folder that their paths are relative to.

        Raises:
          InputError: the name of a file is not UTF-8.
        """
        batches = []
        before = 0
        for batch in entries.batches():
            ends = before + np.cumsum(batch["size"].to_numpy())
            columns = [
                _texts(batch["path"], root),
                batch["size"],
                pa.array(ends - batch["size"].to_numpy()),
                pa.array(stamps_of(batch)),
            ]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=_LISTING))
            before = int(ends[-1]) if len(ends) else before
        return cls(pa.Table.from_batches(batches, _LISTING), root=root)

    @property
    def origins(self) -> pa.ChunkedArray:
        """The paths relative to the root: n texts."""
        return self.table["path"]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The bytes of each file: int64 array of n."""
        return np.asarray(self.table["size"].to_numpy(), np.int64)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[InputFile]:
        for batch in self.table.to_batches(max_chunksize=4096):
            yield from self._files_of(batch)

    @overload
    def __getitem__(self, index: SupportsIndex) -> InputFile: ...
    @overload
    def __getitem__(self, index: slice) -> "InputFiles": ...
    def __getitem__(self, index: SupportsIndex | slice) -> "InputFile | InputFiles":
        if isinstance(index, slice):
            chosen = np.arange(*index.indices(len(self)))
            return InputFiles(self.table.take(chosen), root=self._root)
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"There are {len(self)} files; found index {place}.")
        (file,) = self._files_of(self.table.slice(place % len(self), 1))
        return file

    def _files_of(self, rows: pa.Table | pa.RecordBatch) -> Iterator[InputFile]:
        columns = (rows[name].to_pylist() for name in _LISTING.names)
        for origin, size, position, stamp in zip(*columns, strict=True):
            path = self._folder + origin
            yield InputFile(origin, path, size, position, stamp=stamp)


def _texts(paths: pa.BinaryArray, root: str) -> pa.StringArray:
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        bad = next(path for path in paths.to_pylist() if not _is_text(path))
        raise InputError(
            f"Names of files must be UTF-8; {root!r} holds {bad!r}. Rename it, or "
            f"leave it out with --exclude."
        ) from None


def _is_text(path: bytes) -> bool:
    try:
        path.decode()
    except UnicodeDecodeError:
        return False
    return True
