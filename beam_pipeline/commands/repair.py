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
import tempfile

from beam_pipeline.datasets.dataset import (
    BareFiles,
    SingleFile,
    find_bare_files,
    open_files,
    open_target,
)
from beam_pipeline.terminal import count_text, print_line
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord.compression import Compression, detect, unpack
from transforms.core.tfrecord.frame import DAMAGE_KINDS, HEADER_BYTES
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.core.tfrecord.walk import Fetch, LostRange, Salvage
from transforms.core.tfrecord.writer import FrameFacts, FrameSink, TFRecordWriter
from transforms.errors import (
    BeamTFRecordError,
    CommitError,
    DamageError,
    TargetError,
    TFRecordError,
    UsageError,
    refusing,
)
from transforms.storage import paths
from transforms.storage.drafts import discarded_on_error, publish_together
from transforms.storage.files import storage
from transforms.storage.paths import is_remote

# A sound range may be the whole file, so it is copied in pieces.
_STEP_BYTES = 1 << 20


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
    repaired = 0
    for file, path in targets:
        try:
            facts, lost = repair_file(
                *(file.path, path), overwrite=overwrite, allow_empty=file.may_be_empty
            )
        except (BeamTFRecordError, OSError) as error:
            why = getattr(error, "strerror", None)
            text = f"{file.path}: cannot be repaired: {why}." if why else str(error)
            print_line(f"failed   {text}")
            continue
        for gap in lost:
            where = " of its content" if gap.of == "content" else ""
            print_line(
                f"skipped  {file.path}: bytes {gap.start:,} to {gap.stop:,}"
                f"{where}: {gap.kind}: {DAMAGE_KINDS[gap.kind]}"
            )
        written.append(facts)
        gaps += lost
        repaired += bool(lost)
    records = sum(facts.records for facts in written)
    size = sum(gap.stop - gap.start for gap in gaps)
    print_line(
        f"{target}: {count_text(records, 'record')} in "
        f"{count_text(len(written), 'file')}, {repaired:,} of them repaired; skipped "
        f"{count_text(len(gaps), 'range')} of {count_text(size, 'byte')}."
    )
    if os.path.exists(os.path.join(source, MANIFEST_NAME)):
        print_line(
            f"{target} has no {MANIFEST_NAME} and no files beside its shards. "
            f"'convert' makes a dataset of it; 'verify' says whether {source} held the "
            f"records that its manifest states."
        )
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
        shards = [shard for split in opened.manifest.splits for shard in split.shards]
        damaged = [SingleFile(opened.path(s.file), facts=s) for s in shards]
    names = [os.path.basename(file.path) for file in damaged]
    repeated = [name for name, n in collections.Counter(names).items() if n > 1]
    if repeated or not names:
        seen = f"{repeated[0]!r} is in several folders" if repeated else "there is none"
        raise UsageError(
            f"What is repaired must be files of different names; of {source!r} {seen}. "
            f"Repair one folder with TFRecord files at a time."
        )
    paths = [os.path.join(target, name) for name in names]
    return [*zip(damaged, paths, strict=True)]


def _check_targets(
    source: str, target: str, targets: list[tuple[SingleFile, str]], *, overwrite: bool
) -> None:
    """Makes the folder of the output; raises where it must not be written to."""
    folder = os.path.dirname(targets[0][1]) or "."
    is_inside = storage(source).is_folder() and storage(target).is_inside(source)
    if is_inside or os.path.lexists(os.path.join(folder, MANIFEST_NAME)):
        raise TargetError(
            f"The output must be outside of what is repaired, and of datasets; "
            f"{folder!r} is not. Name another folder."
        )
    for file, path in targets:
        # Also finds links and other spellings of one path.
        if os.path.exists(path) and os.path.samefile(file.path, path):
            raise UsageError(
                f"The output must be another file than the damaged one, "
                f"{file.path!r}: that is all there is of it."
            )
        if not overwrite and os.path.lexists(path):
            raise TargetError(
                f"The output must not exist; {path!r} does. Name another, or give "
                f"--overwrite."
            )
    what = f"The folder of the output must be writable; {folder!r} is not"
    with refusing(TargetError, what):
        os.makedirs(folder, exist_ok=True)


def repair_file(
    source: str, target: str, *, overwrite: bool, allow_empty: bool = False
) -> tuple[FrameFacts, list[LostRange]]:
    """Copies a file's undamaged records; returns their facts and the lost ranges.

    Args:
      source: the damaged file.
      target: where the output goes; its folder exists.
      overwrite: whether a file there may be replaced.
      allow_empty: whether a file without a record is sound.

    Raises:
      SourceError, OSError: the file cannot be read, or changed meanwhile.
      DamageError: no record in it is sound, or it is a damaged zlib stream; nothing
        was written.
      CommitError: there is a file already.
    """
    status = os.stat(source)
    stamp = paths.stamp(status.st_size, status.st_mtime_ns)

    def fetch(start: int, stop: int) -> bytes:
        return storage(source).read_range(start, stop, stamp=stamp)

    folder = os.path.dirname(target) or "."

    def check() -> None:
        if not overwrite and os.path.lexists(target):
            raise CommitError(
                f"The output must not exist, but {target!r} has been made since the "
                f"start. Nothing was written there; run again."
            )

    with discarded_on_error(storage(target).draft(attempts=folder)) as draft:
        facts, lost = _write_sound(source, fetch, status.st_size, draft, folder)
        if not facts.records and (lost or not allow_empty):
            raise DamageError(
                f"{source}: no record in its {status.st_size:,} bytes is sound: there "
                f"is nothing to keep, and nothing was written. Fetch it again."
            )
    # Behind the sync, which takes seconds for a large file.
    publish_together([draft], check=check)
    storage(folder).sync_directory()
    return facts, lost


def _write_sound(
    source: str, fetch: Fetch, size: int, sink: FrameSink, folder: str
) -> tuple[FrameFacts, list[LostRange]]:
    """Copies a file's undamaged records; returns their facts and the lost ranges.

    Raises:
      DamageError: it is of another compression, or a damaged zlib stream.
    """
    compression = detect(fetch(0, min(size, HEADER_BYTES)), path=source)
    if compression is Compression.NONE:
        return _salvage(fetch, size, sink, compression)
    with contextlib.suppress(TFRecordError):
        reader = TFRecordReader(source, allow_empty=True)
        facts = reader.verify()
        # Some readers fail on zeros behind a gzip stream.
        if not reader.padding_bytes:
            # Compressing it again would give other bytes.
            for start in range(0, size, _STEP_BYTES):
                sink.write(fetch(start, min(start + _STEP_BYTES, size)))
            return facts, []
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
        facts, lost = _salvage(unpacked, content.tell(), sink, compression)
    return facts, [*lost, *([fault] if fault else [])]


def _salvage(
    fetch: Fetch, size: int, sink: FrameSink, compression: Compression
) -> tuple[FrameFacts, list[LostRange]]:
    """Writes the sound records; returns the facts of the file and the lost ranges."""
    of = "file" if compression is Compression.NONE else "content"
    lost = []
    with TFRecordWriter(sink, compression=compression) as writer:
        for piece in Salvage(fetch, size):
            if isinstance(piece, LostRange):
                lost.append(dataclasses.replace(piece, of=of))
                continue
            for start in range(piece.start, piece.stop, _STEP_BYTES):
                data = fetch(start, min(start + _STEP_BYTES, piece.stop))
                writer.write_framed(data, records=0)
            writer.write_framed(b"", records=piece.records)
    return writer.facts(), lost
