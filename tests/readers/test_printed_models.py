"""The models at the end of the printed programs: they train and name a class."""

import pathlib
from typing import Any

import numpy as np
import PIL.Image
import pytest

from beam_pipeline import reader_programs
from tests.support.runs import convert
from tests.support.stress import sizes

Folder = pathlib.Path


# Splits -> the size of the programs' images: that of the largest, but at least 32.
SIZES = {"train validation test": 38, "train val": 32, "train": 32}


def photos(folder: Folder, splits: str) -> Folder:
    """Three images of either class in each split, no two of one shape."""
    number = 0
    for split in splits.split():
        for label in ("cat", "dog", "cat", "dog", "cat", "dog"):
            number += 1
            path = folder / "photos" / split / label / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = np.random.default_rng(number).integers(0, 256, (20 + number, 16))
            PIL.Image.fromarray(pixels.astype(np.uint8)).save(path)
    convert(folder / "photos", folder / "out")
    return folder / "out"


@pytest.mark.filterwarnings("ignore:.shuffle=True. was passed:UserWarning")
@pytest.mark.parametrize("splits", sizes("train val", "train validation test", "train"))
@pytest.mark.parametrize("reader", ["keras", "tensorflow"])
def test_the_printed_model_trains_and_names_a_class(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], reader: str, splits: str
) -> None:
    """With the validation split, if there is one."""
    pytest.importorskip("tensorflow")
    folder = photos(tmp_path, splits)
    capsys.readouterr()
    assert reader_programs.show(str(folder), reader) == 0
    code = capsys.readouterr().out
    assert ("validation_data=" in code) is ("val" in splits)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(code, names)
    out = capsys.readouterr().out
    assert f"image float32 (6, {SIZES[splits]}, {SIZES[splits]}, 3)" in out
    assert "loss" in out
    assert ("val_loss" in out) is ("val" in splits)
    said, _, guessed = out.splitlines()[-1].partition(" is taken for ")
    assert {said, guessed} <= {"cat", "dog"}


@pytest.mark.parametrize("reader", ["keras", "tensorflow"])
def test_images_are_numbers_from_0_to_1(
    tmp_path: Folder, capsys: pytest.CaptureFixture[str], reader: str
) -> None:
    """The same in both programs, so that a model of one serves the other."""
    pytest.importorskip("tensorflow")
    folder = photos(tmp_path, "train")
    path = next((tmp_path / "photos").rglob("*.png"))
    capsys.readouterr()
    reader_programs.show(str(folder), reader)
    names: dict[str, Any] = {}
    exec(capsys.readouterr().out, names)
    if reader == "keras":
        pixels = names["prepare"]({"image": path.read_bytes()})["image"]
    else:
        pixels = names["decode"](path.read_bytes()).numpy()
    assert pixels.dtype == np.float32
    assert pixels.shape == (32, 32, 3)
    assert 0 <= pixels.min() < 0.2 < 0.8 < pixels.max() <= 1
