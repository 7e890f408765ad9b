"""Where segments and reject logs lie between stages: inline, or in the work folder.

Work folder of one job, in the sibling `.<target>.beam-tfrecord/` of its target:

    <job digest>/
      attempts/   files that are being written, under names of their attempt
      segments/   one file a placed batch
      rejects/    one file a task that rejected much
      dataset/    the finished shards; in the end, the dataset that is published
"""

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Sequence

import google_crc32c
import pyarrow as pa

from transforms import files
from transforms.core.model import Rejection, RejectLog, Segment
from transforms.rejects import reject_log

__all__ = ["Store"]

# A reject log of more bytes than this is written to a file where there is one.
_INLINE_REJECT_BYTES = 1 << 16
# So much of a batch's first segment takes part in the name of its file.
_NAMING_BYTES = 1 << 16


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """The work folder of one job.

    Attributes:
      folder: its path, on a file system that every worker shares.
      inline: whether segments travel through the shuffle (small jobs) or only their
        descriptors do. Bytes of the output do not depend on it.
    """

    folder: str
    inline: bool = False

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
        return os.path.join(self.folder, "rejects")

    @property
    def dataset(self) -> str:
        """Folder of finished shards."""
        return os.path.join(self.folder, "dataset")

    def make(self) -> None:
        """Makes the folders; they may exist."""
        for folder in (self.attempts, self.segments, self.rejects, self.dataset):
            os.makedirs(folder, exist_ok=True)

    def abandon(self) -> None:
        """Takes the unpublished dataset away in one step: `commit` will not find it.

        The stages may still be running in another thread.
        """
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.dataset, f"{self.dataset}.abandoned")

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
            return [
                Segment(origin, start, rows, message.size, payload=message.to_pybytes())
                for rows, message in parts
            ]
        # The rows take part in the name: two batches of one block, which the commit
        # refuses, must not pass for each other before.
        crc = google_crc32c.value(bytes(memoryview(parts[0][1])[:_NAMING_BYTES]))
        name = hashlib.blake2b(f"{start}\0{crc}\0{origin}".encode(), digest_size=16)
        path = os.path.join(self.segments, f"{name.hexdigest()}.segments")
        out = []
        offset = 0
        # Not synced: after a power loss the job starts from its blocks again.
        with files.create(path, attempts=self.attempts, durable=False) as file:
            for rows, message in parts:
                file.write(message)
                out.append(
                    Segment(origin, start, rows, message.size, path=path, offset=offset)
                )
                offset += message.size
        return out

    def get(self, segment: Segment) -> bytes:
        """Returns the message of a segment; raises OSError."""
        if not segment.path:
            return segment.payload
        stop = segment.offset + segment.size
        return files.read_range(segment.path, segment.offset, stop)

    def put_rejects(self, key: str, rejections: Sequence[Rejection]) -> RejectLog:
        """Stores the rejections of one task.

        Args:
          key: what only this task has; it names the file.
          rejections: in any order.
        """
        log = reject_log(rejections)
        if self.inline or len(log.lines) <= _INLINE_REJECT_BYTES:
            return log
        name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        path = os.path.join(self.rejects, f"{name}.jsonl")
        with files.create(path, attempts=self.attempts, durable=False) as file:
            file.write(log.lines)
        return RejectLog(log.counts, path=path, parts=log.parts)
