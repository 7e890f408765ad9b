"""Repair one TFRecord file: copy its sound records to a new file.

A plain file is read where it is; a damaged gzip stream is unpacked first, up to the
fault, to a file without a name in the folder of the output. The output has the
compression of the input, and appears under its name only when it is whole. A file in
which nothing is damaged is copied byte for byte.
"""

import contextlib
import dataclasses
import os
import secrets
import tempfile
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO, cast

from transforms import files
from transforms.core.regular_files import open_regular
from transforms.core.tfrecord import FileFacts, Sink, TFRecordReader, TFRecordWriter
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.core.tfrecord.salvage import Salvage, Skipped, unpack
from transforms.errors import DamageError, InputError, TargetError, TFRecordError
from transforms.storage import folders

# A salvaged range may be the whole file, so it is copied in pieces.
_STEP_BYTES = 1 << 20
_CHANGED = "the file changed while it was read. Repair it when its writer is done."


@dataclasses.dataclass(frozen=True, slots=True)
class Range:
    """Bytes [start, stop) that did not go into the output.

    Attributes:
      start, stop: where they are.
      of: "file" (as stored) or "content" (of a compressed file, unpacked).
      kind: a word of `frame.DAMAGE_KINDS`.
    """

    start: int
    stop: int
    of: str
    kind: str


@dataclasses.dataclass(frozen=True, slots=True)
class Repaired:
    """What became of one file.

    Attributes:
      facts: of the output.
      is_copy: whether nothing was damaged.
      ranges: how many were skipped.
      skipped_bytes: in all of them.
    """

    facts: FileFacts
    is_copy: bool
    ranges: int
    skipped_bytes: int


def repair_file(
    source: str,
    target: str,
    *,
    overwrite: bool,
    skipped: Callable[[Range], object],
    allow_empty: bool = False,
) -> Repaired:
    """Writes what is sound of a file to another.

    Args:
      source: the damaged file.
      target: where the output goes; its folder exists.
      overwrite: whether a file there may be replaced.
      skipped: called with every skipped range, in the file's order.
      allow_empty: whether a file without a record is sound.

    Raises:
      InputError: the file cannot be read, or changed meanwhile.
      DamageError: no record in it is sound, or it is a damaged zlib stream; nothing
        was written.
      TargetError: there is a file already, or none can be written.
    """
    if not overwrite and os.path.lexists(target):
        raise TargetError(
            f"The output must not exist; {target!r} does. Name another, or give "
            f"--overwrite."
        )
    folder = os.path.dirname(target) or "."
    log = _Log(skipped)
    with contextlib.ExitStack() as stack:
        stored = stack.enter_context(_stored(source))
        spool = stack.enter_context(_spool(folder))
        with _appearing(target, overwrite=overwrite) as path:
            with files.create(path, attempts=folder) as sink:
                facts = _write_sound(stored, sink, spool, log)
            stored.check_unchanged()
            if not facts.records and (log.ranges or not allow_empty):
                raise DamageError(
                    f"{source}: no record in its {stored.size:,} bytes is sound: there "
                    f"is nothing to keep, and nothing was written. Fetch it again."
                )
    return Repaired(facts, not log.ranges, log.ranges, log.bytes)


class _Bytes:
    """A file that is read at any offset.

    The last read is cached, because a sound record is checked first and then copied.
    """

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.file = cast(BinaryIO, file)
        self._descriptor = file.fileno()
        self.name = name
        self._stamp = files.stamp_of(file)
        self.size = os.fstat(self._descriptor).st_size
        self._last = b""
        self._last_start = 0

    def fetch(self, start: int, stop: int) -> bytes:
        """Returns bytes [start, stop); raises InputError where they are not there."""
        begin, end = start - self._last_start, stop - self._last_start
        if not 0 <= begin <= end <= len(self._last):
            self._last = self._read(start, stop)
            self._last_start = start
            return self._last
        return self._last[begin:end]

    def _read(self, start: int, stop: int) -> bytes:
        parts = []
        while start < stop:
            try:
                data = os.pread(self._descriptor, stop - start, start)
            except OSError as error:
                raise InputError(
                    f"{self.name}: cannot be read at byte {start:,}: {error.strerror}."
                ) from error
            if not data:
                raise InputError(f"{self.name}: {_CHANGED}")
            parts.append(data)
            start += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_unchanged(self) -> None:
        """Raises InputError where the file was written to since it was opened."""
        if files.stamp_of(self._descriptor) != self._stamp:
            raise InputError(f"{self.name}: {_CHANGED}")


class _Log:
    """Counts the ranges on their way to the caller's function."""

    def __init__(self, skipped: Callable[[Range], object]) -> None:
        self._skipped = skipped
        self.ranges = 0
        self.bytes = 0

    def add(self, found: Range) -> None:
        """Counts a range."""
        self.ranges += 1
        self.bytes += found.stop - found.start
        self._skipped(found)


@contextlib.contextmanager
def _stored(source: str) -> Iterator[_Bytes]:
    """Opens the file."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(
                open(source, "rb", buffering=0, opener=open_regular)
            )
        except OSError as error:
            raise InputError(
                f"{source}: cannot be read: {error.strerror or error}."
            ) from error
        yield _Bytes(file, source)


@contextlib.contextmanager
def _spool(folder: str) -> Iterator[IO[bytes]]:
    """Yields a file without a name, which vanishes even if the process is killed."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            yield file
    except FileNotFoundError as error:
        raise TargetError(
            f"The folder of the output must exist; {folder!r} does not."
        ) from error


def _write_sound(stored: _Bytes, sink: Sink, spool: IO[bytes], log: _Log) -> FileFacts:
    """Writes what is sound of a file; returns the facts of what is written.

    Raises:
      DamageError: it is of another compression, or a damaged zlib stream.
    """
    head = stored.fetch(0, min(stored.size, HEADER_BYTES))
    compression = detect(head, path=stored.name)
    if compression is Compression.NONE:
        return _salvage(stored, sink, compression, log)
    if (facts := _facts_of_sound(stored)) is not None:
        # Compressing it again would give other bytes.
        _copy(stored, 0, stored.size, sink.write)
        return facts
    if compression is Compression.ZLIB:
        raise DamageError(
            f"{stored.name}: a damaged zlib stream is not repaired. Unpack what can be "
            f"unpacked, and repair that."
        )
    fault = unpack(stored.fetch, stored.size, spool.write)
    spool.flush()
    facts = _salvage(_Bytes(spool, stored.name), sink, compression, log)
    if fault is not None:
        log.add(Range(fault.start, fault.stop, "file", fault.kind))
    return facts


def _facts_of_sound(stored: _Bytes) -> FileFacts | None:
    """Returns the facts of a compressed file; None where something is damaged."""
    stored.file.seek(0)
    reader = TFRecordReader(stored.file, allow_empty=True)
    try:
        facts = reader.verify()
    except TFRecordError:
        return None
    # Some readers fail on zeros behind a gzip stream.
    return None if reader.padding_bytes else facts


def _salvage(
    content: _Bytes, sink: Sink, compression: Compression, log: _Log
) -> FileFacts:
    """Writes the sound records; returns the facts of the file."""
    of = "file" if compression is Compression.NONE else "content"
    with TFRecordWriter(sink, compression=compression) as writer:

        def add(data: bytes) -> None:
            writer.write_framed(data, records=0)

        for part in Salvage(content.fetch, content.size):
            if isinstance(part, Skipped):
                log.add(Range(part.start, part.stop, of, part.kind))
                continue
            _copy(content, part.start, part.stop, add)
            writer.write_framed(b"", records=part.records)
    return writer.facts()


def _copy(
    content: _Bytes, start: int, stop: int, write: Callable[[bytes], object]
) -> None:
    for begin in range(start, stop, _STEP_BYTES):
        write(content.fetch(begin, min(begin + _STEP_BYTES, stop)))


@contextlib.contextmanager
def _appearing(target: str, *, overwrite: bool) -> Iterator[str]:
    """Yields a temporary path in the target's folder; renames it at the end."""
    folder = os.path.dirname(target) or "."
    path = os.path.join(folder, f".repair-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield path
        if overwrite:
            os.replace(path, target)
        else:
            folders.move_new(path, target)
    except BaseException:
        files.remove_file(path)
        raise
    files.sync_directory(folder)
