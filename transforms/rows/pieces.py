"""What the spool of one bundle leaves: its rows in pieces, and their counts."""

import dataclasses
from collections.abc import Mapping

from transforms.core import this_worker
from transforms.core.model import RejectLog, Segment
from transforms.rows.refused_rows import Refusals
from transforms.rows.tally import Tally


@dataclasses.dataclass(frozen=True, slots=True)
class SpooledBundle:
    """What one bundle of rows leaves: one element, so that attempts cannot mix.

    Attributes:
      word: of the attempt that has spooled it: drawn anew for each.
      pieces: the rows, as `spooled_piece` stores them.
      tally: what their values are.
      sizes: split -> about how many bytes its rows take.
      refusals: counts of rows that are in no piece, and not in the tally.
      rejects: why those are not, each by itself.
      worker: stamp of the worker that has spooled it; see `this_worker`.
    """

    word: str
    pieces: tuple[Segment, ...]
    tally: Tally
    sizes: Mapping[str, int]
    refusals: Refusals = dataclasses.field(default_factory=Refusals)
    rejects: RejectLog | None = None
    worker: str = dataclasses.field(
        default_factory=this_worker.stamp, repr=False, compare=False
    )

    @property
    def received(self) -> int:
        """How many rows came."""
        return self.tally.rows + self.refusals.total

    def without_rows(self) -> "SpooledBundle":
        """Returns what the plan needs: no row, and no rejection."""
        pieces = tuple(dataclasses.replace(p, payload=b"") for p in self.pieces)
        return dataclasses.replace(self, pieces=pieces, rejects=None)
