"""Dataclasses are the same once they were JSON, or the error says that they are not."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from transforms.core.json_text import from_json, to_json
from transforms.core.manifest import FileFacts
from transforms.core.model import PlaceFacts, ReadFacts, RejectLog, Rounding, ShardFile
from transforms.core.placing.leakage import Fingerprints, Subject
from transforms.core.reasons import Reason
from transforms.core.segment import Segment
from transforms.core.statistics import Statistics

SEGMENT = Segment("a.csv", 7, 3, 100, b"\x00\xff", "segments/a", 9)
STATISTICS = {
    "x": Statistics(2, 0.5, float("inf"), {3: 1}),
    "y": Statistics(0, classes=None),
}
INDEXES = (FileFacts("index/a", 1, 2),)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (int, 7),
        (tuple[int, ...], ()),
        (tuple[bool | float | int | str | None, ...], (1, True, 1.0, None, "a")),
        (tuple[float, ...], (0.0, -0.0, 1e300)),
        (tuple[str, ...], ("\udcff", "ö", "")),
        (tuple[bytes, ...], (b"\xff", b"")),
        (tuple[tuple[str, int], Segment | None], (("a", 1), None)),
        (Mapping[str, int], {}),
        (Mapping[str, int], {"b": 1, "a": 2}),
        (Mapping[tuple[str, int], int], {("train", 1): 3, ("train", 0): 5}),
        (Mapping[int, Mapping[str, bool]], {2: {"b": True}, 1: {}}),
        (tuple[tuple[tuple[str, int], Segment], ...], ((("train", 0), SEGMENT),)),
        (PlaceFacts, PlaceFacts("a", 0, {("a", 0): 3}, {"x": SEGMENT})),
        (ReadFacts, ReadFacts("a", 0, 1, roundings={"x": Rounding(1, "z", 2, "l")})),
        (Fingerprints, Fingerprints(Subject.IMAGE, ("a",), SEGMENT)),
        (
            RejectLog,
            RejectLog(
                {Reason.FIELD_COUNT: 2},
                {"field_count": "a"},
                first=b"a\0\xff",
                has_items=True,
                payload=b"\r\n",
            ),
        ),
        (
            ShardFile,
            ShardFile(*("a", "train", 0, 2, 9, 1, 3), STATISTICS, indexes=INDEXES),
        ),
    ],
)
def test_values_are_read_as_they_were_stored(kind: Any, value: Any) -> None:
    """Types and order are kept, too: `True` is no 1."""
    found = from_json(kind, to_json(value))
    assert found == value
    assert repr(found) == repr(value)


def test_numpy_integers_are_integers() -> None:
    """Counts may come from NumPy."""
    text = to_json((np.int64(3), np.uint64(2**64 - 1)))
    assert from_json(tuple[int, ...], text) == (3, 2**64 - 1)


def test_what_json_cannot_hold_is_an_error() -> None:
    """It is an error of the program."""
    with pytest.raises(TypeError):
        to_json((object(),))


WHOLE = {"zeros": 1, "first_zero": "", "large": 0, "first_large": "", "error": 0.5}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Rounding, WHOLE | {"later": 1}),
        (Rounding, {name: WHOLE[name] for name in [*WHOLE][:-1]}),
        (Rounding, WHOLE | {"zeros": "1"}),
        (Rounding, WHOLE | {"zeros": True}),
        (Rounding, [*WHOLE.values()]),
        (Rounding, {"=": "Rounding", **WHOLE}),
        (tuple[int, int], [1]),
        (tuple[int, int], [1, 2, 3]),
        (tuple[int, ...], 1),
        (bytes, "!"),
        (Subject, "other"),
        (Mapping[str, int], [["a"]]),
        (Mapping[str, int], {"a": None}),
        *((Rounding, text) for text in (b"", b"{", b"\xff", b"[" * 100_000)),
    ],
)
def test_other_fields_or_types_are_an_error(kind: Any, data: Any) -> None:
    """Another version has written it, or it is no JSON: the work is done again."""
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    with pytest.raises(ValueError, match="not of this version"):
        from_json(kind, text)
