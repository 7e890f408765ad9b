"""Tables of every format: their files, raw columns from a reader, typed rows.

    files -> TableFormat.plan -> Planned(reader, sample, features, label_map)
    file -> TableReader.blocks -> TableReader.read -> RawRows -> conform -> Reading

A format is a `TableFormat`: it looks at the files of a source once, and plans how to
read them. What it returns is a `TableReader`: how the files fall into blocks, and how a
block becomes raw columns. All the rest is the same for all formats and lives in
`source.py` and `file_runs.py`.
"""

import abc
import contextlib
import dataclasses
import errno
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, TypeVar

import pyarrow as pa

from transforms.core.model import Block
from transforms.core.schema import Feature
from transforms.errors import DamageError, InputError, first_few
from transforms.formats.file_names import split_of_table
from transforms.formats.raw_rows import RawRows
from transforms.storage.files import fetched, storage
from transforms.storage.paths import FileEntry, is_remote
from transforms.storage.visibility import unseen

# Larger files are blocks of their own, or several.
SMALL_BYTES = 1 << 20
# Columns that a message names.
_SHOWN_COLUMNS = 8
_Item = TypeVar("_Item")


@dataclasses.dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source, as a table's reader opens it.

    Attributes:
      origin: its path relative to the source's root.
      path: where it is.
      stamp: of the file as it was listed; see `paths.stamp`. 0 for unknown.
    """

    origin: str
    path: str
    stamp: int = dataclasses.field(default=0, kw_only=True)

    @property
    def root(self) -> str:
        """The root of its source."""
        return self.path[: len(self.path) - len(self.origin)]

    def open(self) -> io.BufferedReader:
        """Opens the file; raises OSError, also where it has changed since listing."""
        return storage(self.path).open_input(stamp=self.stamp)


@dataclasses.dataclass(frozen=True, slots=True)
class InputFile(SourceFile):
    """One file of a source as a table's reader is given it: with its place among all.

    Attributes:
      size: bytes.
      position: bytes of the files before it.
      is_member: whether it is one of an archive: all rows are where it begins.
    """

    size: int
    position: int = 0
    is_member: bool = False

    def position_at(self, start: int) -> int:
        """Returns the bytes of input before a place in the file."""
        return self.position + (0 if self.is_member else start)

    def block(
        self,
        start: int,
        stop: int,
        *,
        rows: int,
        before: int = 0,
        first_row: int = 0,
    ) -> Block:
        """Returns a block of the file.

        Args:
          start, stop: what tells it from the file's other blocks; see `Block`.
          rows: how many rows it holds; 0 where that is not known.
          before: bytes of the file before it.
          first_row: 0-based number of its first row.
        """
        position = self.position_at(before)
        return Block(self.origin, start, stop, first_row, 1, rows, position, self.stamp)

    def placed(self, block: Block) -> Block:
        """Returns a block whose `start` is a byte of the file, with its place."""
        position = self.position_at(block.start)
        return dataclasses.replace(block, position=position, stamp=self.stamp)

    def whole(self, *, rows: int = 0) -> Block:
        """Returns the one block of a file that can only be read from its start."""
        return self.block(0, self.size, rows=rows)


@dataclasses.dataclass(frozen=True, slots=True)
class TableSample:
    """Some rows of the inputs, taken evenly through them.

    Attributes:
      columns: raw columns by name, in the source's order: texts for formats of text,
        else the Arrow types that the format states. n rows each.
      rows: n.
      unread: rows that were looked at and cannot be read at all.
      sampled_bytes: of input that those rows are in; 0 where `total_rows` is known.
      total_rows: of all files, where the format says it; None to estimate it.
      complete: whether the sample is all there is.
      notes: what a person should know of how the files were understood.
    """

    columns: Mapping[str, pa.Array | pa.ChunkedArray]
    rows: int
    unread: int = 0
    sampled_bytes: int = 0
    total_rows: int | None = None
    complete: bool = False
    notes: tuple[str, ...] = ()


def only(
    columns: Mapping[str, _Item], names: Sequence[str], origin: str
) -> dict[str, _Item]:
    """Returns a table's columns of these names.

    Raises:
      InputError: one is not there.
    """
    if absent := [name for name in names if name not in columns]:
        raise InputError(
            f"All files of a source must have the columns that are read; {origin} has "
            f"no column {absent[0]!r}; it has {listed(columns)}. Convert it by itself, "
            f"or leave it out."
        )
    return {name: columns[name] for name in names}


def listed(names: Iterable[str]) -> str:
    """Returns the names of a table's first columns in words, and how many more."""
    return first_few([repr(name[:60]) for name in names], _SHOWN_COLUMNS)


def only_in_one(
    first: str, columns: Collection[str], second: str, others: Collection[str]
) -> list[str]:
    """Returns in words which columns only one of two files has, by their origins."""
    alone = {
        first: [name for name in columns if name not in others],
        second: [name for name in others if name not in columns],
    }
    return [f"{listed(names)} only in {path}" for path, names in alone.items() if names]


@dataclasses.dataclass(frozen=True, slots=True)
class Planned:
    """What a table format makes of the files of a source.

    Attributes:
      reader: of these files, a `TableReader`, or of the listing, a `RunReader`.
      sample: some of their rows.
      features: what the format itself says of its columns: these are not inferred from
        the sample.
      label_map: class id -> name, for formats with label maps; empty for none.
      files: those of the files that are to be read; None for all of them. It may be a
        listing with columns of the reader's own.
      left_out: how many files are not read; None to count those not in `files`.
      seen: how the files were understood, behind a comma, for a person; or nothing.
    """

    reader: "RowReader"
    sample: TableSample
    features: tuple[Feature, ...] = ()
    label_map: Mapping[int, str] = dataclasses.field(default_factory=dict)
    files: Sequence[InputFile] | None = None
    left_out: int | None = None
    seen: str = ""


def spread(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    """Returns at most so many of the items, from the first on at equal distances."""
    count = len(items)
    return [items[i * count // most] for i in range(most)] if count > most else items


def read_in_turn(files: Sequence[InputFile]) -> Iterator[InputFile]:
    """Yields a table's files to read in turn; of a store, small ones come ahead."""
    if not files or not is_remote(files[0].path):
        yield from files
        return
    sizes = [(file.path, file.size) for file in files]
    for file, _ in zip(files, fetched(sizes, limit=SMALL_BYTES), strict=True):
        yield file


class TableFormat(abc.ABC):
    """A format with its settings, before any file is looked at.

    Attributes:
      title: what the format is called in messages.
    """

    title: ClassVar[str]

    @classmethod
    def with_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Returns the format with settings that it knows, by their names."""
        return cls(**settings)

    def with_companions(self, files: Sequence[FileEntry], *, whole: bool) -> Self:
        """Returns the format that knows what is beside the files that it plans.

        Args:
          files: that are read beside them.
          whole: whether no file was left out by a pattern.
        """
        return self

    @abc.abstractmethod
    def plan(self, files: Sequence[InputFile]) -> Planned:
        """Looks at the files of a source, each as seldom as it can.

        Args:
          files: in source order.

        Returns:
          A sample of the rows, taken evenly through the files, and the reader.

        Raises:
          InputError: they cannot be read as this format under one set of columns.
          OSError: one cannot be read, or has changed since it was listed.
        """


class RowReader:
    """What typing a table's rows needs to know of its format. Frozen; opens no file.

    Attributes:
      title: what the format is called in messages.
      many_origins: whether pieces span several origins (members of archives).
      origins_name_rows: whether a row's origin alone says where it is.
      split_column: a raw column of the reader's own that says each row's split;
        empty for none.
      label_column: a column that says the classes of parts of rows, and is no column
        of these; empty for none.
      image_base: what paths of images are relative to: the folder of the file that
        names them ("file"), or the source's root ("root").
      beside: columns that `read` gives beside those asked for, for the content of rows
        alone: nothing in them refuses a row.
      images_named: whether its images keep their names, and nothing is stored beside
        them that is not there yet.
      keys_required: whether a row without its key or its group is refused.
      null_values: texts that mean missing, for formats whose texts may be said to.
      decimal: the decimal character of numbers in texts, "." or ",".
      content: the columns whose content identifies a row without a key: "none" to go by
        its place, as images do; those that are "read" anyway, for formats in which
        another column costs a read; or "all".
    """

    title: ClassVar[str] = ""
    image_base: ClassVar[Literal["file", "root"]] = "file"
    many_origins: ClassVar[bool] = False
    origins_name_rows: ClassVar[bool] = False
    split_column: str = ""
    label_column: str = ""
    beside: Sequence[str] = ()
    images_named: ClassVar[bool] = False
    keys_required: ClassVar[bool] = True
    null_values: tuple[str, ...] = ()
    decimal: str = "."
    content: ClassVar[Literal["none", "read", "all"]] = "none"

    def without_diagnostics(self) -> Self:
        """Returns a copy without fields that only appear in messages."""
        return self

    def content_columns(
        self, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[str, ...]:
        """Returns the columns whose content identifies a row without a key.

        Args:
          names: of all columns.
          wanted: those that are read anyway.
        """
        if self.content == "all":
            return tuple(names)
        read = frozenset(wanted) if self.content == "read" else frozenset()
        return tuple(name for name in names if name in read)

    def giving(self, beside: Sequence[str]) -> Self:
        """Returns the reader that gives columns `beside`; else they are asked for."""
        return self

    def split_of(self, origin: str) -> str:
        """Returns the split that the path of a file says; empty for none.

        By default Hugging Face's words as names of folders, and of numbered files.
        """
        return split_of_table(origin)


class TableReader(TableFormat, RowReader):
    """How the files of one format are read, each by itself.

    Most formats are one class: `plan` returns a copy that knows what it found.
    """

    @abc.abstractmethod
    def blocks(
        self, file: InputFile, *, block_bytes: int, limit_rows: int | None
    ) -> Iterator[Block]:
        """Yields the blocks of one file; `position` is of the block, `stamp` set.

        Args:
          file: the file.
          block_bytes: least size of a block, for formats that can be cut freely.
          limit_rows: read at most this many rows, the first ones.
        """

    @abc.abstractmethod
    def read(
        self, file: SourceFile, block: Block, columns: Sequence[str]
    ) -> Iterator[RawRows]:
        """Yields the raw rows of a block: all of it at once, or piece by piece.

        Args:
          file: the file.
          block: as `blocks` gave it.
          columns: the names of the columns that are wanted.
        """

    def read_whole(
        self, files: Sequence[InputFile], columns: Sequence[str], *, block_bytes: int
    ) -> Iterator[RawRows]:
        """Yields the raw rows of whole files, in their order.

        Formats may give the rows of several small files at once, with `origins`,
        `places` and `positions`, and must then give what each by itself would.

        Args:
          files: of one split, and of one folder where rows name images.
          columns: the names of the columns that are wanted.
          block_bytes: see `blocks`.

        Raises:
          InputError: one cannot be read, or has changed since it was listed.
        """
        for file in read_in_turn(files):
            with reading(file.path):
                blocks = self.blocks(file, block_bytes=block_bytes, limit_rows=None)
                for block in blocks:
                    yield from self.read(file, block, columns)


@contextlib.contextmanager
def reading(path: str, *, is_root: bool = False) -> Iterator[None]:
    """Says what is wrong with a table's file that was listed and cannot be read.

    A damaged file's own message names it, the place and the remedy.

    Args:
      path: of the file.
      is_root: whether the path is the root of the source, for errors that name no file.

    Raises:
      InputError: it is damaged, gone, or has changed.
      WorkerError: it is on the disk of another machine.
    """
    try:
        yield
    except DamageError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        if is_root and error.filename:
            path = str(error.filename)
        is_gone = error.errno == errno.ENOENT
        if is_gone and (never_seen := unseen(path)):
            raise never_seen from error
        problem = "it is gone" if is_gone else str(error.strerror or error)
        raise InputError(
            f"Every file of the source must stay as it is, and readable, during the "
            f"run; {path!r} did not: {problem}. Run again."
        ) from error
