"""Files without a record: sound shards where their name says that there are others."""

import pathlib

import pytest

from beam_pipeline.commands import head, repair, verify
from tests.support.datasets import example, write_records

Folder = pathlib.Path
EMPTY, FILLED = "x-00000-of-00002.tfrecord", "x-00001-of-00002.tfrecord"


@pytest.fixture(params=["none", "gzip"])
def folder(tmp_path: Folder, request: pytest.FixtureRequest) -> Folder:
    """Two shards, as `WriteTFRecords` leaves those of one record."""
    folder = tmp_path / "in"
    folder.mkdir()
    write_records(folder / EMPTY, [], request.param)
    write_records(folder / FILLED, [example({"a": 1})], request.param)
    return folder


def test_commands_take_an_empty_shard(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is named by `verify`, `head` shows none, and `repair` keeps it."""
    for path in (folder, folder / EMPTY):
        assert verify.show(str(path)) == 0
        assert f"{EMPTY}: holds no record" in capsys.readouterr().out
    head.show(str(folder / EMPTY))
    assert capsys.readouterr().out.endswith("no records\n")
    target = folder.parent / "out"
    assert repair.run(str(folder), str(target), overwrite=False) == 0
    for name in (EMPTY, FILLED):
        assert (target / name).read_bytes() == (folder / name).read_bytes()
