"""The order of the features in serialised Examples, learned from a few of them."""

import graphlib
import itertools
from collections.abc import Iterable, Mapping, Sequence

TAGS = {0x0A: "bytes_list", 0x12: "float_list", 0x1A: "int64_list"}
# So many records in a row without a further feature end the search for features.
_ENOUGH_RECORDS = 3

# A key in UTF-8, and the tag of its list; None where no record showed it.
Layout = tuple[tuple[bytes, int | None], ...]


def common_layout(
    records: Iterable[bytes], known: Mapping[bytes, int]
) -> Layout | None:
    """Returns the order of the features of some records; None if none has an order.

    Args:
      records: serialised Examples. No more are looked at once several in a row show no
        further feature.
      known: tags of features that other records may have, by key.
    """
    shown: list[list[bytes]] = []
    tags: dict[bytes, int | None] = {}
    nothing_new = 0
    for data in records:
        entries = _entries(data)
        if entries is None or any(
            tag is not None and (tags.get(key) or known.get(key) or tag) != tag
            for key, tag in entries.items()
        ):
            continue
        shown.append(list(entries))
        before = len(tags)
        for key, tag in entries.items():
            tags[key] = tags.get(key) or tag or known.get(key)
        nothing_new = nothing_new + 1 if len(tags) == before else 0
        if nothing_new == _ENOUGH_RECORDS:
            break
    if not shown:
        return None
    if all(keys == sorted(keys) for keys in shown):
        # The usual order of features, so that of others, too.
        order = sorted({*tags, *known})
    else:
        order = _common_order(shown)
    return tuple((key, tags.get(key) or known.get(key)) for key in order)


def _common_order(shown: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Returns an order that all have; if there is none, that of the first."""
    behind: dict[bytes, set[bytes]] = {}
    for keys in shown:
        for key in keys:
            behind.setdefault(key, set())
        for before, after in itertools.pairwise(keys):
            behind[after].add(before)
    try:
        return list(graphlib.TopologicalSorter(behind).static_order())
    except graphlib.CycleError:
        return list(shown[0])


def _entries(data: bytes) -> dict[bytes, int | None] | None:
    """Returns the tags of a record's features by key, in their order.

    None for a record that no layout fits: not even its outer parts are regular.
    """
    out: dict[bytes, int | None] = {}
    if data[:1] != b"\x0a":
        return None if data else out
    size, position = _varint_at(data, 1)
    if position + size != len(data):
        return None
    while position < len(data):
        if data[position] != 0x0A:
            return None
        size, position = _varint_at(data, position + 1)
        stop = position + size
        if stop > len(data) or data[position : position + 1] != b"\x0a":
            return None
        size, start = _varint_at(data, position + 1)
        key = data[start : start + size]
        # Behind the key come 12, the Feature's length, the tag of its list.
        size, tag = _varint_at(data, start + size + 1)
        if tag > stop or key in out or not _is_text(key):
            return None
        out[key] = data[tag] if size and tag < stop else None
        if out[key] is not None and out[key] not in TAGS:
            return None
        position = stop
    return out


def _is_text(key: bytes) -> bool:
    try:
        key.decode()
    except UnicodeDecodeError:
        return False
    return True


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    """Returns the length at a position and where it ends.

    Without a length of at most 4 bytes it returns one past the data twice, which no
    layout has.
    """
    value = 0
    for index, byte in enumerate(data[position : position + 4]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position + index + 1
    return len(data) + 1, len(data) + 1
