"""What `export` writes is a folder of images, which other libraries open as it is."""

import json
import pathlib
import zlib

import pytest

import beam_tfrecord
from tests.opens_in.conftest import Datasets
from tests.opens_in.environments import python_of
from tests.opens_in.report import ANIMALS
from tests.support.runs import done

Folder = pathlib.Path

_TORCHVISION = """
import json, sys, zlib
from torchvision.datasets import ImageFolder

found = ImageFolder(sys.argv[1] + "/train")
image, label = found[0]
assert image.size[0] == 16
rows = [[zlib.crc32(open(path, "rb").read()), label] for path, label in found.samples]
print(json.dumps([found.classes, rows]))
"""
_HUGGING_FACE = """
import json, sys, zlib
import datasets

found = datasets.load_dataset("imagefolder", data_dir=sys.argv[1])
assert [*found] == ["train"]
assert found["train"][0]["image"].size[0] == 16
rows = found["train"].cast_column("image", datasets.Image(decode=False))
rows = [[zlib.crc32(open(r["image"]["path"], "rb").read()), r["label"]] for r in rows]
print(json.dumps([found["train"].features["label"].names, rows]))
"""


@pytest.mark.parametrize(
    "program", [_TORCHVISION, _HUGGING_FACE], ids=["torchvision", "datasets"]
)
def test_exported_images_are_opened(
    program: str, datasets: Datasets, tmp_path: Folder
) -> None:
    """`ImageFolder` and `imagefolder` have every image, byte for byte, in its class."""
    done("export", datasets.photos, tmp_path / "out")
    run = python_of(
        *("torch", "-c", program, str(tmp_path / "out")),
        cwd=tmp_path,
        variables={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")},
    )
    assert run.returncode == 0, run.stderr[-4000:]
    classes, rows = json.loads(run.stdout.splitlines()[-1])
    assert classes == [*ANIMALS]
    stored = beam_tfrecord.open_dataset(datasets.photos)["train"]
    wanted = [[zlib.crc32(row["image"]), int(row["label"])] for row in stored]
    assert sorted(rows) == sorted(wanted)
