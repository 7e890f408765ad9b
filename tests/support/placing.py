"""Batches, the splits that their rows fall into, and the formula of their hashes."""

import hashlib
import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.core.model import Batch, Block
from transforms.core.placing.splitting import (
    NOWHERE,
    SplitRule,
    SplitTables,
    split_rows,
)

MASK = 2**64 - 1


def mixed(value: int) -> int:
    """splitmix64 in plain integers, as its paper has it."""
    z = (value + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def by_formula(text: str, kind: str, purpose: str, seed: int) -> int:
    """The hash in plain integers, as `transforms.core.placing.hashes` states it."""
    data = unicodedata.normalize("NFC", text).encode()
    salt = f"{kind}\0{purpose}\0{seed}\0".encode()
    base = int.from_bytes(hashlib.blake2b(salt, digest_size=8).digest(), "little")
    if len(data) > 128:
        salted = base.to_bytes(8, "little") + data
        digest = hashlib.blake2b(salted, digest_size=8).digest()
        return int.from_bytes(digest, "little")
    value = mixed((base + len(data)) & MASK)
    while data:
        data, word = data[:-8], data[-8:]
        value = mixed(value ^ int.from_bytes(word, "little"))
    return value


def batch_of(
    numbers: Sequence[int],
    *,
    keys: Sequence[str | None] | None = None,
    groups: Sequence[str | None] | None = None,
    splits: Sequence[str | None] | None = None,
    labels: Sequence[str | None] | None = None,
    origin: str = "a.csv",
) -> Batch:
    """A batch of rows that hold their own numbers and labels."""

    def texts(values: Sequence[str | None] | None) -> pa.StringArray | None:
        return None if values is None else pa.array(values, pa.string())

    count = len(numbers)
    rows = pa.record_batch(
        {
            "x": pa.array(numbers, pa.int64()),
            "label": pa.array(labels or [None] * count, pa.string()),
        }
    )
    return Batch(
        Block(origin, 0, 1000, rows=count),
        rows,
        np.array(numbers, np.int64),
        splits=texts(splits),
        keys=texts(keys),
        groups=texts(groups),
    )


def splits_of(
    batch: Batch, rule: SplitRule, tables: SplitTables | None = None
) -> list[str | None]:
    found = split_rows(batch, rule, tables or SplitTables())
    return [
        None if i == NOWHERE else found.names[i]
        for i in np.asarray(found.index).tolist()
    ]
