"""YOLO, tables with a row a box and LabelMe from the command to the records."""

import json
import pathlib

import pytest

from tests.support.box_layouts import IMAGES, LAYOUTS, expected_boxes, write_layout
from tests.support.format_sources import OBJECT, values
from tests.support.outputs import account
from tests.support.runs import command, convert, refused

Folder = pathlib.Path


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str, tmp_path: Folder) -> None:
    """Images come as they are, with boxes, classes from 1 and a label map."""
    root = write_layout(tmp_path / "in", layout)
    run = convert(root, tmp_path / "out")
    found = values(tmp_path / "out")
    assert len(found) == len(IMAGES)
    for row in found:
        name = row["image/filename"][0].decode()
        assert row["image/encoded"] == [next(root.rglob(name)).read_bytes()]
        assert (row["image/width"], row["image/height"]) == ([40], [20])
        sides = [row[f"{OBJECT}/bbox/{s}"] for s in ("xmin", "ymin", "xmax", "ymax")]
        assert [list(box) for box in zip(*sides, strict=True)] == expected_boxes(name)
        texts = [name.decode() for name in row[f"{OBJECT}/class/text"]]
        labels = {"cat": 1, "dog": 2}
        assert row[f"{OBJECT}/class/label"] == [labels[text] for text in texts]
    map_text = (tmp_path / "out/label_map.pbtxt").read_text()
    assert "id: 1\n  name: 'cat'" in map_text
    assert run.err == ""
    assert account(tmp_path / "out")["parts"]["boxes"]["written"] == 3


def test_a_yaml_as_source(tmp_path: Folder) -> None:
    """SOURCE may be the YAML; its neighbours are other datasets."""
    root = write_layout(tmp_path / "in", "yolo")
    (root / "other.yaml").write_text("names: [x]\ntrain: train\n")
    assert "other.yaml" in refused(4, root, tmp_path / "out")
    convert(root / "data.yaml", tmp_path / "out")
    assert len(values(tmp_path / "out")) == len(IMAGES)
    again = command("convert", root / "data.yaml", tmp_path / "out")
    assert "up to date" in again.out + again.err


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_change_of_an_annotation_is_seen(layout: str, tmp_path: Folder) -> None:
    """A second run reads it; else the dataset would be old without a word."""
    root = write_layout(tmp_path / "in", layout)
    convert(root, tmp_path / "out")
    kinds = (".txt", ".csv", ".json")
    path = next(p for p in sorted(root.rglob("*")) if p.suffix in kinds)
    text = path.read_text()
    if layout == "labelme":
        text = json.dumps(json.loads(text) | {"shapes": []})
    else:
        first, _, *others = text.splitlines()
        text = "\n".join([first, *others]) + "\n"
    path.write_text(text)
    convert(root, tmp_path / "out", "--overwrite")
    assert account(tmp_path / "out")["parts"]["boxes"]["written"] < 3
