"""A contract in the spec: rows that break it are rejects, and counts are limited."""

import pathlib

import pytest

from tests.support.outputs import account, features, rejects
from tests.support.own_pipelines import write_rows
from tests.support.runs import convert, refused
from tests.support.sources import write_csv
from transforms.errors import RecordCountError

Folder = pathlib.Path
pytestmark = pytest.mark.usefixtures("without_runner")
ROWS = 100
SPEC = """
features:
  age: {kind: int64, min: 18, max: 90}
  kind: {kind: label, allowed: [cat, dog]}
  code: {kind: text, pattern: '^[a-z]{2}-[0-9]+$'}
  day: {kind: timestamp, min: '2026-01-01'}
max_reject_rate: 0.1
"""
BAD = {
    3: ("17,cat,ab-3,2026-01-02", "below_min", 5),
    5: ("91,cat,ab-5,2026-01-02", "above_max", 7),
    7: ("20,cow,ab-7,2026-01-02", "not_allowed", 9),
    9: ("20,dog,ab9,2026-01-02", "no_match", 11),
    11: ("20,dog,ab-9,2025-12-31", "below_min", 13),
}


@pytest.fixture
def job(tmp_path: Folder) -> tuple[Folder, Folder]:
    """A table with one row that breaks each rule, and the spec that has them."""
    rows = [
        BAD[number][0] if number in BAD else f"{18 + number % 73},dog,ab-1,2026-01-02"
        for number in range(ROWS)
    ]
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC)
    return write_csv(tmp_path / "rows.csv", "age,kind,code,day", rows), spec


def test_rows_that_break_a_rule_are_rejected(
    job: tuple[Folder, Folder], tmp_path: Folder
) -> None:
    """Each is named by its row and line, with the reason of its rule."""
    table, spec = job
    convert(table, tmp_path / "out", "--spec", spec)
    found = [
        (each["row"], each["line"], each["reason"])
        for each in rejects(tmp_path / "out")
    ]
    assert found == [(row + 1, line, why) for row, (_, why, line) in BAD.items()]
    assert account(tmp_path / "out")["rejected"] == {
        "above_max": 1,
        "below_min": 2,
        "no_match": 1,
        "not_allowed": 1,
    }
    age = features(tmp_path / "out")["age"]
    assert (age["at_least"], age["max"]) == (18, 90)


@pytest.mark.parametrize(
    "limit", [("--min-records", ROWS), ("--max-records", ROWS - len(BAD) - 1)]
)
def test_the_number_of_records_is_limited(
    job: tuple[Folder, Folder], tmp_path: Folder, limit: tuple[str, int]
) -> None:
    """Nothing is committed; a dataset that is there already is not enough either."""
    table, spec = job
    refused(3, table, tmp_path / "out", "--spec", spec, *limit)
    assert not (tmp_path / "out").exists()
    convert(table, tmp_path / "out", "--spec", spec)
    refused(3, table, tmp_path / "out", "--spec", spec, *limit)
    name, _ = limit
    convert(table, tmp_path / "out", "--spec", spec, name, ROWS - len(BAD))


def test_rows_of_a_pipeline_keep_the_contract(tmp_path: Folder) -> None:
    """`WriteDataset` rejects them with the same reasons."""
    rows = [{"age": 18 + number % 70} for number in range(ROWS)] + [{"age": 17}]
    declared = {"age": {"kind": "int64", "min": 18}}
    write_rows(rows, tmp_path / "out", features=declared)
    assert account(tmp_path / "out")["rejected"] == {"below_min": 1}
    few = tmp_path / "few"
    with pytest.raises(RecordCountError):
        write_rows(rows, few, features=declared, min_records=ROWS + 1)
    assert not few.exists()
