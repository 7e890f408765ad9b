"""Five nights of one job: drift, a corrected file, retries, a backfill, an open reader.

On a disk and in a bucket. What is expected is worked out from the rows alone.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from beam_pipeline import open_dataset
from tests.support.memory_store import MemoryStore, install
from tests.support.runs import command, convert, refused

Folder = pathlib.Path
Row = dict[str, Any]
pytestmark = pytest.mark.usefixtures("without_runner")
ROWS = 40
OPTIONS = (
    *("--label-column", "kind", "--splits", "train=0.7,test=0.3"),
    *("--key-column", "id"),
)


class Nights:
    """The days that were delivered, and the dataset that they must give."""

    def __init__(self, folder: Folder, output: str) -> None:
        self.folder = folder
        self.output = output
        self.wanted: dict[str, list[Row]] = {}

    def deliver(
        self, day: int, kinds: str, *, extra: bool = False, age: str = ""
    ) -> Folder:
        """Writes the file of a day; `kinds` are letters, one a class in turns."""
        rows: list[Row] = [
            {
                "id": day * 1000 + n,
                "age": n % 50,
                "kind": kinds[n % len(kinds)],
                "extra": f"e{n}" if extra else None,
            }
            for n in range(ROWS)
        ]
        self.wanted[f"2026-11-0{day}"] = rows
        names = ["id", "age", "kind", *(["extra"] if extra else [])]
        cells = [[str(row[name]) for name in names] for row in rows]
        if age:
            cells[5][1] = age
        path = self.folder / f"{day}.csv"
        path.write_text("\n".join(",".join(line) for line in [names, *cells]) + "\n")
        return path

    def night(self, day: int, *options: str) -> str:
        """Converts the file of a day; returns what was printed."""
        part = ("--part", f"2026-11-0{day}")
        return convert(
            self.folder / f"{day}.csv", self.output, *part, *OPTIONS, *options
        ).out

    def refused(self, code: int, day: int, *options: str) -> str:
        part = ("--part", f"2026-11-0{day}")
        return refused(
            code, self.folder / f"{day}.csv", self.output, *part, *OPTIONS, *options
        )

    def check(self, *days: int) -> None:
        """The dataset has the rows of these days, each once, in its split."""
        opened = open_dataset(self.output, labels="names")
        names = [f"2026-11-0{day}" for day in sorted(days)]
        assert list(opened.parts) == names
        rows = {split: [dict(row) for row in opened[split]] for split in opened}
        found = [row for split in rows.values() for row in split]
        wanted = [row for name in names for row in self.wanted[name]]
        extra = "extra" in opened.features
        wanted = [
            r if extra else {k: v for k, v in r.items() if k != "extra"} for r in wanted
        ]
        assert sorted(found, key=_id) == sorted(wanted, key=_id)
        assert command("verify", self.output).code == 0


def _id(row: Row) -> int:
    return int(row["id"])


@pytest.fixture(params=["disk", "bucket"])
def nights(
    request: pytest.FixtureRequest, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Nights]:
    """An output on a disk, or in a bucket."""
    if request.param == "bucket":
        install(MemoryStore(), monkeypatch)
        yield Nights(tmp_path, "s3://bucket/sets/events")
    else:
        yield Nights(tmp_path, str(tmp_path / "sets" / "events"))


def test_five_days(nights: Nights) -> None:
    """Each night adds its day; nothing doubles, and no id and no split moves."""
    nights.deliver(1, "bd")
    nights.night(1)
    reader = open_dataset(nights.output, labels="names")
    before = {split: [dict(row) for row in reader[split]] for split in reader}
    nights.deliver(2, "bd")
    nights.night(2)
    # A retried night.
    assert nights.night(2).startswith("up to date")
    nights.check(1, 2)
    # A new class and a new column, which nobody has allowed.
    nights.deliver(4, "bda", extra=True)
    message = nights.refused(4, 4)
    assert "'a' in row 3" in message
    assert "'extra' is new" in message
    nights.check(1, 2)
    nights.night(4, "--allow", "new-classes", "--allow", "new-columns")
    nights.check(1, 2, 4)
    # Integers that became floats: that is never allowed.
    nights.deliver(5, "b", age="7.5")
    assert "row 6" in nights.refused(4, 5, "--allow", "new-classes")
    # The corrected file, with the new column.
    nights.deliver(5, "ab", extra=True)
    nights.night(5)
    # A day that came late, without the new column and class.
    nights.deliver(3, "d")
    nights.night(3)
    nights.check(1, 2, 3, 4, 5)
    assert open_dataset(nights.output).classes == {"kind": ("b", "d", "a")}
    # A corrected day replaces its part alone.
    nights.deliver(2, "db")
    nights.refused(2, 2)
    nights.night(2, "--overwrite")
    nights.check(1, 2, 3, 4, 5)
    # What is older than the classes that were appended is still up to date.
    assert nights.night(1).startswith("up to date")
    # The reader of the first night has seen none of it.
    assert {split: [dict(row) for row in reader[split]] for split in reader} == before
    again = open_dataset(nights.output, labels="names")
    for split, rows in before.items():
        ids = {row["id"] for row in again[split]}
        assert {row["id"] for row in rows} <= ids
