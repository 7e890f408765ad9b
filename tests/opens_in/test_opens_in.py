"""Every library opens what one run has written, with no further step.

All records are there once, with the right values, and missing values are what the table
says. Each program runs in the environment of its library.
"""

import pytest

from tests.opens_in.conftest import Datasets, Row
from tests.opens_in.environments import python_of, rows_read
from tests.opens_in.table import READERS, Line


@pytest.mark.parametrize("program", READERS)
def test_it_opens(program: str, datasets: Datasets, lines: dict[str, Line]) -> None:
    """All records, once, with the right values."""
    reader = READERS[program]
    module = "keras" if program.startswith("keras") else program
    found = rows_read(
        module,
        reader.environment,
        [datasets.photos, datasets.table],
        dict(reader.variables),
    )
    photos = {row["filename"]: row for row in found["photos"]}
    assert photos == datasets.photo_rows
    assert len(found["photos"]) == len(photos)
    expected = {
        key: {
            name: filled[name] if value is None and name in filled else value
            for name, value in row.items()
        }
        for key, row in datasets.table_rows.items()
        for filled in [
            dict(zip(("age", "weight", "note"), reader.missing, strict=True))
        ]
    }
    table = {row["id"]: row for row in found["table"]}
    if program == "dali":
        _leave_out(table, datasets.table_rows)
        _leave_out(expected, datasets.table_rows)
    assert table == expected
    assert len(found["table"]) == len(table)
    lines[program] = Line(reader.name, found["versions"], reader.said)


def _leave_out(rows: dict[int, Row], expected: dict[int, Row]) -> None:
    """Takes missing values out of rows: DALI gives what was in the memory."""
    for key, row in rows.items():
        row["note"] = None
        row |= {name: None for name, value in expected[key].items() if value is None}


def test_hugging_face_takes_no_file_for_data(datasets: Datasets) -> None:
    """It refuses the folders: it would otherwise read what points at the data."""
    for folder in (datasets.photos, datasets.table):
        program = f"import datasets; datasets.load_dataset({folder!r})"
        done = python_of("torch", "-c", program, variables={"HF_HUB_OFFLINE": "1"})
        assert done.returncode
        assert "No (supported) data files" in done.stderr
