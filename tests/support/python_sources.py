"""Rows and images in Python, as people have them."""

import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from PIL import Image

Folder = pathlib.Path
ANIMALS = ("cat", "dog", "chicken", "horse", "goat")


def w1(count: int) -> dict[str, np.ndarray]:
    """The tutorial's columns: the last row is (False, 4, goat, 0.9876)."""
    random = np.random.default_rng(0)
    numbers = random.integers(0, 5, count)
    columns = {
        "feature0": random.integers(0, 2, count).astype(bool),
        "feature1": numbers,
        "feature2": np.array(ANIMALS)[numbers],
        "feature3": random.standard_normal(count),
    }
    for column, value in zip(columns.values(), (False, 4, "goat", 0.9876), strict=True):
        column[-1] = value
    return columns


def pixels(index: int) -> np.ndarray:
    return np.random.default_rng(index).integers(0, 255, (6, 7, 3)).astype(np.uint8)


class Kind(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Inner:
    x: int
    y: list[int] | None = None


@dataclasses.dataclass
class Outer:
    a: Inner
    b: list[Inner]


class Tensor:
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([1, 2])


def _as_sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch as Beam gives it to another worker."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


_UNION = pa.UnionArray.from_dense(
    pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
)
# Arrow 25 ends the process that asks for its size.
_EMPTY = _as_sent(pa.record_batch([_UNION], names=["a"]).slice(0, 0))
# What people have in rows -> (rows, the kind of each feature).
TAKEN: dict[str, tuple[list[Any], dict[str, str]]] = {
    "dataclasses": (
        [Outer(Inner(1), [Inner(2, [3])]), Outer(Inner(4), [])],
        {"a/x": "int64", "a/y": "text", "b/x": "int64", "b/y": "int64"},
    ),
    "enums and paths": (
        [{"a": Kind.RED, "b": pathlib.Path("x"), "c": uuid.UUID(int=1)}],
        {"a": "text", "b": "text", "c": "text"},
    ),
    "times": (
        [
            {"a": datetime.datetime(2020, 1, 1), "b": datetime.date(2020, 1, 1)},
            {"a": pd.Timestamp("2020-01-01 00:00:00.000000001"), "b": pd.NaT},
        ],
        {"a": "timestamp", "b": "timestamp"},
    ),
    "numbers": (
        [{"a": np.int8(3), "b": np.array(3), "c": np.bool_(True)}, {"a": pd.NA}],
        {"a": "int64", "b": "int64", "c": "bool"},
    ),
    "decimals": ([{"a": decimal.Decimal("1.5")}, {"a": 1}], {"a": "text"}),
    "numpy texts": (
        [{"a": np.str_("x"), "b": np.array(["x", "y"])}],
        {"a": "text", "b": "text"},
    ),
    "tensors": ([{"a": Tensor()}, {"a": [3]}, {"a": range(2)}], {"a": "int64"}),
    "images": (
        [{"image": Image.new("RGB", (2, 2))}],
        dict.fromkeys(("depth", "height", "width"), "int64") | {"image": "image"},
    ),
    "dictionaries": (
        [pa.record_batch([pa.array(["x", "y"]).dictionary_encode()], names=["a"])],
        {"a": "text"},
    ),
    "views": (
        [pa.record_batch([pa.array(["x"], pa.string_view())], names=["a"])],
        {"a": "text"},
    ),
    "extensions": (
        [pa.record_batch([pa.array([b"0" * 16], pa.uuid())], names=["a"])],
        {"a": "bytes"},
    ),
    "durations": (
        [pa.record_batch([pa.array([1], pa.duration("s"))], names=["a"])],
        {"a": "int64"},
    ),
    "empty batches": ([pa.table({"a": []}), _EMPTY, {"a": 1}], {"a": "int64"}),
    "empty structs": (
        [pa.record_batch([pa.array([{}], pa.struct([]))], names=["a"]), {"b": 1}],
        {"a": "text", "b": "int64"},
    ),
}
