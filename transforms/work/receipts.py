"""Receipts that finished tasks leave in the work folder for later runs.

A task whose results a later run may reuse writes a receipt when they are complete. The
receipt's name is a digest of all that decides the results, so any receipt found is
valid. Its content is the CRC32C in 8 hex digits, a space, and the facts of the results
as `transforms.work.facts_json` writes them:

    <digest>-<n>.piece     the n-th piece of a block: what `read` and `place` gave
    <digest>.block         how many pieces the block has, once `read` has seen them all
    <digest>.shard         a finished shard
    <digest>.blocks        the blocks of one input

The files that a receipt names are checked against their checksums before reuse.
Receipts are not synced: one damaged by a power loss is ignored.
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any

import google_crc32c

from transforms import files
from transforms.core.model import (
    Block,
    Piece,
    PlaceFacts,
    ReadFacts,
    RejectLog,
    Segment,
    ShardFile,
    ShardKey,
)
from transforms.core.placing.leakage import Fingerprints
from transforms.work.facts_json import from_json, to_json
from transforms.work.store import Store

__all__ = [
    "Done",
    "PieceDone",
    "ShardDone",
    "count_finished",
    "find_block",
    "find_blocks",
    "find_shard",
    "keep_block",
    "keep_blocks",
    "keep_for_next",
    "keep_piece",
    "keep_shard",
    "new_rejects",
]

_CHUNK_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class PieceDone:
    """What `read` and `place` gave for one piece of a block."""

    read: ReadFacts
    placed: PlaceFacts
    rejects: tuple[RejectLog, ...]
    segments: tuple[tuple[ShardKey, Segment], ...]
    fingerprints: Fingerprints | None

    def parts(self) -> list[Segment]:
        """Returns the parts of files that belong to it; those in memory too."""
        return [*(segment for _, segment in self.segments), *_prints(self)]

    def logs(self) -> list[RejectLog]:
        """Returns its rejects, in files or none."""
        return [*self.rejects]


@dataclasses.dataclass(frozen=True, slots=True)
class ShardDone:
    """What `write` gave for one shard."""

    shard: ShardFile
    rejects: RejectLog | None
    fingerprints: Fingerprints | None

    def parts(self) -> list[Segment]:
        """Returns the parts of files that belong to it, beside the shard."""
        return _prints(self)

    def logs(self) -> list[RejectLog]:
        """Returns its rejects, in a file or none."""
        return [] if self.rejects is None else [self.rejects]


Done = PieceDone | ShardDone


def _prints(done: Done) -> list[Segment]:
    return [] if done.fingerprints is None else [done.fingerprints.segment]


def keep_piece(store: Store, piece: Piece, done: PieceDone) -> None:
    """Leaves the receipt of a piece whose segments are stored."""
    facts = [getattr(done, field.name) for field in dataclasses.fields(done)]
    name = f"{piece.input_digest}-{piece.number}.piece"
    _keep(store, name, [facts, _sums(done.logs())])


def keep_block(store: Store, input_digest: str, pieces: int) -> None:
    """Leaves word that all pieces of a block have been read."""
    _keep(store, f"{input_digest}.block", pieces)


def find_block(store: Store, input_digest: str) -> list[PieceDone] | None:
    """Returns all pieces of a block that an earlier run has read and placed.

    None: some are missing, or damaged.
    """
    pieces = _find(store, f"{input_digest}.block")
    if not isinstance(pieces, int):
        return None
    out = []
    for number in range(pieces):
        found = _find(store, f"{input_digest}-{number}.piece")
        if found is None:
            return None
        facts, sums = found
        done = _moved(PieceDone(*facts), store)
        if not _whole(done.parts()) or _sums(done.logs()) != sums:
            return None
        out.append(done)
    return out


def keep_shard(store: Store, input_digest: str, done: ShardDone) -> None:
    """Leaves the receipt of a shard that is under its name."""
    facts = [getattr(done, field.name) for field in dataclasses.fields(done)]
    _keep(store, f"{input_digest}.shard", [facts, _sums(done.logs())])


def find_shard(store: Store, input_digest: str) -> ShardDone | None:
    """Returns a shard that an earlier run has finished, if it is whole."""
    found = _find(store, f"{input_digest}.shard")
    if found is None:
        return None
    facts, sums = found
    done: ShardDone = _moved(ShardDone(*facts), store)
    path = os.path.join(store.dataset, done.shard.name)
    stated = done.shard.bytes, done.shard.crc32c
    if _checksum(path) != stated or not _whole(done.parts()):
        return None
    if _sums(done.logs()) != sums:
        return None
    return done


def keep_blocks(
    store: Store, listed_as: str, position: int, blocks: Sequence[Block]
) -> None:
    """Leaves the blocks of an input; `position` is what they count theirs from."""
    rows = [
        list(
            dataclasses.astuple(dataclasses.replace(b, position=b.position - position))
        )
        for b in blocks
    ]
    _keep(store, f"{listed_as}.blocks", rows)


def find_blocks(store: Store, listed_as: str, position: int) -> list[Block] | None:
    """Returns the blocks of an input as an earlier run has cut them."""
    rows = _find(store, f"{listed_as}.blocks")
    if rows is None:
        return None
    blocks = [Block(*row) for row in rows]
    return [dataclasses.replace(b, position=b.position + position) for b in blocks]


def new_rejects(store: Store, seen: set[str]) -> int:
    """Returns how many items were rejected by tasks that have finished meanwhile.

    Args:
      store: of a run that may be at work.
      seen: names of the receipts that were counted before; new ones are added.
    """
    count = 0
    with contextlib.suppress(FileNotFoundError):
        for name in set(files.names_in(store.receipts)) - seen:
            seen.add(name)
            kind = name.rpartition(".")[2]
            if kind not in ("piece", "shard"):
                continue
            if (found := _find(store, name)) is None:
                continue
            done = PieceDone(*found[0]) if kind == "piece" else ShardDone(*found[0])
            count += sum(log.items for log in done.logs())
    return count


def count_finished(store: Store) -> tuple[int, int]:
    """Returns how many finished blocks and shards a job has left."""
    try:
        names = files.names_in(store.receipts)
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    return (
        sum(name.endswith(".block") for name in names),
        sum(name.endswith(".shard") for name in names),
    )


def keep_for_next(store: Store) -> None:
    """Removes all of a published job but the finished blocks that it has used."""
    _prune(store, json.loads(files.read_bytes(store.used)))
    for name in files.names_in(store.folder):
        path = os.path.join(store.folder, name)
        if path not in (store.receipts, store.segments, store.rejects):
            remove = store.remove_tree if files.is_folder(path) else store.remove_file
            remove(path)


def _prune(store: Store, used: Sequence[str]) -> None:
    """Removes the receipts and segments of blocks whose input digests are not used."""
    keep = frozenset(used)
    named: set[str] = set()
    for name in files.names_in(store.receipts):
        stem, _, kind = name.rpartition(".")
        if kind == "blocks":
            continue
        if kind == "shard" or stem.partition("-")[0] not in keep:
            store.remove_file(os.path.join(store.receipts, name))
        elif kind == "piece" and (found := _find(store, name)) is not None:
            done = PieceDone(*found[0])
            paths = [part.path for part in done.parts()]
            paths += [log.path for log in done.logs()]
            named.update(map(os.path.basename, paths))
    for folder in (store.segments, store.rejects):
        # An object store has no empty folders.
        with contextlib.suppress(FileNotFoundError):
            for name in files.names_in(folder):
                if name not in named:
                    store.remove_file(os.path.join(folder, name))


def _keep(store: Store, name: str, facts: Any) -> None:
    path = os.path.join(store.receipts, name)
    text = to_json(facts)
    data = b"%08x " % google_crc32c.value(text) + text
    files.write_file(path, data, attempts=store.attempts, durable=False)


def _find(store: Store, name: str) -> Any:
    try:
        data = files.read_bytes(os.path.join(store.receipts, name))
        stated, _, text = data.partition(b" ")
        if stated != b"%08x" % google_crc32c.value(text):
            return None
        return from_json(text)
    except (FileNotFoundError, ValueError):
        return None


def _moved(done: Any, store: Store) -> Any:
    """Returns the facts with the paths of files as they are now."""
    if isinstance(done, Segment):
        folder = store.segments
    elif isinstance(done, RejectLog):
        folder = store.rejects
    elif isinstance(done, tuple):
        return tuple(_moved(item, store) for item in done)
    elif isinstance(done, PieceDone | ShardDone | Fingerprints):
        names = [field.name for field in dataclasses.fields(done)]
        moved = {name: _moved(getattr(done, name), store) for name in names}
        return dataclasses.replace(done, **moved)
    else:
        return done
    if not done.path:
        return done
    path = os.path.join(folder, os.path.basename(done.path))
    return dataclasses.replace(done, path=path)


def _whole(segments: Sequence[Segment]) -> bool:
    for segment in segments:
        if not segment.path:
            continue
        try:
            data = files.read_range(
                segment.path, segment.offset, segment.offset + segment.size
            )
        except OSError:
            return False
        if google_crc32c.value(data) != segment.crc32c:
            return False
    return True


def _sums(logs: Sequence[RejectLog]) -> list[list[int] | None]:
    """Returns the checksums of the logs that are in files."""
    found = [_checksum(log.path) for log in logs if log.path]
    return [None if sums is None else list(sums) for sums in found]


def _checksum(path: str) -> tuple[int, int] | None:
    """Returns the size and the CRC32C of a file; None where it cannot be read."""
    try:
        size, crc, offset = files.size_of(path), 0, 0
        while offset < size:
            stop = min(offset + _CHUNK_BYTES, size)
            crc = google_crc32c.extend(crc, files.read_range(path, offset, stop))
            offset = stop
    except OSError:
        return None
    return size, crc
