"""Several images in one feature: lists of paths or of files, to records and back."""

import json
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.image_sources import (
    image_bytes,
    image_struct,
    write_images,
    write_metadata,
)
from tests.support.outputs import account, features, records, rejects
from tests.support.runs import convert, refused

Folder = pathlib.Path
Row = dict[str, Any]
TOLERANT = ("--max-reject-rate", 1)
LISTS = {"a": ["i/0.png", "i/1.png"], "b": [], "c": ["i/2.png"]}


@pytest.fixture
def metadata(tmp_path: Folder) -> Folder:
    """A folder as Hugging Face has it, of rows of two images, none and one."""
    write_images(tmp_path / "data", [f"i/{n}.png" for n in range(3)])
    found = [{"file_names": paths, "q": q} for q, paths in LISTS.items()]
    write_metadata(tmp_path / "data/metadata.jsonl", found)
    return tmp_path / "data"


def read(out: Folder) -> dict[str, Row]:
    """Returns the records by their text `q`."""
    return {row["q"][0].decode(): row for row in records(out)}


def test_file_names_are_lists_of_images(metadata: Folder, tmp_path: Folder) -> None:
    """Bytes keep their order; values read from them are in parallel lists."""
    out = tmp_path / "out"
    convert(metadata, out)
    found = read(out)
    for q, paths in LISTS.items():
        files = [(metadata / path).read_bytes() for path in paths]
        names = [path.encode() for path in paths]
        assert found[q]["images"] == files
        assert found[q]["images/filename"] == names
        assert found[q]["images/height"] == [4] * len(paths)
        assert found[q]["images/width"] == [6] * len(paths)
    images = features(out)["images"]
    assert (images["kind"], images["shape"], images["column"]) == (
        "image",
        [None],
        "file_names",
    )
    assert (images["present"], images["fewest"], images["most"]) == (3, 0, 2)
    sizes = [len((metadata / f"i/{n}.png").read_bytes()) for n in range(3)]
    assert (images["min"], images["max"]) == (min(sizes), max(sizes))
    stated = json.loads((out / "features.json").read_text())
    shown = stated["featuresDict"]["features"]["images"]
    assert shown["sequence"]["feature"]["pythonClassName"].endswith(".Image")


def test_a_list_beside_single_images(tmp_path: Folder) -> None:
    """X_file_name(s) is X, as Hugging Face names it; lists of files need no name."""
    files = write_images(tmp_path / "data", ["f.png", "a.jpg", "b.jpg"])
    table = pa.table(
        {
            "file_name": ["f.png"],
            "mask_file_name": ["b.jpg"],
            "frames_file_names": [["a.jpg", "b.jpg"]],
            "shots": [["a.jpg", "b.jpg"]],
            "words": [["a.jpg", "gone.jpg"]],
        }
    )
    pq.write_table(table, tmp_path / "data/metadata.parquet")
    convert(tmp_path / "data", tmp_path / "out")
    (row,) = records(tmp_path / "out")
    assert row["file_name"] == [files["f.png"]]
    assert row["mask"] == [files["b.jpg"]]
    assert (row["file_name/height"], row["mask/width"]) == ([4], [6])
    assert row["frames"] == [files["a.jpg"], files["b.jpg"]]
    assert row["frames/depth"] == [3, 3]
    assert row["shots"] == row["frames"]
    assert row["words"] == [b"a.jpg", b"gone.jpg"]
    assert account(tmp_path / "out")["skipped"] == {}


@pytest.mark.parametrize("how", ["bytes", "struct", "paths"])
def test_lists_of_files_in_parquet(how: str, tmp_path: Folder) -> None:
    """Bytes and struct<bytes, path>, embedded or not, are lists of images."""
    files = write_images(tmp_path, ["a.png", "b.png"])
    values = {
        "bytes": pa.array(list(files.values()), pa.binary()),
        "struct": image_struct([(data, name) for name, data in files.items()]),
        "paths": image_struct([(None, name) for name in files]),
    }
    column = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), values[how])
    pq.write_table(pa.table({"views": column, "n": [1, 2]}), tmp_path / "t.parquet")
    convert(tmp_path / "t.parquet", tmp_path / "out", "--no-shuffle")
    first, second = records(tmp_path / "out")
    assert first["views"] == list(files.values())
    assert second["views"] == []
    assert features(tmp_path / "out")["views"]["kind"] == "image"


def test_lists_in_the_text_of_a_csv(tmp_path: Folder) -> None:
    """With a separator, or as JSON, where the job says that a column is of images."""
    files = write_images(tmp_path, ["a.png", "b.png"])
    (tmp_path / "t.csv").write_text('x,y\na.png|b.png,"[""b.png""]"\nb.png,[]\n')
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "features:\n"
        "  x: {kind: image, separator: '|'}\n"
        "  y: {kind: image, shape: [null]}\n"
    )
    convert(tmp_path / "t.csv", tmp_path / "out", "--spec", spec, "--no-shuffle")
    first, second = records(tmp_path / "out")
    assert first["x"] == [files["a.png"], files["b.png"]]
    assert first["y"] == [files["b.png"]]
    assert second["x"] == [files["b.png"]]
    assert second["x/height"] == [4]


def test_a_bad_image_of_a_list_costs_its_row(tmp_path: Folder) -> None:
    """The reject names the image; null, an empty path and no list are rejects too."""
    write_images(tmp_path, ["a.png", "b.png"])
    (tmp_path / "bad.png").write_bytes(image_bytes(9)[:60])
    lists = [
        ["a.png", "bad.png"],
        ["a.png", "gone.png", "b.png"],
        ["a.png", None],
        ["a.png", ""],
        None,
        ["b.png", "a.png"],
    ]
    lines = [json.dumps({"images": paths, "n": n}) for n, paths in enumerate(lists)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    convert(tmp_path / "t.jsonl", tmp_path / "out", *TOLERANT)
    assert [row["n"] for row in records(tmp_path / "out")] == [[5]]
    found = {reject["row"]: reject for reject in rejects(tmp_path / "out")}
    assert [found[n]["reason"] for n in range(1, 6)] == [
        "damaged_image",
        "unreadable",
        "missing_value",
        "missing_value",
        "missing_value",
    ]
    assert "'bad.png'" in found[1]["message"]
    assert "'gone.png'" in found[2]["message"]
    facts = account(tmp_path / "out")
    assert facts["read"] == facts["written"] + 5 == 6


def test_a_dataset_of_lists_is_converted_again(
    metadata: Folder, tmp_path: Folder
) -> None:
    """The records come back unchanged; --resize reads the sizes again."""
    convert(metadata, tmp_path / "one", "--name", "n")
    convert(tmp_path / "one", tmp_path / "two", "--name", "n")
    assert read(tmp_path / "one") == read(tmp_path / "two")
    convert(tmp_path / "one", tmp_path / "small", "--resize", "exact:2x3")
    assert read(tmp_path / "small")["a"]["images/height"] == [2, 2]
    assert read(tmp_path / "small")["a"]["images/width"] == [3, 3]


def test_boxes_are_of_one_image(tmp_path: Folder) -> None:
    """With a list of images it is unknown which image a box belongs to."""
    write_images(tmp_path, ["a.png"])
    line = {"images": ["a.png"], "b": [[0.1, 0.1, 0.2, 0.2]]}
    (tmp_path / "t.jsonl").write_text(json.dumps(line) + "\n")
    spec = tmp_path / "spec.yaml"
    spec.write_text("features: {b: {kind: box}}\n")
    message = refused(2, tmp_path / "t.jsonl", tmp_path / "out", "--spec", spec)
    assert "boxes are of one image" in message
