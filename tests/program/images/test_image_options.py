"""Images from the command line to the records: policy, columns, masks, folder."""

import io
import pathlib
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from PIL import Image

from beam_pipeline import convert as convert_rows
from tests.support.gathered_rows import gather
from tests.support.image_sources import (
    encoded,
    image_bytes,
    picture,
    tree,
    write_images,
    write_metadata,
)
from tests.support.outputs import (
    features,
    first_values,
    notes_of,
    rejects,
    rows,
)
from tests.support.own_pipelines import write_rows
from tests.support.runs import command, convert, refused
from transforms.core.schema import Kind
from transforms.errors import SpecError

Folder = pathlib.Path
Row = dict[str, Any]
PAIRS: list[Row] = [
    {"n": n, "colour": f"p/{n}.png", "seg": f"m/{n}.png"} for n in range(4)
]
KINDS = {
    "n": "int64",
    **{
        f"{image}{part}": kind
        for image in ("colour", "seg")
        for part, kind in (("", "image"), ("/filename", "text"), ("/height", "int64"))
    },
}


def test_fault_83_first_frame_on_demand(tmp_path: Folder) -> None:
    """An animation is rejected, or its first frame is taken."""
    frames = [Image.new("RGB", (6, 5), color) for color in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    source = tree(tmp_path / "in", moving_gif=data, still_png=picture("PNG"))
    convert(source, tmp_path / "a", "--max-reject-rate", 0.5)
    assert [r["reason"] for r in rejects(tmp_path / "a")] == ["animated_image"]
    convert(source, tmp_path / "b", "--animations", "first")
    found = {r["filename"]: r["image"] for r in first_values(tmp_path / "b")}
    first = Image.open(io.BytesIO(found[b"label/moving.gif"])).convert("RGB")
    assert first.getpixel((0, 0)) == (255, 0, 0)


@pytest.fixture
def folder(tmp_path: Folder) -> Folder:
    """Photos and their masks of four classes, in files."""
    write_images(tmp_path, [row["colour"] for row in PAIRS])
    numbers = np.random.default_rng(0).integers(0, 4, (24, 32)).astype(np.uint8)
    mask = Image.fromarray(numbers, "P")
    mask.putpalette([0, 0, 0, 128, 0, 0, 0, 128, 0, 250, 250, 10])
    (tmp_path / "m").mkdir()
    for row in PAIRS:
        mask.save(tmp_path / row["seg"])
    return tmp_path


def write_table(path: Folder, found: list[Row] = PAIRS) -> Folder:
    """Writes rows in the format that the suffix says."""
    if path.suffix == ".arrow":
        feather.write_feather(pa.Table.from_pylist(found), path)
    else:
        write_metadata(path, found)
    return path


def opened(data: Any) -> Image.Image:
    """Returns an image of a record."""
    return Image.open(io.BytesIO(data))


def struct(data: bytes, path: str) -> Row:
    """Returns a file as the Hugging Face Hub has it in a row."""
    return {"bytes": data, "path": path}


def kinds(out: Folder) -> dict[str, str]:
    """Returns the kinds of a dataset's features, but those of widths and depths."""
    return {
        name: facts["kind"]
        for name, facts in features(out).items()
        if not name.endswith(("width", "depth"))
    }


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet", ".arrow"])
def test_content_makes_image_columns(folder: Folder, suffix: str) -> None:
    """Columns whose cells are image files are images in every format of tables."""
    table = write_table(folder / f"pairs{suffix}")
    convert(table, folder / "out")
    assert kinds(folder / "out") == KINDS
    photos = {(folder / row["colour"]).read_bytes() for row in PAIRS}
    assert {row["colour"] for row in rows(folder / "out")} == photos


def test_rows_of_python(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the current folder, or to `images_root` within it."""
    monkeypatch.chdir(folder.parent)
    convert_rows(PAIRS, folder / "out", images_root=folder.name)
    assert kinds(folder / "out") == KINDS
    with pytest.raises(SpecError, match="images_root"):
        convert_rows([{"n": 1}], folder / "no", images_root=".")
    convert_rows([{"n": 1}], folder / "none")
    assert kinds(folder / "none") == {"n": "int64"}


def test_rows_of_a_pipeline(folder: Folder) -> None:
    """Below `images_root`, which is refused where no column is of paths."""
    settings = {"key": "n", "images_root": str(folder)}
    found = gather([PAIRS], **settings).schema
    assert {name: str(found[name].kind) for name in KINDS} == KINDS
    gone = [{**row, "seg": f"gone/{row['n']}.png"} for row in PAIRS]
    assert gather([gone], **settings).schema["seg"].kind is Kind.TEXT
    with pytest.raises(SpecError, match="images_root"):
        gather([[{"n": 1}]], **settings)


def test_what_is_said_stays(folder: Folder) -> None:
    """A declared text, a list of image columns, and none."""
    table = write_table(folder / "pairs.csv")
    spec = folder / "spec.yaml"
    spec.write_text("features: {seg: text}\n")
    convert(table, folder / "a", "--spec", spec)
    assert (kinds(folder / "a")["seg"], kinds(folder / "a")["image"]) == (
        "text",
        "image",
    )
    convert(table, folder / "b", "--image-columns", "seg")
    assert kinds(folder / "b")["colour"] == "text"


def test_some_cells_are_files(folder: Folder) -> None:
    """The column stays text, and a note names it and the option."""
    some = [{**row, "seg": "none" if row["n"] else row["seg"]} for row in PAIRS]
    convert(write_table(folder / "pairs.csv", some), folder / "out")
    assert kinds(folder / "out")["seg"] == "text"
    (note,) = notes_of(folder / "out")
    assert "'seg'" in note
    assert "25.0 %" in note
    assert "--image-columns seg" in note


def test_declared_masks(folder: Folder) -> None:
    """Gray ones need the word: a note says so, and with it their numbers stay."""
    gray = np.random.default_rng(0).integers(0, 4, (24, 32)).astype(np.uint8)
    for row in PAIRS:
        Image.fromarray(gray).save(folder / row["seg"])
    table = write_table(folder / "pairs.csv")
    options = ("--resize", "exact:12x20", "--image-format", "jpeg", "--channels", "3")
    convert(table, folder / "mixed", *options)
    (note,) = notes_of(folder / "mixed")
    assert "'seg'" in note
    assert "mask: true" in note
    spec = folder / "spec.yaml"
    spec.write_text("features: {seg: {kind: image, mask: true}}\n")
    convert(table, folder / "out", *options, "--spec", spec)
    assert not notes_of(folder / "out")
    for row in rows(folder / "out"):
        assert opened(row["colour"]).format == "JPEG"
        mask = opened(row["seg"])
        assert (mask.format, mask.mode) == ("PNG", "L")
        assert np.unique(np.asarray(mask)).tolist() == [0, 1, 2, 3]
    written = command("spec", table, "--spec", spec).out
    assert "    mask: true\n" in written
    spec.write_text("features: {n: {mask: true}}\n")
    assert "mask" in refused(2, table, folder / "no", "--spec", spec)


def test_the_folder_of_images(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the current folder; messages name the path that was tried."""
    (folder / "t").mkdir()
    table = write_table(folder / "t/pairs.csv")
    monkeypatch.chdir(folder)
    convert(table, "out", "--images-root", ".")
    assert kinds(folder / "out") == KINDS
    shutil.move(folder / "m", folder / "t/m")
    said = refused(3, table, "no", "--images-root", ".", "--image-columns", "seg")
    assert str(folder / "m/0.png") in said
    shutil.move(folder / "p", folder / "t/p")
    said = refused(2, table, "no", "--images-root", "p")
    assert str(folder / "p") in said
    assert str(folder / "t/p") in said


def test_a_folder_that_nothing_needs(folder: Folder) -> None:
    """Tables without paths of images, images in rows, and trees of images refuse it."""
    plain = write_table(folder / "plain.csv", [{"n": 1}])
    inline = folder / "inline.parquet"
    pq.write_table(pa.table({"image": [image_bytes(1)]}), inline)
    for source in (plain, inline, folder):
        said = refused(2, source, folder.parent / "no", "--images-root", folder)
        assert "images_root" in said


def test_files_that_are_no_images(folder: Folder) -> None:
    """A struct of bytes and path is stored as bytes, with its path as text."""
    sounds = [b"RIFF%d" % n + b"\0" * 40 for n in range(3)]
    found = [struct(d, f"{n}.wav") for n, d in enumerate(sounds)]
    expected = [
        {"audio": d, "audio/path": f"{n}.wav".encode()} for n, d in enumerate(sounds)
    ]
    table = write_table(folder / "a.parquet", [{"audio": each} for each in found])
    convert(table, folder / "out")
    assert kinds(folder / "out") == {"audio": "bytes", "audio/path": "text"}
    convert_rows([{"audio": each} for each in found], folder / "python")
    own = [{"audio": e, "n": n} for n, e in enumerate(found)]
    write_rows(own, folder / "own", key="n", drop=["n"])
    for name in ("out", "python", "own"):
        by_path = sorted(rows(folder / name), key=lambda row: row["audio/path"])
        assert by_path == expected
    one_bad = [struct(image_bytes(n), f"{n}.png") for n in range(3)]
    table = write_table(table, [{"x": e} for e in [*one_bad, found[0]]])
    convert(table, folder / "images", "--max-reject-rate", "0.5")
    assert kinds(folder / "images")["image"] == "image"


@pytest.mark.parametrize(
    "header",
    ["filename,class,xmin,ymin,xmax,ymax", "ImageID,LabelName,XMin,YMin,XMax,YMax"],
)
@pytest.mark.parametrize("gap", ["_", ""])
def test_a_row_a_box(folder: Folder, header: str, gap: str) -> None:
    """As CSV, a note says that rows stay records of their own; others have none."""
    table = folder / "boxes.csv"
    for name in ("in", "ax"):
        header = header.replace(f"m{name}", f"{gap}m{name}")
    table.write_text(f"{header}\np/0.png,dog,1,1,2,2\np/0.png,cat,2,2,4,4\n")
    said = command("plan", table, folder / "out", "--format", "csv").out
    assert "columns of boxes" in said
    assert "columns of boxes" not in command("plan", table, folder / "out").out
    table.write_text("filename,class,left,right\np/0.png,dog,1,1\n")
    assert "columns of boxes" not in command("plan", table, folder / "out").out
