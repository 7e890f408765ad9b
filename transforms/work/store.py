"""Where segments and reject logs are kept between stages: inline or in the work folder.

Work folder of one job, in the sibling `.<target>.beam-tfrecord/` of its target:

    <job digest>/
      attempts/   files that are being written, under names of their attempt
      segments/   one file a placed batch
      rejects/    one file a task that rejected much
      receipts/   what finished tasks leave for later runs; see `work.receipts`
      dataset/    the finished shards; in the end, the dataset that is published
      reports-*/  stamps of the processes of a run; see `work.worker_check`

Where the rows of a pipeline decide what is written, `dataset/` and `rejects/` have a
folder for each plan; see `transforms.publishing.target`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence

import google_crc32c
import pyarrow as pa

from transforms.core.manifest import FileFacts
from transforms.core.model import RejectLog
from transforms.core.reasons import Rejection
from transforms.core.segment import Segment
from transforms.errors import CommitError, DamageError, StorageError
from transforms.storage import folders
from transforms.storage.files import read_ahead, storage
from transforms.storage.folders import rename
from transforms.storage.paths import Access, is_remote
from transforms.storage.retry import persistently
from transforms.work.rejects import RejectGatherer
from transforms.work.worker_check import WorkerRules, check_worker

# Segments fetched at the same time from a remote store, where each waits for a round
# trip and hardly needs this machine.
_FAR_READS = 16
# Neighbours are read at once up to this size, and one more of them.
_READ_BYTES = 16 << 20
# Streams of more go to a file: as text in a receipt, 500 KB take ten times as long.
_INLINE_BYTES = 1 << 16
# Of a file, read at a time for its checksum.
_CHECKED_BYTES = 8 << 20
# Bytes of a batch's first segment that take part in the name of its file.
_NAMING_BYTES = 1 << 16
# Tokens of runs that were stopped in this process.
_stopped: set[str] = set()


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """The work folder of one job.

    Attributes:
      folder: its path, on a file system that every worker shares. Empty for none:
        then only reject logs can be put here, and all of them travel inline.
      inline: whether segments travel through the shuffle (small jobs) or only their
        descriptors do. Bytes of the output do not depend on it.
      keep_items: whether reject logs hold the rejected items themselves.
      placed: where finished files go at once, in an object store: nothing can be
        renamed there. Empty for the folder `dataset`.
      token: of the run; empty where its files are not in their place before the end.
      plan: digest of what decides each file, which has folders of its own for finished
        files and rejects, because rows that come again may be others; empty for none.
      unordered: whether rows come in no order, as those of a pipeline.
      access: how its places are reached, wherever the store is sent.
      rules: what is asked of the workers of an engine; None where the run
        starts them on its own machine.
    """

    folder: str
    inline: bool = False
    keep_items: bool = False
    placed: str = ""
    token: str = ""
    plan: str = ""
    unordered: bool = False
    access: Access = dataclasses.field(default_factory=Access)
    rules: WorkerRules | None = None

    def check_worker(self) -> None:
        """Checks this process, which works for the job; once, and first of all.

        Raises:
          BeamTFRecordError: see `transforms.work.worker_check.check_worker`.
        """
        check_worker(self.rules, folder=self.folder)

    @property
    def name(self) -> str:
        """The last part of the folder's path: what tells the job from others."""
        return os.path.basename(self.folder)

    @property
    def attempts(self) -> str:
        """Folder of unfinished files."""
        return os.path.join(self.folder, "attempts")

    @property
    def segments(self) -> str:
        """Folder of segment files."""
        return os.path.join(self.folder, "segments")

    @property
    def rejects(self) -> str:
        """Folder of spilled reject logs."""
        return self._of_plan("rejects")

    @property
    def receipts(self) -> str:
        """Folder of receipts."""
        return os.path.join(self.folder, "receipts")

    @property
    def dataset(self) -> str:
        """Folder of finished shards."""
        return self.placed or self._of_plan("dataset")

    def _of_plan(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        return os.path.join(path, self.plan) if self.plan else path

    @property
    def place(self) -> str:
        """The folder in the target that finished files go to; empty for none."""
        return os.path.basename(self.placed)

    def remove_file(self, path: str) -> None:
        """Removes a file below the folder; no link on the way there is followed."""
        storage(path).remove_file(below=self._beside_target)

    def remove_tree(self, path: str) -> None:
        """Removes a folder below the folder, or that; as `remove_file`."""
        storage(path).remove_tree(below=self._beside_target)

    @property
    def _beside_target(self) -> str:
        return os.path.dirname(os.path.dirname(self.folder))

    @property
    def listing(self) -> str:
        """File that lists the inputs."""
        return os.path.join(self.folder, "listing.arrow")

    @property
    def account(self) -> str:
        """File of where the items went, of a run that was refused its commit."""
        return os.path.join(self.folder, "account.json")

    def make(self) -> None:
        """Makes the folders; they may exist, with what an earlier run has left."""
        storage(self.account).remove_file()
        if self.placed:
            return
        self.remove_tree(self.attempts)
        if not storage(self.dataset).exists():
            with contextlib.suppress(FileNotFoundError):
                rename(self._abandoned, self.dataset)
        for folder in (
            *(self.attempts, self.segments, self.rejects, self.receipts),
            self.dataset,
        ):
            folders.make(folder)

    def abandon(self) -> None:
        """Takes the unpublished dataset away in one step: `commit` will not find it.

        The stages may still be running in another thread. The next `make` puts it
        back.
        """
        if self.placed:
            _stopped.add(self.token)
            storage(self._abandoned).write_file(b"", attempts="")
            return
        with contextlib.suppress(FileNotFoundError):
            rename(self.dataset, self._abandoned)

    @property
    def is_abandoned(self) -> bool:
        """Whether a run was stopped whose files are in their place already."""
        return bool(self.placed) and (
            self.token in _stopped or storage(self._abandoned).exists()
        )

    def check_goes_on(self) -> None:
        """Raises CommitError where the run was stopped, as far as this process knows.

        Its threads may be at work when the next run of the job is.
        """
        if self.token in _stopped:
            raise CommitError("The run was stopped; nothing was committed. Run again.")

    @property
    def _abandoned(self) -> str:
        # In an object store another run of the job may be at work in the same folder.
        word = f".{self.token}" if self.placed else ""
        return os.path.join(self.folder, f"dataset.abandoned{word}")

    def announce(self, name: str) -> str:
        """Makes the folder of a file of the dataset that is about to be written.

        Args:
          name: below the dataset's folder.

        Returns:
          The file's path.

        Raises:
          CommitError: see `check_goes_on`.
        """
        self.check_goes_on()
        path = os.path.join(self.dataset, name)
        if os.path.dirname(name) and not is_remote(path):
            with contextlib.suppress(FileExistsError):
                make = functools.partial(os.mkdir, os.path.dirname(path))
                persistently(make, path=path)
        return path

    def write_beside(self, name: str, data: bytes) -> FileFacts:
        """Writes a file of the dataset beside its shards; returns its facts."""
        storage(self.announce(name)).write_file(data, attempts=self.attempts)
        return FileFacts(name, len(data), google_crc32c.value(data))

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Raises CommitError in place of errors that come of a folder that is gone."""
        try:
            yield
        except (FileNotFoundError, StorageError) as error:
            if is_remote(self.folder) or storage(self.folder).exists():
                raise
            raise self.is_gone() from error

    def is_gone(self) -> CommitError:
        """Returns the error of a stage that finds the run's work gone."""
        pipelines = " --pipelines" if self.unordered else ""
        return CommitError(
            f"The work of a run must stay where it is until the run ends; "
            f"{self.folder!r} is gone. The run has ended meanwhile, or "
            f"'beam-tfrecord clean{pipelines}' has removed it; run again."
        )

    def put(
        self, origin: str, start: int, parts: Sequence[tuple[int, pa.Buffer]]
    ) -> list[Segment]:
        """Stores the messages of one batch; returns a segment for each.

        Args:
          origin, start: of the batch's block; they name the segment file, so a
            second attempt replaces it with the same bytes.
          parts: (rows, IPC message) in the order of their shards.
        """
        if self.inline:
            return _segments("", origin, start, parts)
        # The rows take part in the name. The commit refuses two batches of one block;
        # until then neither may overwrite the other.
        crc = google_crc32c.value(bytes(memoryview(parts[0][1])[:_NAMING_BYTES]))
        name = hashlib.blake2b(f"{start}\0{crc}\0{origin}".encode(), digest_size=16)
        file = self._write(f"{name.hexdigest()}.segments", [m for _, m in parts])
        return _segments(file, origin, start, parts)

    def get(self, segment: Segment) -> pa.Buffer:
        """Returns the message of a segment; errors are those of `get_all`."""
        (message,) = self.get_all([segment])
        return message

    def get_all(self, segments: Sequence[Segment]) -> Iterator[pa.Buffer]:
        """Yields the messages of segments, in their order.

        Neighbours in a file are read at once, and far ones side by side. A message is
        held until those before it are read.

        Raises:
          OSError: one cannot be read.
          DamageError: it is not what was written.
        """
        ranges = _ranges(segments)
        read = functools.partial(_read, segments, self.segments)
        far = is_remote(self.folder)
        results = read_ahead(read, ranges, far=far, threads=_FAR_READS)
        left = zip(ranges, results, strict=True)
        buffered: dict[int, pa.Buffer] = {}
        for index, segment in enumerate(segments):
            if not segment.file:
                yield pa.py_buffer(segment.payload)
                continue
            while index not in buffered:
                with self.at_work():
                    buffered.update(zip(*next(left), strict=True))
            yield buffered.pop(index)

    def put_rows(self, name: str, pieces: Sequence[pa.Buffer]) -> str:
        """Stores pieces of rows end to end; returns the name of their file.

        Args:
          name: of an attempt that no other one has.
          pieces: as Arrow IPC messages.
        """
        return self._write(f"{name}.rows", pieces)

    def _write(self, name: str, messages: Sequence[pa.Buffer]) -> str:
        path = os.path.join(self.segments, name)
        views = [memoryview(message) for message in messages]

        with self.at_work():
            # Not synced: what a power loss has damaged differs from its checksums.
            storage(path).write_file(*views, attempts=self.attempts, durable=False)
        return name

    def put_pieces(self, pieces: Sequence[pa.Buffer]) -> str:
        """As `put_rows`, under a name that the bytes of the pieces decide."""
        digest = hashlib.blake2b(digest_size=16)
        for piece in pieces:
            digest.update(piece)
        return self.put_rows(digest.hexdigest(), pieces)

    def put_streams(self, streams: Sequence[pa.Buffer]) -> list[Segment]:
        """Stores Arrow streams of one batch of shards; returns a segment for each."""
        small = self.inline and sum(s.size for s in streams) <= _INLINE_BYTES
        file = "" if small or not streams else self.put_pieces(streams)
        return _segments(file, "", 0, [(0, stream) for stream in streams])

    def gather_rejects(self, task: str) -> RejectGatherer:
        """Returns what takes the rejections of one task.

        Args:
          task: what only this task has; it is in the name of its file.
        """
        name = hashlib.blake2b(task.encode(), digest_size=16).hexdigest()
        path = os.path.join(self.rejects, name)
        return RejectGatherer(
            task,
            path if self.folder else "",
            attempts=self.attempts,
            keep_items=self.keep_items,
            by_line=self.unordered,
        )

    def put_rejects(
        self, task: str, rejections: Iterable[Rejection]
    ) -> RejectLog | None:
        """Stores the rejections of one task; returns None where there are none.

        Args:
          task: what only this task has.
          rejections: in any order; looked at once.
        """
        gatherer = self.gather_rejects(task)
        gatherer.add(rejections)
        return gatherer.finish()


def crc32c_of(path: str, start: int, stop: int) -> int:
    """Returns the checksum of bytes [start, stop) of a stored file; raises OSError."""
    crc = 0
    for first in range(start, stop, _CHECKED_BYTES):
        data = storage(path).read_range(first, min(first + _CHECKED_BYTES, stop))
        crc = google_crc32c.extend(crc, data)
    return crc


def _segments(
    file: str, origin: str, start: int, parts: Sequence[tuple[int, pa.Buffer]]
) -> list[Segment]:
    """Returns the segments of parts that are in a file, one after another.

    Without a file they hold their bytes themselves.
    """
    out, offset = [], 0
    for rows, message in parts:
        facts = (origin, start, rows, message.size)
        if file:
            crc = google_crc32c.extend(0, message)
            out.append(Segment(*facts, file=file, offset=offset, crc32c=crc))
        else:
            out.append(Segment(*facts, payload=message.to_pybytes()))
        offset += message.size
    return out


def _ranges(segments: Sequence[Segment]) -> list[list[int]]:
    """Returns the places of segments in files, those together that one read gives.

    Ranges are in the order of their first segments, so that few messages are held.
    """
    places = [place for place, segment in enumerate(segments) if segment.file]
    places.sort(key=lambda place: (segments[place].file, segments[place].offset))
    ranges: list[list[int]] = []
    end, size = ("", 0), 0
    for place in places:
        segment = segments[place]
        if end == (segment.file, segment.offset) and size < _READ_BYTES:
            ranges[-1].append(place)
        else:
            ranges.append([place])
            size = 0
        end = segment.file, segment.offset + segment.size
        size += segment.size
    return sorted(ranges, key=min)


def _read(
    segments: Sequence[Segment], folder: str, places: Sequence[int]
) -> list[pa.Buffer]:
    """Returns the messages of neighbours in a file of a folder."""
    first, last = segments[places[0]], segments[places[-1]]
    stop = last.offset + last.size
    path = os.path.join(folder, first.file)
    data = pa.py_buffer(storage(path).read_range(first.offset, stop))
    messages = []
    for index in places:
        segment = segments[index]
        message = data.slice(segment.offset - first.offset, segment.size)
        if google_crc32c.value(message) != segment.crc32c:
            raise DamageError(
                f"A segment must be read as it was written; bytes {segment.offset:,} "
                f"to {segment.offset + segment.size:,} of {path!r} are others now. "
                f"Nothing was committed; look after the disk, and run again."
            )
        messages.append(message)
    return messages
