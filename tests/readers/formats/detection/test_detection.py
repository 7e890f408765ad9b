"""COCO from end to end, as TensorFlow reads the records."""

import pathlib

import numpy as np
import pytest

from tests.readers.parsed import read_with_tensorflow
from tests.support.format_sources import BOXES, OBJECT, sorted_messages, write_coco
from tests.support.outputs import account, contents, dataset
from tests.support.runs import convert

Folder = pathlib.Path


BOX_KINDS = {
    **{
        f"{OBJECT}/bbox/{side}": "float32*" for side in ("xmin", "ymin", "xmax", "ymax")
    },
    f"{OBJECT}/class/text": "string*",
    f"{OBJECT}/class/label": "int64*",
}


def test_coco(tmp_path: Folder) -> None:
    """TensorFlow parses the names of its Object Detection API as pycocotools has it."""
    pytest.importorskip("tensorflow")
    api = pytest.importorskip("pycocotools.coco")
    root = write_coco(tmp_path / "in", BOXES)
    out = tmp_path / "out"
    convert(root, out)
    kinds = {
        **BOX_KINDS,
        "image/encoded": "string",
        "image/source_id": "string",
        "image/height": "int64",
        "image/width": "int64",
        "image/format": "string",
        f"{OBJECT}/is_crowd": "int64*",
        f"{OBJECT}/area": "float32*",
    }
    found = read_with_tensorflow(out, kinds, "validation")
    oracle = api.COCO(str(root / "annotations/instances_val2017.json"))
    assert sorted(int(row["image/source_id"]) for row in found) == oracle.getImgIds()
    for row in found:
        (image,) = oracle.loadImgs(int(row["image/source_id"]))
        wanted = oracle.loadAnns(oracle.getAnnIds(image["id"]))
        assert (
            row["image/encoded"] == (root / "val2017" / image["file_name"]).read_bytes()
        )
        assert (row["image/height"], row["image/width"]) == (48, 64)
        assert row["image/format"] == b"jpeg"
        assert row[f"{OBJECT}/class/label"] == [each["category_id"] for each in wanted]
        assert row[f"{OBJECT}/is_crowd"] == [each["iscrowd"] for each in wanted]
        assert row[f"{OBJECT}/area"] == [each["area"] for each in wanted]
        assert row[f"{OBJECT}/class/text"] == [
            oracle.cats[each["category_id"]]["name"].encode() for each in wanted
        ]
        corners = np.array([each["bbox"] for each in wanted], float)
        corners[:, 2:] += corners[:, :2]
        corners /= (64, 48, 64, 48)
        sides = [
            row[f"{OBJECT}/bbox/{side}"] for side in ("xmin", "ymin", "xmax", "ymax")
        ]
        assert np.allclose(np.transpose(sides), corners, atol=1e-7)
    assert (out / "label_map.pbtxt").read_text() == (
        "item {\n  id: 1\n  name: 'person'\n}\n"
        "item {\n  id: 90\n  name: 'toothbrush'\n}\n"
    )
    assert "label_map.pbtxt" in [facts["file"] for facts in dataset(out)["files"]]
    # Resharded, boxes, accounts and the label map are what they were.
    convert(out, tmp_path / "b", "--compression", "gzip")
    assert sorted_messages(tmp_path / "b") == sorted_messages(out)
    assert account(tmp_path / "b")["parts"] == account(out)["parts"]
    assert (
        contents(tmp_path / "b")["label_map.pbtxt"]
        == (contents(out)["label_map.pbtxt"])
    )
