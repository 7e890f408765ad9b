"""`--stratify-column label` for a folder of images: shares within each class."""

import collections
import pathlib

import pytest
from PIL import Image

from tests.support.outputs import dataset
from tests.support.runs import convert, refused

Folder = pathlib.Path

SHARES = ("--splits", "train=0.7,validation=0.15,test=0.15")
STRATIFIED = (*SHARES, "--stratify-column", "label")
COUNTS = {"cat": 40, "dog": 20, "emu": 7}


@pytest.fixture
def photos(tmp_path: Folder) -> Folder:
    for label, count in COUNTS.items():
        for number in range(count):
            path = tmp_path / "in" / label / f"{number:02}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 3), (number, 0, 0)).save(path)
    return tmp_path / "in"


def test_each_class_has_the_shares(photos: Folder, tmp_path: Folder) -> None:
    """Exact to one image in each class, and in all."""
    convert(photos, tmp_path / "out", *STRATIFIED)
    found = {s["name"]: s for s in dataset(tmp_path / "out")["splits"]}
    totals: collections.Counter[str] = collections.Counter()
    for name, share in {"train": 0.7, "validation": 0.15, "test": 0.15}.items():
        for label, count in found[name]["classes"]["label"].items():
            totals[label] += count
            assert abs(count - share * COUNTS[label]) <= 1
        assert abs(found[name]["records"] - share * sum(COUNTS.values())) <= 1
    assert totals == COUNTS


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--stratify-column", "label"), "needs splits"),
        ((*STRATIFIED, "--unlabelled"), "must name a feature; found 'label'"),
        ((*SHARES, "--stratify-column", "height"), "must name a feature"),
    ],
)
def test_what_cannot_be_stratified(
    photos: Folder, tmp_path: Folder, options: tuple[str, ...], error: str
) -> None:
    """There is no class of each image, or no share."""
    assert error in refused(2, photos, tmp_path / "out", *options)
