"""Arrow tables of many types, and their expected values."""

import decimal
from typing import Any

import pyarrow as pa


def mixed(count: int, start: Any = 0) -> pa.Table:
    """A table of every type that occurs in Parquet files."""
    numbers = range(start, start + count)
    return pa.table(
        {
            "i": pa.array(numbers, pa.int32()),
            "u": pa.array([2**64 - 1 - n for n in numbers], pa.uint64()),
            "f": pa.array([n / 3 for n in numbers], pa.float64()),
            "t": pa.array([None if n % 5 == 0 else f"é{n}" for n in numbers]),
            "d": pa.array([f"c{n % 3}" for n in numbers]).dictionary_encode(),
            "m": pa.array([decimal.Decimal(n) / 4 for n in numbers]),
            "ts": pa.array([n * 1000 for n in numbers], pa.timestamp("us", "UTC")),
            "l": pa.array([[n, None] if n % 2 else None for n in numbers]),
            "s": pa.array(
                [None if n % 7 == 0 else {"a": n, "b": {"c": str(n)}} for n in numbers]
            ),
            "image": pa.array(
                [{"bytes": b"\xff\xd8", "path": f"{n}.jpg"} for n in numbers]
            ),
            "objects": pa.array([[{"x": n, "y": [n]}] * (n % 3) for n in numbers]),
        }
    )


def expected(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of `mixed`, flattened by hand."""
    out = []
    for row in table.to_pylist():
        struct = row.pop("s") or {"a": None, "b": None}
        objects = row.pop("objects")
        row["s/a"] = struct["a"]
        row["s/b/c"] = (struct["b"] or {"c": None})["c"]
        row["objects/x"] = [each["x"] for each in objects]
        row["objects/y"] = [each["y"] for each in objects]
        out.append(row)
    return out
