"""The files of a source: which are chosen, and as columns: thousands are no objects.

The listing, which workers read as well, is in source order:

    path      string  relative to the root
    size      int64   bytes
    position  int64   bytes of the files before it
    stamp     int64   of the file as it was listed; see `entries.stamp`
"""

import collections
import fnmatch
import operator
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.reasons import Skipped
from transforms.errors import InputError, bounded
from transforms.formats.file_names import IMAGE_SUFFIXES, split_at_start
from transforms.formats.table import SMALL_BYTES, InputFile, TableReader
from transforms.storage.file_list import FileList, stamps_of
from transforms.storage.row_spool import BATCH_ROWS, RowSpool

# Files left out for their suffix that are looked at for tables to name.
MOST_OTHERS = 4096
# Files whose names are compared, and those whose rows are counted, up to a number.
_NAMED_FILES, _COUNTED_FILES, _COUNTED_ROWS = 64, 8, 10_000
_LISTING = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "position": pa.int64(),
        "stamp": pa.int64(),
    }
)


class Chosen(NamedTuple):
    """Files to read, and the others.

    Attributes:
      files: to read.
      skipped: how many were left out, by reason.
      others: the first of those that were left out for their suffix.
    """

    files: FileList
    skipped: dict[str, int]
    others: tuple[str, ...]


def _in_any_case(suffix: str) -> str:
    """Returns a regex for a suffix in small letters, capitals or both."""
    # Not by a flag: in Unicode, more than two characters are one letter.
    letters = (f"[{c}{c.upper()}]" if c.isalpha() else re.escape(c) for c in suffix)
    return "".join(letters)


# What nearly all names of images match.
_PLAIN = rf"[^/.](?:{'|'.join(map(_in_any_case, IMAGE_SUFFIXES))})$"
# What names of annotations match that are for one image each.
_TEXT = r"(?i)[^/]\.(txt|json|xml)$"


def are_plain_images(paths: pa.BinaryArray) -> npt.NDArray[np.bool_]:
    """Tells which of many paths are beyond doubt those of images.

    What is True is an image for `is_image_name`, and a file of no other format; what
    is False may be an image as well.
    """
    return numpy_mask(pc.match_substring_regex(paths, _PLAIN))


def choose_files(
    files: FileList,
    *,
    takes: Callable[[str], bool],
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
) -> "Chosen":
    """Returns the files to read, and which were left out.

    A pattern is matched against the whole relative path and against the file name;
    `*` crosses folders. One that ends with `/` is for all files in folders of that
    name, at any depth. With `include`, what it matches is read whatever its suffix;
    without, what `takes` says, which must be the same of all plain names of images.
    """
    skipped: collections.Counter[str] = collections.Counter()
    takes_images = takes(f"a/a{IMAGE_SUFFIXES[0]}")

    def reason_of(path: str) -> str:
        name = path.rpartition("/")[2]
        if include and not _matches(path, name, include):
            return Skipped.NOT_INCLUDED
        if _matches(path, name, exclude):
            return Skipped.EXCLUDED
        return "" if include or takes(path) else Skipped.OTHER_SUFFIX

    def keep(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        kept = ~numpy_mask(batch["hidden"])
        if count := int((~kept).sum()):
            skipped[Skipped.HIDDEN] += count
        looked_at = kept
        if takes_images and not (include or exclude):
            looked_at = kept & ~are_plain_images(batch["path"])
        for index in np.flatnonzero(looked_at).tolist():
            path = os.fsdecode(batch["path"][index].as_py())
            if reason := reason_of(path):
                skipped[reason] += 1
                kept[index] = False
                if reason is Skipped.OTHER_SUFFIX and len(others) < MOST_OTHERS:
                    others.append(path)
        return kept

    others: list[str] = []
    chosen = files.filter(keep)
    counts = {str(reason): count for reason, count in sorted(skipped.items())}
    return Chosen(chosen, counts, tuple(others))


def only_texts(files: FileList) -> FileList:
    """Returns the files that may hold annotations, each of one image."""

    def are_texts(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        named = pc.match_substring_regex(batch["path"], _TEXT)
        return numpy_mask(named) & ~numpy_mask(batch["hidden"])

    return files.filter(are_texts)


def unmatched(files: FileList, patterns: Sequence[str]) -> list[str]:
    """Returns the patterns that match none of the files that are not hidden."""
    left = list(dict.fromkeys(patterns))
    for batch in files.batches():
        seen = batch["path"].filter(pc.invert(batch["hidden"]))
        for index in range(len(seen)):
            if not left:
                return []
            path = os.fsdecode(seen[index].as_py())
            name = path.rpartition("/")[2]
            left = [p for p in left if not _matches(path, name, [p])]
    return left


def _matches(path: str, name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern fits a path or a name; "dir/" fits all below such a folder."""
    return any(
        fnmatch.fnmatchcase(f"/{path}", f"*/{p}*")
        if p.endswith("/")
        else fnmatch.fnmatchcase(path, p) or fnmatch.fnmatchcase(name, p)
        for p in patterns
    )


class InputFiles(Sequence[InputFile]):
    """Files of a source in their order; each is made as it is asked for.

        >>> files = InputFiles.of([InputFile("a.csv", "/data/a.csv", 7)], root="/data")
        >>> len(files), files[0].path, files.sizes.tolist()
        (1, '/data/a.csv', [7])

    Attributes:
      table: the listing, as the module draws it.
    """

    def __init__(
        self, table: pa.Table, *, root: str, spool: RowSpool | None = None
    ) -> None:
        """Takes a listing, and the folder that its paths are relative to.

        Args:
          table: the listing.
          root: the folder.
          spool: the listing with columns of a reader's own, which may be large.
        """
        self.table = table
        self._root = root
        self._folder = os.path.join(root, "")
        self._spool = spool

    @classmethod
    def spooled(cls, tables: Iterable[pa.Table], *, root: str) -> "InputFiles":
        """Returns the files of tables that have columns of a reader's own, too."""
        spool: RowSpool | None = None
        files: list[pa.RecordBatch] = []
        for table in tables:
            spool = RowSpool(table.schema) if spool is None else spool
            for batch in table.to_batches(max_chunksize=BATCH_ROWS):
                spool.append(batch)
                files.append(batch.select(_LISTING.names))
        return cls(pa.Table.from_batches(files, _LISTING), root=root, spool=spool)

    @property
    def listing(self) -> RowSpool:
        """What workers read: the files with all of their columns."""
        return RowSpool.of(self.table) if self._spool is None else self._spool

    def rows(self, chosen: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """Returns rows of what workers read, by their numbers, which ascend."""
        rows: list[dict[str, Any]] = []
        first = 0
        for batch in self.listing.batches():
            here = chosen[(chosen >= first) & (chosen < first + len(batch))] - first
            rows += batch.take(pa.array(here)).to_pylist()
            first += len(batch)
        return rows

    @classmethod
    def of(cls, files: Sequence[InputFile], *, root: str) -> "InputFiles":
        """Returns files that are listed one by one, with the positions that they have.

        Args:
          files: of the source.
          root: the folder that their origins are relative to.
        """
        if isinstance(files, cls):
            return files
        facts = operator.attrgetter("origin", "size", "position", "stamp")
        rows = [dict(zip(_LISTING.names, facts(f), strict=True)) for f in files]
        return cls(pa.Table.from_pylist(rows, _LISTING), root=root)

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
                _utf8_paths(batch["path"], root),
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
        chosen = range(len(self))[index]
        if isinstance(chosen, range):
            return InputFiles(self.table.take(np.array(chosen)), root=self._root)
        (file,) = self._files_of(self.table.slice(chosen, 1))
        return file

    def _files_of(self, rows: pa.Table | pa.RecordBatch) -> Iterator[InputFile]:
        columns = (rows[name].to_pylist() for name in _LISTING.names)
        for origin, size, position, stamp in zip(*columns, strict=True):
            path = self._folder + origin
            yield InputFile(origin, path, size, position, stamp=stamp)


def _utf8_paths(paths: pa.BinaryArray, root: str) -> pa.StringArray:
    """Returns paths as texts; InputError for the first that is not UTF-8."""
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        bad = next(
            p for p in paths.to_pylist() if p.decode(errors="ignore").encode() != p
        )
        raise InputError(
            f"Names of files must be UTF-8; {root!r} holds {bad!r}. Rename it, or "
            f"leave it out with --exclude."
        ) from None


def folder_notes(files: Sequence[InputFile], names: Collection[str]) -> Iterator[str]:
    """Yields a note on folders like year=2024, as Spark and pandas store a column.

    Args:
      files: all of them.
      names: of columns and features.
    """
    paths = [file.origin for file in files[:_NAMED_FILES]]
    folders = {name for path in paths for name in re.findall("([^/=]+)=[^/]*/", path)}
    if lacking := sorted(folders - {*names}):
        said = ", ".join(f"{name}: {{path: '{name}=([^/]+)'}}" for name in lacking)
        yield bounded(
            f"folders are named like {lacking[0]}=..., and no feature holds that; "
            f"for one, say in a --spec: features: {{{said}}}"
        )


def file_notes(reader: TableReader, files: Sequence[InputFile]) -> Iterator[str]:
    """Yields notes on files that are read as one table, and are perhaps not one.

    They name the files and their rows, and one that is named like a split. Files whose
    names differ in digits alone are one table.
    """
    origins = [file.origin for file in files[:_NAMED_FILES]]
    kinds = {re.sub("[0-9]+", "0", posixpath.basename(origin)) for origin in origins}
    if len(kinds) < 2 or any(map(reader.split_of, origins)):
        return
    shown = []
    for file in files[:_COUNTED_FILES]:
        blocks = reader.blocks(file, block_bytes=SMALL_BYTES, limit_rows=_COUNTED_ROWS)
        rows = sum(block.rows for block in blocks)
        over = "over " if rows >= _COUNTED_ROWS else ""
        shown.append(f"{file.origin} ({over}{rows:,})")
    if more := len(files) - len(shown):
        shown.append(f"{more:,} more")
    listed = ", ".join(shown)
    yield bounded(f"{len(files):,} files are one table; with their rows: {listed}")
    if named := [origin for origin in origins if split_at_start(origin)]:
        yield (
            f"{named[0]!r} is named like a split, but not all files are named by such "
            f"a word alone; name them so, or leave others out with --exclude"
        )
