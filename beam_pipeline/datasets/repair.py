"""Repair one TFRecord file: copy its sound records to a new file.

A plain file is read where it is; a damaged gzip stream is unpacked first, up to the
fault, to a file without a name in the folder of the output. The output has the
compression of the input, and appears under its name only when it is whole. A file in
which nothing is damaged is copied byte for byte.
"""

import dataclasses
import os
import secrets
import tempfile
from collections.abc import Callable

from transforms import files
from transforms.core.tfrecord import FileFacts, Sink, TFRecordReader, TFRecordWriter
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.core.tfrecord.salvage import Fetch, Salvage, Skipped, unpack
from transforms.errors import DamageError, InputError, StorageError, TFRecordError
from transforms.storage import folders

# A sound range may be the whole file, so it is copied in pieces.
_STEP_BYTES = 1 << 20

_Add = Callable[[Skipped], object]


def repair_file(
    source: str,
    target: str,
    *,
    overwrite: bool,
    skipped: _Add,
    allow_empty: bool = False,
) -> FileFacts:
    """Writes what is sound of a file to another; returns the facts of that.

    Args:
      source: the damaged file.
      target: where the output goes; its folder exists.
      overwrite: whether a file there may be replaced.
      skipped: called with every skipped range.
      allow_empty: whether a file without a record is sound.

    Raises:
      InputError: the file cannot be read, or changed meanwhile.
      DamageError: no record in it is sound, or it is a damaged zlib stream; nothing
        was written.
      CommitError: there is a file already.
    """
    folder = os.path.dirname(target) or "."
    path = os.path.join(folder, f".repair-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    ranges = 0

    def add(found: Skipped) -> None:
        nonlocal ranges
        ranges += 1
        skipped(found)

    fetch, size = _reader_of(source)
    try:
        with files.create(path, attempts=folder) as sink:
            facts = _write_sound(source, fetch, size, sink, folder, add)
        if not facts.records and (ranges or not allow_empty):
            raise DamageError(
                f"{source}: no record in its {size:,} bytes is sound: there is nothing "
                f"to keep, and nothing was written. Fetch it again."
            )
        if overwrite:
            os.replace(path, target)
        else:
            folders.move_new(path, target)
    except BaseException:
        files.remove_file(path)
        raise
    files.sync_directory(folder)
    return facts


def _reader_of(path: str) -> tuple[Fetch, int]:
    """Returns what reads a file, and its size.

    Both raise InputError: the file cannot be read, or has changed since this call.
    """

    def fetch(start: int, stop: int) -> bytes:
        try:
            return files.read_range(path, start, stop, stamp=stamp)
        except (OSError, StorageError) as error:
            raise InputError(
                f"{path}: cannot be read at byte {start:,}: "
                f"{getattr(error, 'strerror', None) or error}."
            ) from error

    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    stamp = files.stamp(status.st_size, status.st_mtime_ns)
    return fetch, status.st_size


def _write_sound(
    source: str, fetch: Fetch, size: int, sink: Sink, folder: str, add: _Add
) -> FileFacts:
    """Writes what is sound of a file; returns the facts of what is written.

    Raises:
      DamageError: it is of another compression, or a damaged zlib stream.
    """
    compression = detect(fetch(0, min(size, HEADER_BYTES)), path=source)
    if compression is Compression.NONE:
        return _salvage(fetch, size, sink, compression, add)
    if (facts := _facts_of_sound(source)) is not None:
        # Compressing it again would give other bytes.
        for start in range(0, size, _STEP_BYTES):
            sink.write(fetch(start, min(start + _STEP_BYTES, size)))
        return facts
    if compression is Compression.ZLIB:
        raise DamageError(
            f"{source}: a damaged zlib stream is not repaired. Unpack what can be "
            f"unpacked, and repair that."
        )
    # It has no name, so that it vanishes even if the process is killed.
    with tempfile.TemporaryFile(dir=folder) as content:

        def unpacked(start: int, stop: int) -> bytes:
            return os.pread(content.fileno(), stop - start, start)

        fault = unpack(fetch, size, content.write)
        content.flush()
        facts = _salvage(unpacked, content.tell(), sink, compression, add)
    if fault is not None:
        add(fault)
    return facts


def _facts_of_sound(path: str) -> FileFacts | None:
    """Returns the facts of a compressed file; None where something is damaged."""
    reader = TFRecordReader(path, allow_empty=True)
    try:
        facts = reader.verify()
    except TFRecordError:
        return None
    # Some readers fail on zeros behind a gzip stream.
    return None if reader.padding_bytes else facts


def _salvage(
    fetch: Fetch, size: int, sink: Sink, compression: Compression, add: _Add
) -> FileFacts:
    """Writes the sound records; returns the facts of the file."""
    of = "file" if compression is Compression.NONE else "content"
    with TFRecordWriter(sink, compression=compression) as writer:
        for part in Salvage(fetch, size):
            if isinstance(part, Skipped):
                add(dataclasses.replace(part, of=of))
                continue
            for start in range(part.start, part.stop, _STEP_BYTES):
                data = fetch(start, min(start + _STEP_BYTES, part.stop))
                writer.write_framed(data, records=0)
            writer.write_framed(b"", records=part.records)
    return writer.facts()
