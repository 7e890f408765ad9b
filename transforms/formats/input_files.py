"""The files of a table format's source as columns: thousands of files are no objects.

The listing, which workers read as well, is in source order:

    path      string  relative to the root
    size      int64   bytes
    position  int64   bytes of the files before it
    stamp     int64   of the file as it was listed; see `entries.stamp`

Small files are gathered: a block is a run of the listing, with rows of many files. A
block, its segments and its receipts have a fixed cost that pays for thousands of rows:
for each small file it would be most of the work.

Runs are cut by content: after a file whose path's hash says so, with a least and a most
number of files, and a most of bytes. So a file that is added or removed changes the run
that it is in, and seldom the next one: those further on begin and end where they did.
"""

import math
import operator
import os
from collections.abc import Iterator, Sequence
from typing import SupportsIndex, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.placing.placement import origin_bases
from transforms.errors import InputError
from transforms.formats.table import SMALL_BYTES, InputFile
from transforms.storage.file_list import FileList, stamps_of

# Fewer files than these are no worse off each by itself.
_FEWEST_FILES = 16
# About how many runs there are: then a change touches less than 1 in 100 files.
_RUNS = 256
# Files of a run on average, where a run of 1 / `_RUNS` would be shorter.
_LEAST_MEAN = 8
# A run has at most this many times its mean: cut sooner, it would move the next ones.
LONGEST = 4
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


def run_files_of(
    origins: pa.Array | pa.ChunkedArray,
    sizes: npt.NDArray[np.int64],
    *,
    block_bytes: int,
) -> int:
    """Returns about how many files a run has, a power of two; 0 for no runs.

        >>> origins = pa.array([f"{i:05}.csv" for i in range(10_000)])
        >>> run_files_of(origins, np.full(10_000, 4_000), block_bytes=8 << 20)
        32

    Args:
      origins: of the files, in source order.
      sizes: their bytes.
      block_bytes: the most that a run holds.
    """
    count = len(origins)
    mean = int(sizes.sum()) // max(count, 1)
    if count < _FEWEST_FILES or mean > SMALL_BYTES:
        return 0
    # Rows of one shard go by the origin of their block first, which must be their own
    # order.
    if pc.any(pc.less_equal(origins.slice(1), origins.slice(0, count - 1))).as_py():
        return 0
    wanted = 1 << round(math.log2(max(count / _RUNS, _LEAST_MEAN)))
    # Runs that end because they are full would all move where a file is added.
    roomy = max(block_bytes // (LONGEST * max(mean, 1)), 1)
    return min(wanted, 1 << (roomy.bit_length() - 1))


def run_stop(
    origins: Sequence[str], sizes: Sequence[int], *, run_files: int, block_bytes: int
) -> int:
    """Returns how many of the first files are the run that begins with them.

    It ends before a file that is not small; 0 where the first one is not.

    Args:
      origins: of the files that follow, in source order; `LONGEST` times `run_files`
        of them, or all.
      sizes: their bytes.
      run_files: about how many files a run has; a power of two.
      block_bytes: the most that a run of more than one file holds.
    """
    ends = origin_bases(origins, "run", 0) & np.uint64(run_files - 1) == 0
    total = 0
    most = LONGEST * run_files
    for index, (size, is_end) in enumerate(zip(sizes, ends.tolist(), strict=True)):
        total += size
        if size > SMALL_BYTES or index == most or (index and total > block_bytes):
            return index
        if is_end and index + 1 >= run_files // 8:
            return index + 1
    return len(origins)
