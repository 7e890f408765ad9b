"""`plan` and `schema` show values readably, and tables in columns."""

import datetime
import pathlib
import re

import numpy as np
import pytest

from beam_pipeline.terminal import examples_text, print_table, range_text
from tests.support.runs import command
from tests.support.sources import write_csv
from transforms.core.infer.evidence import example_text
from transforms.core.schema import Feature, Kind

Folder = pathlib.Path


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (
            [0.5574738383293152, 0.08586862683296204, 1],
            "[0.557474, 0.0858686, 1]",
        ),
        ([0.5574738383293152] * 8, "[0.557474, 0.557474, 0.557474, ...]"),
        ([1, 2, 3], "[1, 2, 3]"),
        (list(range(1000)), "[0, 1, 2, ...]"),
        ([0.5], "[0.5]"),
        ([], "[]"),
        ([[], []], "[[], []]"),
        ([[0.25], [0.5] * 9] * 9, "[[0.25], [0.5, 0.5, 0.5, ...], [0.25], ...]"),
        ([datetime.date(2024, 5, 1)], "[2024-05-01]"),
        (np.arange(3.0), "[0, 1, 2]"),
        (["a", None, b"xyz"], "['a', None, 3 bytes]"),
        (b"12345", "5 bytes"),
        (0.5574738383293152, "0.5574738383293152"),
        ("x" * 100, "x" * 40),
    ],
)
def test_lists_are_cut_between_values(value: object, shown: str) -> None:
    """A list is whole, or ends with dots after whole values."""
    assert example_text(value) == shown


@pytest.mark.parametrize(
    ("kind", "unit", "ends", "shown"),
    [
        (Kind.INT64, "", (0, 19_999), "0 to 19,999"),
        (Kind.INT64, "", (123456789, 123456789), "123,456,789"),
        (Kind.FLOAT, "", (0.25, 1e30), "0.25 to 1e+30"),
        (Kind.FLOAT, "", (None, None), ""),
        (
            Kind.TIMESTAMP,
            "us",
            (0, 1_500_000),
            "1970-01-01T00:00:00Z to 1970-01-01T00:00:01.500000Z",
        ),
        (
            Kind.TIMESTAMP,
            "s",
            (-(2**63), 0),
            "-9,223,372,036,854,775,808 to 1970-01-01T00:00:00Z",
        ),
    ],
)
def test_ranges(
    kind: Kind, unit: str, ends: tuple[float | None, float | None], shown: str
) -> None:
    """Integers have separators, floats six digits, instants are ISO 8601."""
    feature = Feature("x", kind, column="x", unit=unit)
    assert range_text(*ends, feature) == shown


def test_examples_stay_on_one_line() -> None:
    """Three at most, cut with dots, and nothing that moves a cursor."""
    shown = examples_text(["a\nb\x1b[2J", "y" * 99, "", "fourth"])
    assert shown == "a\\nb\\x1b[2J, " + "y" * 31 + "…, ''"


def test_a_plan_names_what_it_cannot_know(tmp_path: Folder) -> None:
    """Where every row would be rejected, sizes are unknown and not 0 B."""
    source = write_csv(tmp_path / "t.csv", "a", [f"{n}" for n in range(500)])
    (tmp_path / "s.yaml").write_text("features: {a: bool}\n")
    plan = command("plan", source, tmp_path / "out", "--spec", tmp_path / "s.yaml").out
    assert "CSV of 1 column," in plan
    assert "disk    unknown: every row that was looked at would be rejected" in plan
    assert " 0 B" not in plan
    assert "workers 1; rows are kept in memory until they are written" in plan
    known = command("plan", source, tmp_path / "out").out
    assert re.search(r"disk    about [1-9]", known)
    assert "unknown" not in known


COLUMNS = ("feature", "kind", "count", "values")
ROWS = [
    ("id", "float", "1", ""),
    ("寬度", "int64", "12,345", "from 1 to 9"),
    ("", "text", "", "a rather long cell with words"),
    ("x\x1b[0m", "", "7", "[bold]no markup[/bold] :smile:"),
]


def test_cells_are_below_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    """Wide letters count twice, numbers are to the right, escapes are written out."""
    print_table(COLUMNS, ROWS, right=["count"])
    assert capsys.readouterr().out == (
        "\n"
        "feature   kind    count  values\n"
        "id        float       1\n"
        "寬度      int64  12,345  from 1 to 9\n"
        "          text           a rather long cell with words\n"
        "x\\x1b[0m              7  [bold]no markup[/bold] :smile:\n"
    )
