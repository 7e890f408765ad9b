"""Receipts that finished tasks leave in the work folder for later runs.

A task whose results a later run may reuse writes a receipt when they are complete. The
receipt's name is a digest of all that decides the results, so any receipt found is
valid. Its content is the facts of the results as `transforms.core.json_text`
writes them, compressed by zlib, which adds a checksum. A receipt whose fields are
others is of another version: the task is done again.

    <digest>-<n>.piece     the n-th piece of a block: what `read` and `place` gave
    <digest>.block         how many pieces the block has, once `read` has seen them all
    <digest>-<n>.shards    n shards that were finished together
    <digest>.blocks        the blocks of one input

Shards may be many and small, so a receipt is of a group of them, named by the digest of
their digests. It has a line a shard: its digest and its facts.

The files that a receipt names are checked against their checksums before reuse.
Receipts are not synced: one damaged by a power loss is ignored.
"""

import dataclasses
import hashlib
import os
import re
import zlib
from collections.abc import Sequence
from typing import Any

from transforms.core.json_text import from_json, to_json
from transforms.core.model import (
    Piece,
    PlaceFacts,
    ReadFacts,
    RejectLog,
    ShardFile,
    ShardKey,
)
from transforms.core.placing.leakage import Fingerprints
from transforms.core.segment import Segment
from transforms.storage.files import storage
from transforms.work.store import Store, crc32c_of

# The fastest. Of a block that has a segment for each of thousands of shards, the fields
# are alike.
_COMPRESSION = 1
# Receipts of shards, and how many each is of.
_GROUP = re.compile(r"[0-9a-f]+-(\d+)\.shards")


@dataclasses.dataclass(frozen=True, slots=True)
class PieceDone:
    """What `read` and `place` gave for one piece of a block."""

    read: ReadFacts
    placed: PlaceFacts
    segments: tuple[tuple[ShardKey, Segment], ...]
    rejects: tuple[RejectLog, ...] = ()
    fingerprints: Fingerprints | None = None

    def parts(self) -> list[Segment]:
        """Returns the parts of files that belong to it; those in memory too."""
        segments = (segment for _, segment in self.segments)
        return [*segments, *self.placed.labels.values(), *_fingerprint_segments(self)]


@dataclasses.dataclass(frozen=True, slots=True)
class ShardDone:
    """What `write` gave for one shard.

    Attributes:
      shard: its file, and those of its indexes.
      rejects: the rows that it refused; one log at most.
      fingerprints: of its images, where splits are compared.
      rows: its rows of the catalogue, where there is one.
    """

    shard: ShardFile
    rejects: tuple[RejectLog, ...] = ()
    fingerprints: Fingerprints | None = None
    rows: Segment | None = None

    def parts(self) -> list[Segment]:
        """Returns the parts of files that belong to it, beside the shard."""
        return [*_fingerprint_segments(self), *filter(None, [self.rows])]


def _fingerprint_segments(done: PieceDone | ShardDone) -> list[Segment]:
    """Returns the segment of the fingerprints, in a list; an empty one without any."""
    return [] if done.fingerprints is None else [done.fingerprints.segment]


def keep_piece(store: Store, piece: Piece, done: PieceDone) -> None:
    """Leaves the receipt of a piece whose segments are stored."""
    name = f"{piece.input_digest}-{piece.number}.piece"
    _write_receipt(store, name, to_json(done))


def keep_block(store: Store, input_digest: str, pieces: int) -> None:
    """Leaves word that all pieces of a block have been read."""
    _write_receipt(store, f"{input_digest}.block", to_json(pieces))


def find_block(store: Store, input_digest: str) -> list[PieceDone] | None:
    """Returns all pieces of a block that an earlier run has read and placed.

    None: some are missing, or damaged.
    """
    pieces = _find(store, f"{input_digest}.block", int)
    if pieces is None:
        return None
    out = []
    for number in range(pieces):
        read = _find(store, f"{input_digest}-{number}.piece", PieceDone)
        if read is None or (done := _whole(read, store)) is None:
            return None
        out.append(done)
    return out


def keep_shards(store: Store, shards: Sequence[tuple[str, ShardDone]]) -> None:
    """Leaves one receipt of shards that are under their names.

    Args:
      store: of the job.
      shards: their input digests, and what `write` gave; none leave no receipt.
    """
    if not shards:
        return
    lines = [b"%s %s" % (digest.encode(), to_json(done)) for digest, done in shards]
    digests = "\n".join(input_digest for input_digest, _ in shards)
    name = hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()
    _write_receipt(store, f"{name}-{len(shards)}.shards", b"\n".join(lines))


class FinishedShards:
    """The shards that earlier attempts have finished, as their receipts say.

        finished = FinishedShards(store)
        done = finished.find(input_digest)   # a ShardDone, or None

    The receipts are looked for once, when the first shard is.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        # Facts as JSON, by input digest.
        self._facts: dict[str, bytes] | None = None

    def find(self, input_digest: str) -> ShardDone | None:
        """Returns a shard that has been finished, if it is whole."""
        if self._facts is None:
            self._facts = {
                digest.decode(): text
                for name in storage(self._store.receipts).names_if_there()
                if name.endswith(".shards")
                for line in (_read(self._store, name) or b"").splitlines()
                for digest, _, text in [line.partition(b" ")]
            }
        store, text = self._store, self._facts.get(input_digest)
        if text is None:
            return None
        try:
            done: ShardDone = from_json(ShardDone, text)
        except ValueError:
            return None
        shard = done.shard
        named = [(facts.file, facts.crc32c) for facts in shard.indexes]
        whole: ShardDone | None = _whole(
            done, store, [*named, (shard.name, shard.crc32c)]
        )
        return whole


def count_finished(store: Store) -> tuple[int, int]:
    """Returns how many finished blocks and shards a job has left."""
    names = storage(store.receipts).names_if_there()
    groups = filter(None, map(_GROUP.fullmatch, names))
    return (
        sum(name.endswith(".block") for name in names),
        sum(int(group[1]) for group in groups),
    )


def _find(store: Store, name: str, kind: Any) -> Any:
    """Returns the facts of a receipt; None where it is not there, or not whole."""
    try:
        text = _read(store, name)
        return None if text is None else from_json(kind, text)
    except ValueError:
        return None


def _write_receipt(store: Store, name: str, text: bytes) -> None:
    """Writes a receipt, unsynced: where a power loss takes it, work is done again."""
    path = os.path.join(store.receipts, name)
    data = zlib.compress(text, _COMPRESSION)
    storage(path).write_file(data, attempts=store.attempts, durable=False)


def _read(store: Store, name: str) -> bytes | None:
    """Returns the facts of a receipt as text; None where it is damaged, or gone."""
    try:
        data = storage(os.path.join(store.receipts, name)).read_bytes()
        return zlib.decompress(data)
    except (FileNotFoundError, zlib.error):
        return None


def _whole(
    done: PieceDone | ShardDone, store: Store, finished: Sequence[tuple[str, int]] = ()
) -> Any:
    """Returns what a task gave; None where its files are not as they were written.

    The work folder may have moved with its target since then.

    Args:
      done: by the task.
      store: of this run.
      finished: names and checksums of its files in the dataset.
    """
    rejects = tuple(
        dataclasses.replace(log, path=_path_in_run(store.rejects, log.path))
        for log in done.rejects
    )
    files = [(os.path.join(store.dataset, name), crc, 0, -1) for name, crc in finished]
    files += ((log.path, log.crc32c, 0, -1) for log in rejects)
    for part in done.parts():
        path = _path_in_run(store.segments, part.file)
        files.append((path, part.crc32c, part.offset, part.size))
    if not all(_is_as_written(*facts) for facts in files if facts[0]):
        return None
    return dataclasses.replace(done, rejects=rejects)


def _path_in_run(folder: str, path: str) -> str:
    """Returns the path of a receipt's file in this run's folder; "" for none."""
    return os.path.join(folder, os.path.basename(path)) if path else ""


def _is_as_written(path: str, crc32c: int, start: int = 0, size: int = -1) -> bool:
    """Whether bytes of a file, by default all of them, have a checksum."""
    try:
        stop = storage(path).size_of() if size < 0 else start + size
        return crc32c_of(path, start, stop) == crc32c
    except OSError:
        return False
