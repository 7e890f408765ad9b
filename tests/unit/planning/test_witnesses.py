"""The files by which workers know the source that the submitter has planned."""

import io
import pathlib

import pytest
from PIL import Image

from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import make_spec
from transforms.storage.visibility import Witness

Folder = pathlib.Path


@pytest.fixture
def photo() -> bytes:
    """A small image."""
    data = io.BytesIO()
    Image.new("RGB", (8, 8)).save(data, "PNG")
    return data.getvalue()


def witnesses(source: Folder, **settings: object) -> tuple[Witness, ...]:
    given = {"source": str(source), "output": "OUTPUT", **settings}
    inputs, planned = plan_source(make_spec(given))
    return planned.witnesses(inputs.root, str(settings.get("images_root", "")))


def test_a_table(tmp_path: Folder) -> None:
    """The table itself, not another file beside it."""
    (tmp_path / "a.log").write_text("grows")
    table = tmp_path / "rows.csv"
    table.write_text("id\n1\n")
    first, _ = witnesses(table)
    assert first == Witness(str(tmp_path), str(table), 5)


def test_a_folder_of_images(tmp_path: Folder, photo: bytes) -> None:
    """The first of its images."""
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "a.png").write_bytes(photo)
    first, _ = witnesses(tmp_path)
    image = tmp_path / "cat" / "a.png"
    assert first == Witness(str(tmp_path), str(image), len(photo))


@pytest.mark.parametrize("folder", ["", "photos"])
def test_images_that_a_table_names(tmp_path: Folder, photo: bytes, folder: str) -> None:
    """One of them, where the rows say that it is."""
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / "a.png").write_bytes(photo)
    table = tmp_path / "rows.csv"
    table.write_text("image,kind\na.png,1\n")
    settings = {"images_root": str(tmp_path / folder)} if folder else {}
    _, images = witnesses(table, image_columns=["image"], **settings)
    image = tmp_path / folder / "a.png"
    assert images == Witness(str(tmp_path / folder), str(image), len(photo))
