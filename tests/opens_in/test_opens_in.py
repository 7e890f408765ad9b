"""Every library opens what one run has written, with no further step.

All records are there once, with the right values, and missing values are what the table
says. Each program runs in the environment of its library.
"""

import pathlib

import pytest

import beam_tfrecord
from tests.opens_in.conftest import Datasets, Row
from tests.opens_in.environments import ENVIRONMENTS, python_of, rows_read
from tests.opens_in.table import READERS, Line


@pytest.mark.parametrize("program", READERS)
def test_it_opens(program: str, datasets: Datasets, lines: dict[str, Line]) -> None:
    """All records, once, with the right values."""
    reader = READERS[program]
    found = rows_read(
        program.partition(" ")[0],
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


def test_the_text_index_is_what_others_make(
    datasets: Datasets, tmp_path: pathlib.Path
) -> None:
    """Byte for byte, of DALI's `tfrecord2idx` and of that of the package tfrecord."""
    makers = {
        "dali": [str(ENVIRONMENTS["torch"] / "bin" / "tfrecord2idx")],
        "tfrecord": ["-m", "tfrecord.tools.tfrecord2idx"],
    }
    for folder in (datasets.photos, datasets.table):
        for shard in sorted(pathlib.Path(folder).glob("*.tfrecord-*")):
            own = shard.parent / "index" / f"{shard.name}.idx"
            for name, maker in makers.items():
                made = tmp_path / f"{shard.name}.{name}"
                done = python_of("torch", *maker, str(shard), str(made))
                assert done.returncode == 0, done.stderr
                assert made.read_bytes() == own.read_bytes()


_GZIP = """
import glob, sys
from tfrecord.reader import tfrecord_loader

for file in sorted(glob.glob(sys.argv[1] + "/*.tfrecord-*")):
    for row in tfrecord_loader(file, None, compression_type="gzip"):
        print(row["id"][0])
"""


def test_the_package_tfrecord_reads_gzip_shards(tmp_path: pathlib.Path) -> None:
    """All records of each."""
    rows = [{"id": number, "text": f"{number}" * 2_000} for number in range(200)]
    beam_tfrecord.convert(rows, tmp_path / "out", compression="gzip", shards=2)
    done = python_of("torch", "-c", _GZIP, str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(map(int, done.stdout.split())) == [*range(200)]
