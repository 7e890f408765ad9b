"""Where CRCs by linearity end: `test_encoder` has their values."""

import math

import pyarrow as pa
import pytest

from transforms.core.example import joined_records
from transforms.core.example.joined_records import record_crcs
from transforms.core.example.record_parts import Run, Varying


@pytest.fixture(autouse=True)
def _always_by_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rows as well: a call a record costs more than anything."""
    monkeypatch.setattr(joined_records, "_CALL_NS", math.inf)


def views_of(values: list[bytes]) -> Varying:
    """Returns the values as binary views."""
    return Varying.of(pa.array(values, pa.binary()))


def test_values_outside_their_views_and_long_runs_are_left_to_calls() -> None:
    """12 bytes fit into a view, 13 do not; the table of distances has an end."""
    assert record_crcs([views_of([b"x" * 12])], 1) is not None
    assert record_crcs([views_of([b"", b"x" * 13])], 2) is None
    assert record_crcs([Run(None, bytearray(4_000), [])], 1) is not None
    assert record_crcs([Run(None, bytearray(4_001), [])], 1) is None
