"""`convert --where`: rows that do not match are skipped, and counted."""

import pathlib
import re

import pytest

from beam_pipeline import open_dataset
from tests.support.outputs import account, rows
from tests.support.runs import convert, done, refused
from tests.support.sources import write_csv

Folder = pathlib.Path
pytestmark = pytest.mark.usefixtures("without_runner")
ROWS = 1000


@pytest.fixture
def table(tmp_path: Folder) -> Folder:
    """A CSV with an age that is missing in each tenth row, and a bad one."""
    lines = [
        f"{number},{'' if number % 10 == 0 else number % 90},"
        f"{('cat', 'dog')[number % 2]}"
        for number in range(ROWS)
    ]
    lines[7] = "7,old,dog"
    return write_csv(tmp_path / "rows.csv", "id,age,kind", lines)


def ids(folder: Folder) -> dict[str, list[int]]:
    dataset = open_dataset(folder)
    return {split: sorted(row["id"] for row in dataset[split]) for split in dataset}


def test_rows_that_do_not_match_are_skipped(table: Folder, tmp_path: Folder) -> None:
    """read = written + rejected + skipped; a missing value is no match."""
    convert(table, tmp_path / "out", "--where", "age > 30 and kind == 'dog'")
    wanted = [
        number
        for number in range(ROWS)
        if number % 10 and number % 90 > 30 and number % 2
    ]
    assert ids(tmp_path / "out") == {"train": wanted}
    assert account(tmp_path / "out") == {
        "read": ROWS,
        "written": len(wanted),
        "rejected": {"not_an_integer": 1},
        "skipped": {"filtered": ROWS - 1 - len(wanted)},
    }


def test_rows_keep_the_split_that_they_have_without_it(
    table: Folder, tmp_path: Folder
) -> None:
    """The condition moves no row to another split, by content and by key."""
    for options in ([], ["--key-column", "id"]):
        shares = ["--splits", "train=0.7,test=0.3", *options, "--overwrite"]
        convert(table, tmp_path / "all", *shares)
        convert(table, tmp_path / "some", *shares, "--where", "age <= 30")
        everywhere = ids(tmp_path / "all")
        some = ids(tmp_path / "some")
        assert sum(map(len, some.values())) < ROWS / 2
        for split, numbers in some.items():
            assert set(numbers) <= set(everywhere[split])


def test_plan_says_how_many_rows_match(table: Folder) -> None:
    """The estimate of records is that of the rows that match."""
    run = done("plan", table, table.parent / "out", "--where", "id < 100")
    assert re.search(r"train +~100 ", run.out)


@pytest.mark.parametrize("condition", ["ages > 3", "age >", "kind > 3"])
def test_a_wrong_condition_ends_before_the_run(
    table: Folder, tmp_path: Folder, condition: str
) -> None:
    """The command line is at fault; nothing is written."""
    refused(2, table, tmp_path / "out", "--where", condition)
    assert not (tmp_path / "out").exists()


def test_no_row_that_matches_is_an_error(table: Folder, tmp_path: Folder) -> None:
    """An empty dataset needs --min-records 0, as for other empty sources."""
    message = refused(4, table, tmp_path / "out", "--where", "age > 900")
    assert "were skipped (filtered " in message
    # A limit that somebody gave is what counts.
    limit = ("--min-records", 3)
    message = refused(3, table, tmp_path / "out", "--where", "age > 900", *limit)
    assert "at least 3 records (--min-records); it has 0" in message
    convert(table, tmp_path / "out", "--where", "age > 900", "--min-records=0")
    assert rows(tmp_path / "out") == []


def test_rejects_count_what_was_skipped(tmp_path: Folder) -> None:
    """What was read is what the report says; the share is of the other rows."""
    lines = [f"{number}," for number in range(20)] + ["x,"]
    table, spec = write_csv(tmp_path / "t.csv", "age,name", lines), tmp_path / "s.yaml"
    spec.write_text("features: {age: int64}")
    options = ("--where", "age < 9", "--spec", spec, "--max-reject-rate", 1)
    convert(table, tmp_path / "out", *options)
    head = done("rejects", tmp_path / "out").out.splitlines()[0]
    assert head.endswith(
        "1 item rejected of 21 read, 11 of them skipped (10.0 % of the others)"
    )
