"""Sources that several modules convert."""

import pathlib

import pytest

from beam_pipeline import sample
from tests.support.sources import write_csv

Folder = pathlib.Path


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """84 drawn images as split/label/file; no test changes them."""
    folder = tmp_path_factory.mktemp("source") / "photos"
    sample.write_photos(folder)
    return folder


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """10,000 rows of four features; no test changes them."""
    path = tmp_path_factory.mktemp("source") / "rows.csv"
    sample.write_rows(path)
    return path


@pytest.fixture
def jpeg(photos: Folder) -> bytes:
    return (photos / "train" / "circle" / "0000.jpg").read_bytes()


@pytest.fixture
def small(tmp_path: Folder) -> Folder:
    """A CSV of 20 rows, `number` and `word`."""
    return write_csv(
        tmp_path / "source" / "small.csv",
        "number,word",
        (f"{number},w{number % 3}" for number in range(20)),
    )
