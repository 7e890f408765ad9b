"""What users say of texts: decimal commas."""

import pyarrow as pa
import pytest

from transforms.core.rows.text_cells import coerce
from transforms.core.schema import Feature, Kind
from transforms.formats.raw_rows import with_points

FLOAT = Feature("x", Kind.FLOAT)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1,5", 1.5), ("-1.031,01", -1031.01), (",5", 0.5), ("0.217,07", 217.07)],
        *[("2.037", 2037.0), (" 12 ", 12.0), ("1,5e3", 1500.0), ("1.000.000", 1e6)],
        *[("2.5", None), ("0.217", None), ("20.37", None), ("1.0000,5", None)],
        *[("007,5", None), ("1,000,000", None), (None, None), ("x", None)],
    ],
)
def test_a_decimal_comma(text: str | None, value: float | None) -> None:
    """Points group three digits each; what else has a point is no number."""
    columns = {"x": pa.array([text], pa.string())}
    found = coerce(with_points(columns, [FLOAT], ",")["x"], FLOAT)
    assert found.values.to_pylist() == pa.array([value], pa.float32()).to_pylist()
    assert (found.faults is not None) == (value is None and text is not None)
    assert with_points(columns, [FLOAT], ".") is columns
    assert with_points(columns, [Feature("x", Kind.TEXT)], ",") == columns


def test_lists_with_a_decimal_comma() -> None:
    """Each value between separators is a number of its own."""
    feature = Feature("x", Kind.FLOAT, shape=(None,), separator=" ")
    cells = pa.array(["1,5 2.037", None, "", "x 1,5"])
    found = with_points({"x": cells}, [feature], ",")["x"]
    assert found.to_pylist() == ["1.5 2037", None, "", "x 1.5"]
