"""The contract of a feature: which rows break it, and why."""

import math

import numpy as np
import pyarrow as pa
import pytest

from transforms.core.rows.column import reason_of
from transforms.core.rows.conform import conform, contract_faults
from transforms.core.schema import Feature, Kind, Missing, Schema

INTS = pa.array([1, 5, None, 9])
FLOATS = pa.array([0.1, math.nan, None, 2.0], pa.float32())
TEXTS = pa.array(["ab-1", "b", None, ""])


@pytest.mark.parametrize(
    ("values", "feature", "expected"),
    [
        (INTS, Feature("x", Kind.INT64, at_least=5), {0: "below_min"}),
        (INTS, Feature("x", Kind.INT64, at_most=5), {3: "above_max"}),
        (INTS, Feature("x", Kind.INT64, allowed=(1, 9)), {1: "not_allowed"}),
        (FLOATS, Feature("x", Kind.FLOAT, at_least=0.1), {1: "below_min"}),
        (
            FLOATS,
            Feature("x", Kind.FLOAT, at_most=1.5),
            {1: "above_max", 3: "above_max"},
        ),
        (
            TEXTS,
            Feature("x", Kind.TEXT, matches="^[a-z]+-[0-9]$"),
            {1: "no_match", 3: "no_match"},
        ),
        (
            TEXTS,
            Feature("x", Kind.LABEL, allowed=("b", "")),
            {0: "not_allowed"},
        ),
        (INTS, Feature("x", Kind.INT64), {}),
    ],
)
def test_values_that_break_a_rule(
    values: pa.Array, feature: Feature, expected: dict[int, str]
) -> None:
    """Missing values keep every rule, and NaN keeps no limit."""
    found = {}
    for faults in contract_faults(values, feature):
        for place in np.flatnonzero(faults).tolist():
            found[place] = str(reason_of(int(faults[place])))
    assert found == expected


def test_each_item_of_a_list_must_fit() -> None:
    """A row is at fault for one of its items, at any depth."""
    feature = Feature("x", Kind.INT64, shape=(None, None), at_most=3)
    rows = pa.array([[[1], [2, 3]], [[4]], [], None, [[None], [1, 9]]])
    (faults,) = contract_faults(rows, feature)
    assert np.flatnonzero(faults).tolist() == [1, 4]


def test_conversion_names_rule_and_value() -> None:
    """The complaint says what the cell holds and what the feature asks for."""
    feature = Feature("age", Kind.INT64, at_least=18, at_most=99)
    cells = {"age": pa.array(["17", "18", None, "x", "100"])}
    _, misfits = conform(cells, Schema((feature,)), 5, "a.csv")
    found = {
        place: misfit.complaint(place)
        for misfit in misfits
        for place in np.flatnonzero(misfit.bad).tolist()
    }
    assert {place: str(fault.reason) for place, fault in found.items()} == {
        0: "below_min",
        3: "not_an_integer",
        4: "above_max",
    }
    assert "'17'" in found[0].message
    assert "18" in found[0].message


def test_a_limit_of_times_is_shown_as_a_date() -> None:
    """Not as the number of seconds that it is stored as."""
    feature = Feature("day", Kind.TIMESTAMP, unit="s", at_least=1577836800)
    _, (misfit,) = conform(
        {"day": pa.array(["2019-01-01"])}, Schema((feature,)), 1, "a.csv"
    )
    assert "2020-01-01" in misfit.complaint(0).message


def test_a_value_that_is_filled_in_is_checked_as_well() -> None:
    """Records hold it like any other."""
    feature = Feature("x", Kind.INT64, missing=Missing.FILL, fill=0, at_least=1)
    _, misfits = conform({"x": pa.array([None, "1"])}, Schema((feature,)), 2, "a.csv")
    assert [misfit.bad.tolist() for misfit in misfits] == [[True, False]]
