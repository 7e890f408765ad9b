"""Trees of images whose folders are no classes, from the command to the exit code."""

import pathlib

import pytest

from tests.support.archive_sources import write
from tests.support.image_sources import picture
from tests.support.outputs import dataset, first_values
from tests.support.runs import convert, refused
from tests.support.sources import write_files

Folder = pathlib.Path
BOX = b"0 0.5 0.5 0.25 0.25\n"
IMAGE = picture("JPEG")
ROBOFLOW = {
    f"{split}/{path}": data
    for split in ("train", "valid")
    for n in range(3)
    for path, data in ((f"images/{n}.jpg", IMAGE), (f"labels/{n}.txt", BOX))
}
MASKS = {f"{folder}/{n}.jpg": IMAGE for folder in ("colour", "masks") for n in range(3)}


def source(root: Folder, name: str, files: dict[str, bytes]) -> Folder:
    """Writes files into a folder, or an archive of the kind that the name says."""
    if "." in name:
        return write(root / name, files.items())
    return write_files(root / name, files)


def classes_of(out: Folder) -> list[str]:
    (found,) = (f["classes"] for f in dataset(out)["features"] if "classes" in f)
    return list(found)


@pytest.mark.parametrize("name", ["in", "in.tar.gz"])
@pytest.mark.parametrize(
    ("files", "seen", "classes"),
    [(ROBOFLOW, "YOLO", ["images"]), (MASKS, "their masks", ["colour", "masks"])],
)
def test_parts_of_annotated_datasets(
    files: dict[str, bytes], seen: str, classes: list[str], name: str, tmp_path: Folder
) -> None:
    """A folder and an archive of it are refused alike; --format takes the folders.

    But a folder of YOLO's is read with its labels.
    """
    path = source(tmp_path, name, files)
    said = "images" if name == "in" else "archive"
    if (name, seen) == ("in", "YOLO"):
        convert(path, tmp_path / "boxes")
        rows = first_values(tmp_path / "boxes")
        assert [row["image/object/bbox/xmin"] for row in rows] == [0.375] * 6
    else:
        message = refused(4, path, tmp_path / "out")
        assert seen in message
        assert f"--format {said}" in message
    convert(path, tmp_path / "out", "--format", said)
    assert classes_of(tmp_path / "out") == classes
