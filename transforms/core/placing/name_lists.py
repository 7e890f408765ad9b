"""Lists of distinct names between stages: short ones travel, long ones are in files.

There may be a million class names, and an engine keeps several copies of what passes
between its stages. So a `Segment` passes, which is the list itself or its place.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import google_crc32c
import pyarrow as pa

from transforms.core import segment
from transforms.core.model import Segment
from transforms.core.placing.vocabulary import digest_of

_NAMES = pa.schema([("names", pa.string())])
# Longer lists are in files.
_MOST_INLINE_BYTES = 1 << 14
_MOST_HELD_BYTES = 1 << 20
# Names held beyond the distinct ones before duplicates are removed.
_SPARE_NAMES = 1 << 20


class NameStore(Protocol):
    """Where long lists are."""

    def get(self, part: Segment, /) -> pa.Buffer:
        """Returns the message of a segment."""

    def put_pieces(self, pieces: Sequence[pa.Buffer], /) -> str:
        """Stores pieces end to end in a file; returns its name."""


def put_names(
    names: pa.StringArray, write: Callable[[Sequence[pa.Buffer]], str]
) -> Segment:
    """Returns n names as a segment.

    Args:
      names: in one array without nulls.
      write: as `NameStore.put_pieces`.
    """
    message = segment.serialize(pa.record_batch([names], schema=_NAMES))
    if message.size <= _MOST_INLINE_BYTES:
        payload = message.to_pybytes()
        return Segment("", 0, len(names), message.size, payload=payload)
    return Segment(
        *("", 0, len(names), message.size),
        file=write([message]),
        crc32c=google_crc32c.value(message),
    )


def get_names(part: Segment, read: Callable[[Segment], pa.Buffer]) -> pa.StringArray:
    """Inverse of `put_names`; `read` is as `NameStore.get`."""
    return segment.deserialize(read(part), _NAMES)["names"]


def put_classes(
    names: pa.StringArray, write: Callable[[Sequence[pa.Buffer]], str]
) -> Segment:
    """As `put_names`, of the class names of a feature in the order of their ids.

    The segment has their digest.
    """
    return dataclasses.replace(put_names(names, write), input_digest=digest_of(names))


def load_classes(
    classes: Mapping[str, Segment], read: Callable[[Segment], pa.Buffer]
) -> dict[str, pa.StringArray]:
    """Returns label feature -> its class names, which `put_classes` has stored."""
    return {feature: get_names(part, read) for feature, part in classes.items()}


def distinct_names(
    parts: Iterable[Segment], read: Callable[[Segment], pa.Buffer]
) -> pa.StringArray:
    """Returns the distinct names of lists, of which few are in memory at a time."""
    held = [pa.array([], pa.string())]
    for part in parts:
        held.append(get_names(part, read))
        if sum(map(len, held[1:])) > max(len(held[0]), _SPARE_NAMES):
            held = [_distinct(held)]
    return held[0] if len(held) == 1 else _distinct(held)


def add_names(held: list[Segment], more: Iterable[Segment], store: NameStore) -> None:
    """Adds lists to others; those that travel become one before they are many."""
    for part in more:
        held.append(part)
        inline = [each for each in held if not each.file]
        if sum(each.size for each in inline) > _MOST_HELD_BYTES:
            names = distinct_names(inline, store.get)
            held[:] = [each for each in held if each.file]
            held.append(put_names(names, store.put_pieces))


def _distinct(parts: Sequence[pa.StringArray]) -> pa.StringArray:
    return pa.chunked_array(parts, pa.string()).unique()
