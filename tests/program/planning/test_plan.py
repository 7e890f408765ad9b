"""What a plan says of disk space, and that it writes nothing: what needs a process."""

import pathlib

import pytest

from tests.support.plans import everything, planned, write_numbers
from tests.support.runs import command, python
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv

Folder = pathlib.Path


def test_the_command_writes_nothing_and_loads_no_beam(tmp_path: Folder) -> None:
    """`beam-tfrecord plan` prints what would happen, from a process without Beam."""
    source = write_numbers(tmp_path / "rows.csv")
    before = everything(tmp_path)
    code = (
        "import sys\n"
        "from beam_pipeline import cli\n"
        "try:\n"
        "    cli.main(sys.argv[1:])\n"
        "finally:\n"
        "    assert 'apache_beam' not in sys.modules\n"
        "    assert 'tensorflow' not in sys.modules\n"
    )
    done = python("-c", code, "plan", source, tmp_path / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nothing was written" in done.stdout
    assert everything(tmp_path) == before


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    lines = (f"{number},w{number % 7}" for number in range(20_000))
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", "n,w", lines)


def test_what_is_needed(table: Folder, tmp_path: Folder) -> None:
    """The shards, and the segments where they are files; within 20 % of what it is."""
    inline = planned(table, tmp_path).needed_bytes
    filed = planned(table, tmp_path, IN_FILES).needed_bytes
    assert filed - inline == table.stat().st_size
    assert command("convert", table, tmp_path / "out").code == 0
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("*tfrecord*"))
    assert inline == pytest.approx(size, rel=0.2)


def test_images_that_a_table_names(tmp_path: Folder) -> None:
    """Some of them are asked for their size, wherever they are; others are a guess."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(300):
        # The header is that of a JPEG; no more of it is looked at.
        (photos / f"{number}.jpg").write_bytes(b"\xff\xd8\xff" + bytes(20_000))
    lines = [f"{number}.jpg,{number % 3}" for number in range(300)]
    lines[0] = "no\0name.jpg,0"
    named = write_csv(tmp_path / "named" / "t.csv", "image,label", lines)
    columns = {"image_columns": ["image"]}

    seen = planned(named, tmp_path, **columns, images_root=str(photos)).needed_bytes
    assert seen == pytest.approx(300 * 20_100, rel=0.02)
    gone = planned(named, tmp_path, **columns, images_root=str(tmp_path)).needed_bytes
    assert gone == pytest.approx(300 * 100_100, rel=0.02)
