"""Compares two encoders of Arrow batches as Examples: ours and tfx_bsl's.

Run in the peers' environment with the project's root on PYTHONPATH. In-process
times, the two interleaved; prints the median of each as nanoseconds a row.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa


def _rows(count: int) -> pa.RecordBatch:
    rng = np.random.default_rng(22)
    numbers = rng.integers(0, 5, count)
    animals = pa.array(["cat", "dog", "chicken", "horse", "goat"])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(rng.integers(0, 2, count).astype(bool)),
            pa.array(numbers),
            animals.take(pa.array(numbers)),
            pa.array(rng.standard_normal(count, np.float32)),
        ],
        ["feature0", "feature1", "feature2", "feature3"],
    )


def _lists(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Returns the rows in the form that tfx_bsl needs: a list in every cell."""
    offsets = pa.array(np.arange(rows.num_rows + 1, dtype=np.int32))
    types = [pa.int64(), pa.int64(), pa.binary(), pa.float32()]
    return pa.RecordBatch.from_arrays(
        [
            pa.ListArray.from_arrays(offsets, column.cast(kind))
            for column, kind in zip(rows.columns, types, strict=True)
        ],
        rows.schema.names,
    )


def _seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    kept = work()
    seconds = time.perf_counter() - begun
    del kept
    return seconds


def _ours(rows: pa.RecordBatch) -> Callable[[], Any]:
    from transforms.core.example.encoder import ExampleEncoder

    encoder = ExampleEncoder(rows.schema)
    return lambda: encoder.encode(rows)


def main() -> None:
    """Encodes the same rows with both encoders in turn; prints nanoseconds per row."""
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=65_536)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--peer-only", action="store_true")
    arguments = parser.parse_args()

    rows = _rows(arguments.rows)
    lists = _lists(rows)
    peer = RecordBatchToExamplesEncoder()
    works: dict[str, Callable[[], Any]] = {"peer": lambda: peer.encode(lists)}
    if not arguments.peer_only:
        works["ours"] = _ours(rows)
    times: dict[str, list[float]] = {name: [] for name in works}
    # Encoders may order the entries of a map differently, so only the sizes must agree.
    sizes = {
        name: sum(map(len, pa.array(work(), pa.large_binary()).to_pylist()))
        for name, work in works.items()
    }
    assert len(set(sizes.values())) == 1, sizes
    for _ in range(arguments.repeats):
        for name, work in works.items():
            times[name].append(_seconds(work))
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    per_row = {name: 1e9 * value / arguments.rows for name, value in medians.items()}
    print(json.dumps({f"{name}_ns": value for name, value in per_row.items()}))


if __name__ == "__main__":
    main()
