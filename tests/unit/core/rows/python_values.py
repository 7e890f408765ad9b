"""Each kind of feature against Python and NumPy values of each type, as a table.

`python -m tests.unit.core.rows.python_values` prints what `python_values.txt` beside it
is to hold.
"""

import datetime
import decimal
import enum
import fractions
import io
import pathlib
import textwrap
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from tests.support.drawn_images import saved
from transforms.core.rows.feature_values import rows_of
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import EncodingError


class Number(enum.IntEnum):
    """An enum whose values are integers."""

    THREE = 3


class Word(enum.Enum):
    """An enum whose values are texts."""

    CAT = "cat"


def _image() -> Image.Image:
    return Image.open(io.BytesIO(saved(Image.new("L", (1, 1)), "PNG")))


_SEOUL = datetime.timezone(datetime.timedelta(hours=9))
VALUES: Mapping[str, Any] = {
    "None": None,
    "True": True,
    "7": 7,
    "-1": -1,
    "2**24 + 1": 2**24 + 1,
    "2**63 - 1": 2**63 - 1,
    "2**63": 2**63,
    "-2**63 - 1": -(2**63) - 1,
    "10**400": 10**400,
    "0.5": 0.5,
    "7.0": 7.0,
    "nan": float("nan"),
    "inf": float("inf"),
    "1e39": 1e39,
    "2.0**24 + 1": 2.0**24 + 1,
    "1 + 2j": 1 + 2j,
    "'cat'": "cat",
    "''": "",
    "'7'": "7",
    "'true'": "true",
    "'2024-05-01'": "2024-05-01",
    "half a surrogate pair": "\ud800",
    "b'cat'": b"cat",
    "b'\\xff'": b"\xff",
    "bytearray(b'cat')": bytearray(b"cat"),
    "memoryview(b'cat')": memoryview(b"cat"),
    "IntEnum of 3": Number.THREE,
    "Enum of 'cat'": Word.CAT,
    "Decimal('7')": decimal.Decimal("7"),
    "Decimal('0.5')": decimal.Decimal("0.5"),
    "Fraction(1, 2)": fractions.Fraction(1, 2),
    "UUID": uuid.UUID(int=7),
    "PurePosixPath('a.jpg')": pathlib.PurePosixPath("a.jpg"),
    "datetime": datetime.datetime(2024, 5, 1, 13, 30),
    "datetime with a zone": datetime.datetime(2024, 5, 1, 22, 30, tzinfo=_SEOUL),
    "datetime with microseconds": datetime.datetime(2024, 5, 1, 13, 30, 0, 5),
    "date": datetime.date(2024, 5, 1),
    "time": datetime.time(13, 30),
    "timedelta": datetime.timedelta(seconds=7),
    "pandas.Timestamp": pd.Timestamp("2024-05-01 13:30"),
    "pandas.Timestamp(1)": pd.Timestamp(1),
    "pandas.NaT": pd.NaT,
    "pandas.NA": pd.NA,
    "np.bool_(True)": np.bool_(True),
    "np.int8(7)": np.int8(7),
    "np.uint64(2**63)": np.uint64(2**63),
    "np.float16(0.5)": np.float16(0.5),
    "np.float32(7)": np.float32(7),
    "np.float64(1e300)": np.float64(1e300),
    "np.longdouble(0.5)": np.longdouble(0.5),
    "np.complex64(1)": np.complex64(1),
    "np.str_('cat')": np.str_("cat"),
    "np.bytes_(b'cat')": np.bytes_(b"cat"),
    "datetime64 of days": np.datetime64("2024-05-01"),
    "datetime64 of months": np.datetime64("2024-05"),
    "datetime64 of microseconds": np.datetime64(5, "us"),
    "datetime64 of attoseconds": np.datetime64(1, "as"),
    "datetime64 beyond int64": np.datetime64(2**62, "W"),
    "datetime64 not a time": np.datetime64("NaT"),
    "timedelta64": np.timedelta64(7, "s"),
    "np.array(7)": np.array(7),
    "np.array(0.5)": np.array(0.5),
    "np.array('cat')": np.array("cat"),
    "array of datetime64, no dimension": np.array(np.datetime64("2024-05-01")),
    "[]": [],
    "[1, 2]": [1, 2],
    "[1, 2, 3, 4]": [1, 2, 3, 4],
    "(1, 2)": (1, 2),
    "range(2)": range(2),
    "[1, True]": [1, True],
    "[1, 0.5]": [1, 0.5],
    "[2**24 + 1, 0.5]": [2**24 + 1, 0.5],
    "[1, None]": [1, None],
    "[300, 2**63]": [300, 2**63],
    "['cat', b'dog']": ["cat", b"dog"],
    "['cat', 1]": ["cat", 1],
    "['2024-05-01', date]": ["2024-05-01", datetime.date(2024, 5, 1)],
    "[[1, 2], [3, 4]]": [[1, 2], [3, 4]],
    "[[1, 2], [3]]": [[1, 2], [3]],
    "[[], []]": [[], []],
    "[[[1]]]": [[[1]]],
    "[1, [2]]": [1, [2]],
    "[[0, 0, 1, 1]]": [[0, 0, 1, 1]],
    "[array of 2, array of 2]": [np.arange(2), np.arange(2)],
    "array of int64 (2,)": np.arange(2),
    "array of uint8 (2, 2)": np.arange(4, dtype=np.uint8).reshape(2, 2),
    "array of float32 (2, 2)": np.arange(4, dtype=np.float32).reshape(2, 2),
    "array of float64 (1, 4)": np.ones((1, 4)),
    "array of bool (2,)": np.array([True, False]),
    "array of str (2,)": np.array(["cat", "dog"]),
    "array of object (2,)": np.array([1, 2], object),
    "array of datetime64 (1,)": np.array(["2024-05-01"], "M8[D]"),
    "array of longdouble (1,)": np.ones(1, np.longdouble),
    "array of nothing (0, 4)": np.zeros((0, 4)),
    "masked array (2,)": np.ma.MaskedArray([1, 2], [False, True]),
    "mapping of bytes and path": {"bytes": b"cat", "path": "a.jpg"},
    "mapping": {"a": 1},
    "set": {1},
    "PIL image": _image(),
    "module": fractions,
}
FEATURES: Mapping[str, Feature] = {
    "int64": Feature("x", Kind.INT64),
    "float": Feature("x", Kind.FLOAT),
    "bool": Feature("x", Kind.BOOL),
    "text": Feature("x", Kind.TEXT),
    "bytes": Feature("x", Kind.BYTES),
    "label": Feature("x", Kind.LABEL),
    "timestamp in seconds": Feature("x", Kind.TIMESTAMP, unit="s"),
    "timestamp in nanoseconds": Feature("x", Kind.TIMESTAMP, unit="ns"),
    "image by path": Feature("x", Kind.IMAGE),
    "image inline": Feature("x", Kind.IMAGE, inline=True),
    "box": Feature("x", Kind.BOX),
    "int64 of shape [any]": Feature("x", Kind.INT64, shape=(None,)),
    "float of shape [2, 2]": Feature("x", Kind.FLOAT, shape=(2, 2)),
    "float of shape [any, any]": Feature("x", Kind.FLOAT, shape=(None, None)),
    "text of shape [any]": Feature("x", Kind.TEXT, shape=(None,)),
    "tensor of uint8 of shape [any]": Feature(
        "x", Kind.TENSOR, shape=(None,), dtype="uint8", encoding="raw"
    ),
    "tensor of float32 without dimensions": Feature(
        "x", Kind.TENSOR, dtype="float32", encoding="raw"
    ),
    "tensor of string of shape [any]": Feature(
        "x", Kind.TENSOR, shape=(None,), dtype="string", encoding="proto"
    ),
}


def _outcome(value: Any, feature: Feature) -> str:
    """Returns what is stored of a value; empty where it is refused."""
    try:
        batch = rows_of([{"x": value}, {}], Schema((feature,)))
    except EncodingError:
        return ""
    column = batch.column(0)
    stored, absent = column.to_pylist()
    assert absent is None
    return f"{column.type} {stored!r}"


def table() -> Iterator[str]:
    """Yields the lines of the table: what is taken, then what is refused."""
    for name, feature in FEATURES.items():
        yield f"# {name}"
        outcomes = {shown: _outcome(value, feature) for shown, value in VALUES.items()}
        yield from (
            f"{shown} -> {stored}" for shown, stored in outcomes.items() if stored
        )
        refused = "; ".join(shown for shown, stored in outcomes.items() if not stored)
        yield textwrap.fill(f"refused: {refused}", 88, subsequent_indent="    ")
        yield ""


if __name__ == "__main__":
    print(*table(), sep="\n", end="")
