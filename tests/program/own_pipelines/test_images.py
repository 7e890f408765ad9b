"""Images in the rows of a pipeline: leaks between splits, and what cannot be read."""

import io
import json
import pathlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.own_pipelines import write_rows

Folder = pathlib.Path


def png(number: int) -> bytes:
    """Returns an image that no other number has."""
    out = io.BytesIO()
    pixels = np.random.default_rng(number).integers(0, 255, (8, 9, 3), np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def notes_of(dataset: Folder) -> list[str]:
    found: list[str] = json.loads((dataset / "manifest.json").read_text())["run"][
        "notes"
    ]
    return found


@pytest.mark.parametrize("how", ["paths", "bytes", "arrays"])
def test_an_image_in_two_splits_is_noted(how: str, tmp_path: Folder) -> None:
    """The note says how many there are, and where one is: its path, or its key."""
    rows: list[dict[str, Any]] = []
    for number in range(12):
        path = tmp_path / f"{number}.png"
        # Image 0 is also image 9, in the other split.
        path.write_bytes(png(number % 9))
        image: Any = str(path)
        if how != "paths":
            image = (
                path.read_bytes() if how == "bytes" else np.asarray(Image.open(path))
            )
        split = "test" if number == 9 else "train"
        rows.append({"id": f"row {number}", "image": image, "split": split})
    write_rows(
        rows,
        tmp_path / "out",
        key="id",
        splits="column:split",
        features={"image": "image"},
    )
    (note,) = notes_of(tmp_path / "out")
    first, last = (
        (tmp_path / "0.png", tmp_path / "9.png")
        if how == "paths"
        else ("row 0", "row 9")
    )
    assert note == (
        f"1 image stands in more than one split: train and test: 1; for example test: "
        f"{last} = train: {first}"
    )
