"""Lists of images, as TFDS reads them."""

import json
import pathlib

import pytest

from tests.support.image_sources import image_bytes
from tests.support.runs import convert

Folder = pathlib.Path


@pytest.mark.parametrize("sizes", [(6, 6), (6, 9)])
def test_tfds_reads_lists_of_images(sizes: tuple[int, int], tmp_path: Folder) -> None:
    """Decoded where they have one size, as files where they do not."""
    tfds = pytest.importorskip("tensorflow_datasets")
    for n, width in enumerate(sizes):
        (tmp_path / f"{n}.png").write_bytes(image_bytes(n, size=(width, 4)))
    lists = [{"images": ["0.png", "1.png"]}, {"images": ["1.png"]}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lists)) + "\n")
    convert(tmp_path / "t.jsonl", tmp_path / "out", "--no-shuffle")
    found = tfds.builder_from_directory(str(tmp_path / "out")).as_dataset("train")
    shapes = [row["images"].shape.as_list() for row in found]
    if sizes[0] == sizes[1]:
        assert shapes == [[2, 4, 6, 3], [1, 4, 6, 3]]
    else:
        assert shapes == [[2], [1]]
