"""The files of a source: their listing, as columns, and the content of compressed ones.

The listing, which workers read as well, is in source order:

    path      string  relative to the root
    size      int64   bytes
    position  int64   bytes of the files before it
    stamp     int64   of the file as it was listed; see `paths.stamp`

It is a file of the work folder, or within the source. The file is an Arrow IPC file
whose batches have `BATCH_ROWS` rows, but for the last: who wants some rows reads the
batches that hold them.

gzip and zstd streams, told by their first bytes, are unpacked in bounded memory and
must end as they say: a file that was cut off is an error, never a shorter table.
"""

import abc
import contextlib
import dataclasses
import functools
import io
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Self, SupportsIndex, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.arrays import regrouped
from transforms.core.tfrecord.compression import Compression, Inflater
from transforms.errors import InputError, TFRecordError
from transforms.formats.table import InputFile, SourceFile
from transforms.storage.drafts import CountedSink
from transforms.storage.file_list import FileList, stamps_of
from transforms.storage.files import storage
from transforms.storage.paths import is_remote
from transforms.storage.retry import persistently, storing
from transforms.storage.row_spool import BATCH_ROWS, RowSpool

LISTING = pa.schema(
    {
        "path": pa.string(),
        "size": pa.int64(),
        "position": pa.int64(),
        "stamp": pa.int64(),
    }
)


# What unpacks a stream of a path, by how it begins. What zstd's lacks is an OSError.
UNPACKERS: Mapping[bytes, Callable[[IO[bytes], str], Any]] = {
    b"\x1f\x8b": lambda file, path: Inflater(file.read, Compression.GZIP, path=path),
    b"\x28\xb5\x2f\xfd": lambda file, _: pa.CompressedInputStream(
        pa.PythonFile(file, "r"), "zstd"
    ),
}
_PIECE_BYTES = 1 << 20
# Up to this size, a worker that asks again and again has it in memory.
_HELD_BYTES = 16 << 20
# A longer one in a store is not fetched whole.
_WHOLE_BYTES = 64 << 20


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
                files.append(batch.select(LISTING.names))
        return cls(pa.Table.from_batches(files, LISTING), root=root, spool=spool)

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
        rows = [dict(zip(LISTING.names, facts(f), strict=True)) for f in files]
        return cls(pa.Table.from_pylist(rows, LISTING), root=root)

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
            batches.append(pa.RecordBatch.from_arrays(columns, schema=LISTING))
            before = int(ends[-1]) if len(ends) else before
        return cls(pa.Table.from_batches(batches, LISTING), root=root)

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
            numbers = np.arange(chosen.start, chosen.stop, chosen.step)
            return InputFiles(self.table.take(numbers), root=self._root)
        (file,) = self._files_of(self.table.slice(chosen, 1))
        return file

    def _files_of(self, rows: pa.Table | pa.RecordBatch) -> Iterator[InputFile]:
        columns = (rows[name].to_pylist() for name in LISTING.names)
        for origin, size, position, stamp in zip(*columns, strict=True):
            path = self._folder + origin
            yield InputFile(origin, path, size, position, stamp=stamp)


def _utf8_paths(paths: pa.BinaryArray, root: str) -> pa.StringArray:
    """Returns paths of input files as texts; InputError for one that is not UTF-8."""
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


class HeldListing(abc.ABC):
    """A listing of input files that is in no file; small, and sent to the workers."""

    @abc.abstractmethod
    def table(self) -> pa.Table:
        """Returns the listing as the format draws it."""


@dataclasses.dataclass(frozen=True, slots=True)
class InlineListing(HeldListing):
    """A listing of input files within the source itself.

        >>> listing = InlineListing.of(pa.table({"path": ["a.csv"]}))
        >>> listing.table().to_pylist()
        [{'path': 'a.csv'}]

    Attributes:
      data: an Arrow IPC stream, compressed.
    """

    data: bytes

    @classmethod
    def of(cls, table: pa.Table) -> Self:
        """Returns the listing that gives this table."""
        out = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(out, table.schema, options=options) as writer:
            writer.write_table(table)
        return cls(out.getvalue().to_pybytes())

    def table(self) -> pa.Table:
        """Returns the listing as the format draws it."""
        return pa.ipc.open_stream(self.data).read_all()


class StoredListing:
    """A long listing of input files, read as its rows are asked for; as a `pa.Table`.

    Attributes:
      num_rows: how many rows it has.
    """

    def __init__(self, reader: Any) -> None:
        """Takes the reader of a stored file."""
        self._schema = reader.schema
        self._batches = reader.num_record_batches
        # Who goes through a listing asks for rows of one batch several times.
        self._batch = functools.lru_cache(maxsize=1)(reader.get_batch)
        self.num_rows = 0
        if self._batches:
            last = reader.get_batch(self._batches - 1)
            self.num_rows = (self._batches - 1) * BATCH_ROWS + last.num_rows

    def slice(self, start: int, count: int) -> pa.Table:
        """Returns `count` rows from `start` on."""
        first = start // BATCH_ROWS
        stop = min(-(-(start + count) // BATCH_ROWS), self._batches)
        batches = [*map(self._batch, range(first, stop))]
        table = pa.Table.from_batches(batches, self._schema)
        return table.slice(start - first * BATCH_ROWS, count)


@contextlib.contextmanager
def opened(listing: str | HeldListing) -> Iterator[pa.Table | StoredListing]:
    """Opens a listing of input files: one that is held, or the path of a stored one.

    Raises:
      OSError, StorageError: it cannot be read.
    """
    if isinstance(listing, HeldListing):
        yield listing.table()
        return
    stored = storage(listing)
    entry = stored.stat_entry("")
    if entry.size <= _HELD_BYTES:
        yield _held(listing, entry.size, entry.modified_ns)
        return
    is_long = is_remote(listing) and entry.size > _WHOLE_BYTES
    with stored.open_unbuffered() if is_long else stored.mapped() as source:
        yield StoredListing(pa.ipc.open_file(source))


@functools.lru_cache(maxsize=2)
def _held(path: str, _size: int, _modified_ns: int) -> pa.Table:
    """Returns a listing of input files that is read into memory.

    A mapped file would keep the work folder from being removed, on NFS.
    """
    return pa.ipc.open_file(pa.py_buffer(storage(path).read_bytes())).read_all()


def write_listing(rows: RowSpool, path: str, *, attempts: str) -> None:
    """Writes a listing of input files to a file, batch by batch.

    Args:
      rows: of the listing.
      path, attempts: see `StoredPath.create`.

    Raises:
      StorageError: it could not be written; nothing has appeared.
    """

    def once() -> None:
        with (
            storage(path).create(attempts=attempts, durable=False) as sink,
            pa.ipc.new_file(CountedSink(sink), rows.schema) as writer,
        ):
            for batch in regrouped(rows.batches(), BATCH_ROWS):
                writer.write_batch(batch)

    with storing(path):
        persistently(once, path=path)


def begins_packed(data: bytes) -> bool:
    """Whether a file is compressed, by its first bytes, four or more."""
    return data.startswith(tuple(UNPACKERS))


class Unpacked:
    """The content of a compressed file, to be read once from its start.

    Bytes from the last `forget` on are kept: `seek` goes back among them, and `take`
    returns them.
    """

    def __init__(self, file: IO[bytes], origin: str) -> None:
        head = file.read(4)
        file.seek(0)
        self._file = file
        self._origin = origin
        makers = (make for mark, make in UNPACKERS.items() if head.startswith(mark))
        self._source = next(makers)(file, origin)
        self._kept = bytearray()
        self._begin = 0
        self._position = 0

    @property
    def consumed(self) -> int:
        """Bytes of the compressed file that were read so far."""
        return self._file.tell()

    def read(self, size: int, /) -> bytes:
        """Returns up to `size` bytes, none at the end; raises InputError."""
        offset = self._position - self._begin
        if offset == len(self._kept):
            try:
                piece = self._source.read(min(size, _PIECE_BYTES))
            except TFRecordError as error:
                # It names the file and the remedy.
                raise InputError(f"A compressed file must be whole. {error}") from error
            except (OSError, pa.ArrowException) as error:
                raise InputError(
                    f"A compressed file must be whole; {self._origin} is not: "
                    f"{error}. Fetch or write it again."
                ) from error
            self._kept += piece
        data = bytes(self._kept[offset : offset + size])
        self._position += len(data)
        return data

    def seek(self, position: int, /) -> int:
        """Goes to a byte that is still kept."""
        self._position = position
        return position

    def tell(self) -> int:
        """Returns the position in the content."""
        return self._position

    def take(self, start: int, stop: int) -> bytes:
        """Returns bytes [start, stop) of the content, which must be kept."""
        return bytes(self._kept[start - self._begin : stop - self._begin])

    def forget(self, position: int) -> None:
        """Lets go of everything before a position."""
        del self._kept[: position - self._begin]
        self._begin = position


Content = Unpacked | io.BufferedIOBase
"""An open file, or the content of a compressed one."""


@contextlib.contextmanager
def open_content(file: SourceFile) -> Iterator[Content]:
    """Opens a file as it is, or its content where it is compressed.

    Raises:
      OSError: also when it has changed since it was listed.
    """
    with file.open() as stored:
        packed = begins_packed(stored.read(4))
        stored.seek(0)
        yield Unpacked(stored, file.origin) if packed else stored


def content_of(file: SourceFile, most: int) -> bytes:
    """Returns the content of a file, unpacked where it is compressed, up to a limit.

    Raises:
      InputError: it has more; a compressed one is not unpacked further.
      OSError: also when it has changed since it was listed.
    """
    content = bytearray()
    with open_content(file) as stream:
        while len(content) <= most and (piece := stream.read(_PIECE_BYTES)):
            content += piece
    if len(content) > most:
        raise InputError(
            f"A file that is parsed as a whole must have at most {most:,} bytes; "
            f"{file.path!r} has more. Cut it into several files."
        )
    return bytes(content)
