"""Random rows of random columns: protobuf reads back what the rows held."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gathered_rows import gather
from transforms.core.example.messages import Example

Row = dict[str, Any]

_int64s = st.integers(-(2**63), 2**63 - 1)
# Columns of whole floats beyond 2**24 are integers, unless they are declared.
_floats = st.floats(-(2**24), 2**24, width=32) | st.sampled_from(
    [float("nan"), float("inf"), float("-inf")]
)
_texts = st.text(st.characters(codec="utf-8"), max_size=5)
# No image starts like this.
_bytes = st.binary(max_size=5).map(b"\0".__add__)
# Field of the Feature, values that a row holds, and the items that they become.
_SINGLE: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "bool": ("int64_list", st.booleans()),
    "int": ("int64_list", _int64s),
    "float": ("float_list", _floats),
    "text": ("bytes_list", _texts),
    "bytes": ("bytes_list", _bytes),
    "numpy int": ("int64_list", st.integers(-(2**31), 2**31 - 1).map(np.int32)),
    "numpy float": ("float_list", _floats.map(np.float32)),
}
_LISTS = {
    f"list of {name}": (field, st.lists(values, min_size=1, max_size=3))
    for name, (field, values) in _SINGLE.items()
}
_KINDS = _SINGLE | _LISTS
_names = st.text(st.characters(codec="utf-8", exclude_characters="\0#"), min_size=1)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, str]:
    """Draws the kind of each column of some rows."""
    names = st.lists(_names, unique=True, min_size=1, max_size=5)
    return {name: draw(st.sampled_from(sorted(_KINDS))) for name in draw(names)}


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, str], list[Row]]:
    """Draws columns and rows, in which values are missing in each of two ways."""
    kinds = draw(columns())
    rows = []
    for number in range(draw(st.integers(1, 12))):
        row: Row = {"#": number}
        for name, kind in kinds.items():
            how = draw(st.integers(0, 5))
            if how > 1:
                row[name] = draw(_KINDS[kind][1])
            elif how:
                row[name] = None
        rows.append(row)
    return {**kinds, "#": "int"}, rows


def as_read(record: bytes) -> dict[str, tuple[str, list[Any]]]:
    """Returns the features of a record, as protobuf reads them."""
    found = Example.FromString(record).features.feature
    out = {}
    for name, feature in sorted(found.items()):
        field = feature.WhichOneof("kind")
        out[name] = field, list(getattr(feature, field).value)
    return out


def as_held(row: Row, kinds: Mapping[str, str]) -> dict[str, tuple[str, list[Any]]]:
    """Returns the features of a row: what is missing is in no record."""
    out = {}
    for name, value in sorted(row.items()):
        if value is None:
            continue
        items = value if isinstance(value, list) else [value]
        held = [each.encode() if isinstance(each, str) else each for each in items]
        field = _KINDS[kinds[name]][0]
        number = float if field == "float_list" else int
        out[name] = field, held if field == "bytes_list" else [*map(number, held)]
    return out


@given(tables(), st.booleans(), st.integers(1, 4), st.randoms())
def test_every_value_comes_back(
    table: tuple[dict[str, str], list[Row]], keyed: bool, bundles: int, random: Any
) -> None:
    """Each row is one record, whatever bundles it came in, and each value is in it."""
    kinds, rows = table
    settings = {"splits": {"train": 0.5, "test": 0.5}, "num_shards": 2}
    if keyed:
        settings["key"] = "#"
    parts: list[list[Row]] = [[] for _ in range(bundles)]
    for row in rows:
        random.choice(parts).append(dict(random.sample([*row.items()], len(row))))
    found = gather(parts, **settings)
    assert list(found.rejections) == []
    records = [record for shard in found.records.values() for record in shard]
    read = Counter(repr(as_read(record)) for record in records)
    assert read == Counter(repr(as_held(row, kinds)) for row in rows)
    assert found.facts == gather([rows], **settings).facts
