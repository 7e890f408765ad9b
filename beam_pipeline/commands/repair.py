"""The command `repair`: copy every sound record of damaged files, list the losses.

Of a dataset only the shards are copied: what the manifest and the files beside the
shards state would be wrong of other records.

A plain file is read where it is; a damaged gzip stream is unpacked first, up to the
fault, to a file without a name in the folder of the output. The output has the
compression of the input, and appears under its name only when it is whole. A file in
which nothing is damaged is copied byte for byte.
"""

import collections
import contextlib
import dataclasses
import os
import secrets
import tempfile
from collections.abc import Callable

from beam_pipeline.datasets.dataset import (
    BareFiles,
    SingleFile,
    find_bare_files,
    open_files,
    open_target,
)
from beam_pipeline.terminal.printing import print_prose, print_text, printable
from beam_pipeline.terminal.words import count_text
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord import (
    FrameFacts,
    FrameSink,
    TFRecordReader,
    TFRecordWriter,
)
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import DAMAGE_KINDS, HEADER_BYTES
from transforms.core.tfrecord.walk import Fetch, LostRange, Salvage, unpack
from transforms.errors import (
    DamageError,
    InputError,
    SourceError,
    StorageError,
    TargetError,
    TFRecordError,
    UsageError,
)
from transforms.storage import entries, folders
from transforms.storage.files import storage
from transforms.storage.paths import is_remote

# A sound range may be the whole file, so it is copied in pieces.
_STEP_BYTES = 1 << 20

_Add = Callable[[LostRange], object]


def run(source: str, target: str, *, overwrite: bool) -> int:
    """Repairs and prints; returns 0 when there is an output for every file, else 1.

    Raises:
      UsageError: there is nothing to repair, or the output cannot be written there.
    """
    if is_remote(source) or is_remote(target):
        raise UsageError(
            "Only files of this machine are repaired; copy the damaged ones here, "
            "repair them, and copy the result back."
        )
    targets = _targets(source, target)
    _check_targets(source, target, targets, overwrite=overwrite)
    written: list[FrameFacts] = []
    gaps: list[LostRange] = []
    notes: list[str] = []
    repaired = 0
    for file, path in targets:
        before = len(gaps)

        def skipped(gap: LostRange, path: str = file.path) -> None:
            gaps.append(gap)
            where = " of its content" if gap.of == "content" else ""
            print_text(
                f"skipped  {printable(path)}: bytes {gap.start:,} to {gap.stop:,}"
                f"{where}: {gap.kind}: {DAMAGE_KINDS[gap.kind]}"
            )

        try:
            facts = repair_file(
                *(file.path, path),
                overwrite=overwrite,
                skipped=skipped,
                allow_empty=file.may_be_empty,
            )
        except (DamageError, SourceError) as error:
            print_prose(f"damage   {printable(str(error))}")
            del gaps[before:]
            continue
        written.append(facts)
        stated = file.facts
        if len(gaps) > before:
            repaired += 1
        elif stated and (facts.stored_bytes, facts.crc32c) != (
            stated.bytes,
            stated.crc32c,
        ):
            notes.append(
                f"{file.path} is sound, but not what the manifest states: it holds "
                f"{count_text(facts.records, 'record')} of {stated.records:,}."
            )
    if os.path.exists(os.path.join(source, MANIFEST_NAME)):
        notes.append(
            f"{target} has no {MANIFEST_NAME} and no files beside its shards. "
            f"'convert' makes a dataset of it."
        )
    records = sum(facts.records for facts in written)
    size = sum(gap.stop - gap.start for gap in gaps)
    print_prose(
        f"{printable(target)}: {count_text(records, 'record')} in "
        f"{count_text(len(written), 'file')}, {repaired:,} of them repaired; skipped "
        f"{count_text(len(gaps), 'range')} of {count_text(size, 'byte')}."
    )
    for note in notes:
        print_prose(printable(note))
    return 0 if len(written) == len(targets) else 1


def _targets(source: str, target: str) -> list[tuple[SingleFile, str]]:
    """Returns the files to repair, and where the output of each goes."""
    try:
        opened = open_files(source)
    except DamageError:
        # Shards may be sound where the manifest is damaged.
        opened = find_bare_files(source) or open_target(source)
    if isinstance(opened, SingleFile):
        if os.path.isdir(target):
            target = os.path.join(target, os.path.basename(source))
        return [(opened, target)]
    if isinstance(opened, BareFiles):
        damaged = opened.files
    else:
        damaged = [
            SingleFile(opened.path(shard.file), facts=shard)
            for split in opened.manifest.splits
            for shard in split.shards
        ]
    if not damaged:
        raise UsageError(
            f"A dataset that is repaired must have shards; {source!r} has none."
        )
    names = [os.path.basename(file.path) for file in damaged]
    name, count = collections.Counter(names).most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"Files of a pattern must differ in their names, by which they go to "
            f"{target!r}; {name!r} is in several folders. Repair one folder at a time."
        )
    return [
        (file, os.path.join(target, name))
        for file, name in zip(damaged, names, strict=True)
    ]


def _check_targets(
    source: str, target: str, targets: list[tuple[SingleFile, str]], *, overwrite: bool
) -> None:
    """Makes the folder of the output; raises where it cannot be written to."""
    if storage(source).is_folder() and storage(target).is_inside(source):
        raise TargetError(
            f"The output must be outside of what is repaired, or the next run would "
            f"read it; {target!r} is in {source!r}. Name another folder."
        )
    folder = os.path.dirname(targets[0][1]) or "."
    if os.path.lexists(os.path.join(folder, MANIFEST_NAME)):
        raise TargetError(
            f"The output must be outside of datasets, whose manifests say what is in "
            f"them; {folder!r} has one. Name another folder."
        )
    for file, path in targets:
        with contextlib.suppress(OSError):
            # Also finds links and other spellings of one path.
            if os.path.samefile(file.path, path):
                raise UsageError(
                    f"The output must be another file than the damaged one, "
                    f"{file.path!r}: that is all there is of it."
                )
        if not overwrite and os.path.lexists(path):
            raise TargetError(
                f"The output must not exist; {path!r} does. Name another, or give "
                f"--overwrite."
            )
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise TargetError(
            f"The folder of the output must be writable; {folder!r} is not: "
            f"{error.strerror}."
        ) from error


def repair_file(
    source: str,
    target: str,
    *,
    overwrite: bool,
    skipped: _Add,
    allow_empty: bool = False,
) -> FrameFacts:
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
    gaps: list[LostRange] = []

    def add(gap: LostRange) -> None:
        gaps.append(gap)
        skipped(gap)

    fetch, size = _reader_of(source)
    try:
        with storage(path).create(attempts=folder) as sink:
            facts = _write_sound(source, fetch, size, sink, folder, add)
        if not facts.records and (gaps or not allow_empty):
            raise DamageError(
                f"{source}: no record in its {size:,} bytes is sound: there is nothing "
                f"to keep, and nothing was written. Fetch it again."
            )
        if overwrite:
            os.replace(path, target)
        else:
            folders.move_new(path, target)
    except BaseException:
        storage(path).remove_file()
        raise
    storage(folder).sync_directory()
    return facts


def _reader_of(path: str) -> tuple[Fetch, int]:
    """Returns what reads a file, and its size.

    Both raise InputError: the file cannot be read, or has changed since this call.
    """

    def fetch(start: int, stop: int) -> bytes:
        try:
            return storage(path).read_range(start, stop, stamp=stamp)
        except (OSError, StorageError) as error:
            raise InputError(
                f"{path}: cannot be read at byte {start:,}: "
                f"{getattr(error, 'strerror', None) or error}."
            ) from error

    try:
        status = os.stat(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}.") from error
    stamp = entries.stamp(status.st_size, status.st_mtime_ns)
    return fetch, status.st_size


def _write_sound(
    source: str, fetch: Fetch, size: int, sink: FrameSink, folder: str, add: _Add
) -> FrameFacts:
    """Writes what is sound of a file; returns the facts of what is written.

    Raises:
      DamageError: it is of another compression, or a damaged zlib stream.
    """
    compression = detect(fetch(0, min(size, HEADER_BYTES)), path=source)
    if compression is Compression.NONE:
        return _salvage(fetch, size, sink, compression, add)
    with contextlib.suppress(TFRecordError):
        reader = TFRecordReader(source, allow_empty=True)
        facts = reader.verify()
        # Some readers fail on zeros behind a gzip stream.
        if not reader.padding_bytes:
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


def _salvage(
    fetch: Fetch, size: int, sink: FrameSink, compression: Compression, add: _Add
) -> FrameFacts:
    """Writes the sound records; returns the facts of the file."""
    of = "file" if compression is Compression.NONE else "content"
    with TFRecordWriter(sink, compression=compression) as writer:
        for piece in Salvage(fetch, size):
            if isinstance(piece, LostRange):
                add(dataclasses.replace(piece, of=of))
                continue
            for start in range(piece.start, piece.stop, _STEP_BYTES):
                data = fetch(start, min(start + _STEP_BYTES, piece.stop))
                writer.write_framed(data, records=0)
            writer.write_framed(b"", records=piece.records)
    return writer.facts()
