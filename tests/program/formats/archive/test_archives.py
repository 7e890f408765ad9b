"""Archives from end to end: the same shards as their folders, and what is refused."""

import json
import pathlib

import pytest

from tests.support.archive_sources import write
from tests.support.format_sources import photos
from tests.support.image_sources import image_bytes
from tests.support.outputs import contents, records
from tests.support.runs import convert
from tests.support.sources import write_files

Folder = pathlib.Path


def shards_of(directory: Folder) -> dict[str, bytes]:
    return {k: v for k, v in contents(directory).items() if ".tfrecord-" in k}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The dataset that the folder of images makes."""
    root = tmp_path_factory.mktemp("folder")
    write_files(root / "photos", photos())
    convert(root / "photos", root / "out", "--preset", "imagenet")
    return root / "out"


@pytest.mark.parametrize("suffix", ["zip", "tar", "tar.gz"])
def test_archive_gives_the_shards_of_the_folder(
    tmp_path: Folder, folder: Folder, suffix: str
) -> None:
    """Packed or not, with Korean names, the same images make the same bytes."""
    path = write(tmp_path / f"photos.{suffix}", photos().items())
    convert(path, tmp_path / "out", "--preset", "imagenet")
    assert shards_of(tmp_path / "out") == shards_of(folder)
    assert len(shards_of(folder)) == 6


def test_webdataset(tmp_path: Folder) -> None:
    """Samples that webdataset writes have the fields that webdataset reads."""
    wds = pytest.importorskip("webdataset")
    path = tmp_path / "pets-000000.tar.gz"
    samples = [
        {
            "__key__": f"견본/{number:04d}",
            "png": image_bytes(number),
            "cls": number % 3,
            "json": {"caption": f"설명 {number}", "size": [12, 9]},
        }
        for number in range(8)
    ]
    with wds.TarWriter(str(path)) as writer:
        for sample in samples:
            writer.write(sample)
    convert(path, tmp_path / "out", "--no-shuffle")
    read = wds.WebDataset(str(path), shardshuffle=False)
    for row, sample in zip(records(tmp_path / "out"), read, strict=True):
        assert row["key"] == [sample["__key__"].encode()]
        assert row["image"] == [sample["png"]]
        assert row["cls"] == [int(sample["cls"])]
        told = json.loads(sample["json"])
        assert row["json/caption"] == [told["caption"].encode()]
        assert row["json/size"] == told["size"]
