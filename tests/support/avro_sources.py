"""Avro files of a few rows."""

import datetime
import decimal
import io
from typing import Any

import fastavro

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["a", "b"]}},
        {"name": "weight", "type": ["null", "double"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "price",
            "type": {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 8,
                "scale": 2,
            },
        },
    ],
}


def row(n: int) -> dict[str, Any]:
    return {
        "id": n,
        "kind": "ab"[n % 2],
        "weight": n / 4 if n % 3 else None,
        "day": datetime.date(2026, 1, 1) + datetime.timedelta(n),
        "tags": [f"é{n}"] * (n % 3),
        "price": decimal.Decimal(n) / 4,
    }


def avro(first: int, count: int, codec: str = "deflate") -> bytes:
    out = io.BytesIO()
    rows = [row(n) for n in range(first, first + count)]
    fastavro.writer(out, SCHEMA, rows, codec, sync_interval=500)
    return out.getvalue()
