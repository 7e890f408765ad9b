"""Leakage: the same image or key in more than one split.

Every item has a 64-bit fingerprint, stored with its split and its place in an Arrow
table, like a segment; only descriptors cross the shuffle. Fingerprints are

    unit   the hash of the row's group or key (`transforms.core.placing.hashes`)
    image  crc32c of its bytes << 32 | crc32c of the second half of them; 0 of no bytes.
           Two checksums of 32 bits cost 2 us for 20 KB, and a hash of 64 bits 20
"""

import dataclasses
import enum
import hashlib
from collections.abc import Mapping, Sequence

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import numpy_mask
from transforms.core.model import Fact
from transforms.core.placing.hashes import UInt64s
from transforms.core.segment import Segment
from transforms.errors import bounded

Mask = npt.NDArray[np.bool_]

# Signatures of image files: (position, bytes). Frozen, unlike those of inference: a
# new one would move rows to other splits.
_IMAGES: tuple[tuple[int, bytes], ...] = (
    (0, b"\xff\xd8\xff"),
    (0, b"\x89PNG\r\n\x1a\n"),
    (0, b"GIF87a"),
    (0, b"GIF89a"),
    (8, b"WEBP"),
    (0, b"II*\x00"),
    (0, b"MM\x00*"),
    (0, b"\x00\x00\x00\x0cjP  "),
    (0, b"\xff\x4f\xff\x51"),
    (4, b"ftypavif"),
    (4, b"ftypheic"),
    (4, b"ftypheix"),
    (4, b"ftypmif1"),
)
FINGERPRINT_SCHEMA = pa.schema(
    {
        "fingerprint": pa.uint64(),
        "split": pa.int16(),
        "row": pa.int64(),
        "origin": pa.string(),
    }
)
# Examples and pairs of splits that a warning names; the report has all.
_EXAMPLES_SHOWN = 3
_PAIRS_SHOWN = 6


class Subject(enum.StrEnum):
    """The kind of item that fingerprints identify."""

    UNIT = "unit"
    IMAGE = "image"


@dataclasses.dataclass(frozen=True, slots=True)
class Fingerprints:
    """The fingerprints of one batch or shard, as `pack_fingerprints` stores them.

    Attributes:
      subject: the kind of item.
      splits: names of the splits, which fingerprints refer to by index.
      segment: where they are stored, under `FINGERPRINT_SCHEMA`; its origin is that of
        all which state none.
    """

    subject: Subject
    splits: tuple[str, ...]
    segment: Segment


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Place:
    """The place of an item: its split, its origin, its 0-based row there."""

    split: str
    origin: str
    row: int


@dataclasses.dataclass(frozen=True, slots=True)
class Leaks:
    """Items found in more than one split.

        >>> one = Leaks(Subject.IMAGE, 1, {("train", "test"): 1})
        >>> SplitFindings(leaks=(one,)).warnings()
        ['1 image stands in more than one split: train and test: 1']

    Attributes:
      subject: the kind of item.
      items: number of distinct items.
      pairs: (split, split) -> items in both, in the order of the splits.
      examples: the places of some items, a few of each.
    """

    subject: Subject
    items: int
    pairs: Mapping[tuple[str, str], int]
    examples: tuple[tuple[Place, ...], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SplitFindings(Fact):
    """Facts about the splits, known once all rows are placed and written.

    Attributes:
      leaks: items in more than one split, for each subject that was checked.
    """

    leaks: tuple[Leaks, ...] = ()

    def warnings(self) -> list[str]:
        """Returns sentences for the user, each of at most 1 KiB."""
        return [bounded(_leak_text(leaks)) for leaks in self.leaks if leaks.items]


def _leak_text(leaks: Leaks) -> str:
    """Returns the warning about leaks: how many, between which splits, and examples."""
    what = {Subject.UNIT: "key", Subject.IMAGE: "image"}[leaks.subject]
    what = f"1 {what} stands" if leaks.items == 1 else f"{leaks.items:,} {what}s stand"
    pairs = [f"{a} and {b}: {n:,}" for (a, b), n in leaks.pairs.items()]
    more = [] if len(pairs) <= _PAIRS_SHOWN else ["..."]
    text = f"{what} in more than one split: " + ", ".join(pairs[:_PAIRS_SHOWN] + more)
    if not leaks.examples:
        return text
    # Images of tables have a row; images that are files do not.
    by_row = leaks.subject is Subject.UNIT or any(
        where.row for example in leaks.examples for where in example
    )
    shown = "; ".join(
        " = ".join(
            f"{where.split}: {where.origin}" + (f", row {where.row + 1:,}" * by_row)
            for where in example
        )
        for example in leaks.examples[:_EXAMPLES_SHOWN]
    )
    return f"{text}; for example {shown}"


def fingerprint_image(data: bytes, crc32c: int | None = None) -> int:
    """Returns the 64-bit fingerprint of an encoded image.

    Args:
      data: the image's bytes in the source.
      crc32c: of these bytes, where that is known.
    """
    whole = google_crc32c.value(data) if crc32c is None else crc32c
    half = google_crc32c.value(np.frombuffer(data, np.uint8)[len(data) // 2 :])
    return int(whole) << 32 | int(half)


def pack_fingerprints(
    values: UInt64s,
    splits: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    origins: pa.Array | None,
) -> pa.RecordBatch:
    """Returns n fingerprints in their stored form.

    Args:
      values: the fingerprints.
      splits: each one's index into the names of its `Fingerprints`.
      rows: each item's 0-based row in its origin.
      origins: each item's origin; None if the segment states one for all.
    """
    places = (pa.nulls(len(values)) if origins is None else origins).cast(pa.string())
    columns = [pa.array(values), pa.array(splits, pa.int16()), pa.array(rows), places]
    return pa.RecordBatch.from_arrays(columns, schema=FINGERPRINT_SCHEMA)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """Fingerprints that occur in more than one split.

    Attributes:
      values: m distinct ones, ascending.
      table: bool [m, splits]: in which splits each occurs.
    """

    values: UInt64s
    table: Mask

    def contains(self, values: UInt64s) -> Mask:
        """Returns which of n fingerprints are among these."""
        return _is_among(values, self.values)

    def pairs(self, names: Sequence[str]) -> dict[tuple[str, str], int]:
        """Returns (split, split) -> number of fingerprints in both, without zeros.

        Args:
          names: of the splits.
        """
        wide = self.table.astype(np.int64)
        both = wide.T @ wide
        return {
            (names[i], names[j]): int(both[i, j])
            for i in range(len(names))
            for j in range(i + 1, len(names))
            if both[i, j]
        }


def find_shared(
    values: UInt64s, splits: npt.NDArray[np.int16], *, count: int
) -> Shared:
    """Returns the fingerprints that occur in more than one of `count` splits.

    Args:
      values: n fingerprints in any order.
      splits: each one's split, a number below `count`.
      count: of the splits.

    Time and memory are those of sorting n numbers once: those that occur once, nearly
    all, are not looked at again.
    """
    ordered = np.sort(values)
    twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    del ordered
    members = np.flatnonzero(_is_among(values, twice))
    table = np.zeros((len(twice), count), bool)
    table[np.searchsorted(twice, values[members]), splits[members]] = True
    several = table.sum(axis=1) > 1
    return Shared(twice[several], table[several])


def image_mask(array: pa.LargeBinaryArray) -> Mask:
    """Returns which of n values start as image files do; a null does not."""
    out = np.zeros(len(array), np.bool_)
    for at, mark in _IMAGES:
        heads = pc.binary_slice(array, at, at + len(mark))
        out |= numpy_mask(pc.equal(heads, pa.scalar(mark)))
    return out


def without_images(array: pa.LargeBinaryArray, *, digests: bool) -> pa.LargeBinaryArray:
    """Returns n values with nulls in the place of images, or texts of their digests."""
    images = image_mask(array)
    if not images.any():
        return array
    mask = pa.array(images)
    if not digests:
        return pc.if_else(mask, pa.scalar(None, array.type), array)
    texts = [
        hashlib.blake2b(data, digest_size=16).hexdigest().encode()
        for data in array.filter(mask).to_pylist()
    ]
    return pc.replace_with_mask(array, mask, pa.array(texts, array.type))


def _is_among(values: UInt64s, ascending: UInt64s) -> npt.NDArray[np.bool_]:
    """Returns which of n fingerprints are among some that ascend."""
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return np.asarray(ascending[at] == values)
