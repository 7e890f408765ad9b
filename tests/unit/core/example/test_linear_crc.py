"""CRCs by linearity, with google-crc32c over the assembled records as the oracle."""

import math
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.example import record_parts as linear_crc
from transforms.core.example.record_parts import DataBuffers, Run, record_crcs

CELLS = ["u1", "<u2", "<u4", "<u8", "<i8", "<f4"]


@pytest.fixture(autouse=True)
def _always_by_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows as well: a call a record costs more than anything."""
    monkeypatch.setattr(linear_crc, "_CALL_NS", math.inf)


def views_of(values: list[bytes]) -> npt.NDArray[np.uint64]:
    """Returns the values as binary views."""
    return DataBuffers().views_of(pa.array(values, pa.binary()))


def run_of(
    template: bytes,
    stores: list[tuple[int, Any]],
    present: list[bool] | None = None,
) -> Run:
    """Returns a run with columns at positions."""
    mask = None if present is None else np.array(present)
    return Run(mask, bytearray(template), [(*each, 0) for each in stores])


def rows_of(run: Run, rows: int) -> list[bytes]:
    """Returns what a run puts into each record."""
    seen = [True] * rows if run.present is None else run.present.tolist()
    matrix = run.matrix(rows)
    return [matrix[i].tobytes() if seen[i] else b"" for i in range(rows)]


@st.composite
def records(draw: Any) -> Any:
    """Parts of random records, and each record's bytes."""
    rows = draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parts: list[Any] = []
    data = [b""] * rows
    for _ in range(draw(st.integers(1, 6))):
        if draw(st.booleans()):
            longest = draw(st.integers(0, 12))
            values = [rng.bytes(int(rng.integers(0, longest + 1))) for _ in data]
            parts.append(views_of(values))
        else:
            template = b""
            stores = []
            for _ in range(draw(st.integers(0, 3))):
                template += rng.bytes(draw(st.sampled_from([0, 1, 3, 20, 300])))
                shape = draw(st.sampled_from([(), (1,), (3,)]))
                kind = np.dtype(draw(st.sampled_from(CELLS)))
                count = rows * math.prod(shape)
                cells = np.frombuffer(rng.bytes(2 * count * kind.itemsize), kind)
                # Every other cell: columns are seldom contiguous.
                stores.append((len(template), cells[::2].reshape(rows, *shape)))
                # What is below a store is arbitrary.
                template += rng.bytes(kind.itemsize * math.prod(shape))
            template += rng.bytes(draw(st.integers(1, 5)))
            present = draw(
                st.none() | st.lists(st.booleans(), min_size=rows, max_size=rows)
            )
            parts.append(run_of(template, stores, present))
            values = rows_of(parts[-1], rows)
        data = [before + value for before, value in zip(data, values, strict=True)]
    return parts, data


@given(records())
def test_random_records_have_the_crcs_that_calls_compute(case: Any) -> None:
    """Runs, nulls, values of all sizes, fixed bytes before, between and behind them."""
    parts, data = case
    crcs = record_crcs(parts, len(data))
    assert crcs is not None
    assert crcs.tolist() == [google_crc32c.value(each) for each in data]


def test_values_outside_their_views_and_long_runs_are_left_to_calls() -> None:
    """12 bytes fit into a view, 13 do not; the table of distances has an end."""
    assert record_crcs([views_of([b"x" * 12])], 1) is not None
    assert record_crcs([views_of([b"", b"x" * 13])], 2) is None
    assert record_crcs([run_of(bytes(4_000), [])], 1) is not None
    assert record_crcs([run_of(bytes(4_001), [])], 1) is None
