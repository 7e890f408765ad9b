"""Datasets that are converted again: other shards, splits, images, and merged."""

import io
import pathlib
import shutil

import pytest
from PIL import Image

from beam_tfrecord import open_dataset
from tests.support.datasets import example, write_records
from tests.support.format_sources import (
    kinds_of,
    photos,
    picture,
    sorted_messages,
    values,
)
from tests.support.outputs import account, split_sizes
from tests.support.runs import command, convert
from tests.support.sources import write_files
from transforms.errors import RecordKindError

Folder = pathlib.Path
TOLERANT = ("--max-reject-rate", "1")


@pytest.fixture(scope="module")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of this program: images in two splits, classes, a reject."""
    root = tmp_path_factory.mktemp("pets")
    bad = {"train/cat/bad.png": b"no image"}
    write_files(root / "in", photos() | bad)
    convert(root / "in", root / "pets", *TOLERANT)
    assert (root / "pets/rejects.jsonl").exists()
    return root / "pets"


def test_reshard_keeps_records_and_metadata(pets: Folder, tmp_path: Folder) -> None:
    """More shards, the same messages, splits, classes and kinds; sidecars are none."""
    convert(pets, tmp_path / "out", "--shards", "3")
    for split in ("train", "test"):
        wanted = sorted_messages(pets, split)
        assert sorted_messages(tmp_path / "out", split) == wanted
    assert kinds_of(tmp_path / "out") == kinds_of(pets)
    found = account(tmp_path / "out")
    assert (found["read"], found["written"]) == (12, 12)
    assert (found["rejected"], found["skipped"]) == ({}, {})
    assert (tmp_path / "out/pets-train.tfrecord-00001-of-00003").exists()


def test_split_again_and_without_a_column(pets: Folder, tmp_path: Folder) -> None:
    """Shares take the place of the old splits; --drop leaves one feature out."""
    options = ("--splits", "a=0.5,b=0.5", "--drop", "filename,image")
    convert(pets, tmp_path / "out", *options)
    assert set(split_sizes(tmp_path / "out")) == {"a", "b"}
    wanted = values(pets)
    for row in wanted:
        del row["filename"], row["image"]
    order = lambda row: sorted(row.items())  # noqa: E731
    assert sorted(values(tmp_path / "out"), key=order) == sorted(wanted, key=order)
    # What was read off the images stays, as numbers.
    assert "derived" not in kinds_of(tmp_path / "out")["height"]


def test_images_are_resized_with_what_is_read_off_them(
    pets: Folder, tmp_path: Folder
) -> None:
    """Image features stay images: made smaller, their height and width follow."""
    convert(pets, tmp_path / "out", "--resize", "exact:3x4")
    for row in values(tmp_path / "out"):
        with Image.open(io.BytesIO(row["image"][0])) as image:
            assert image.size == (4, 3)
        assert (row["height"], row["width"]) == ([3], [4])


def test_datasets_merge_by_the_names_of_their_classes(
    pets: Folder, tmp_path: Folder
) -> None:
    """Two folders are one dataset; a class id means what its own dataset says."""
    root = tmp_path / "all"
    write_files(
        tmp_path / "in", {f"train/dog/{i}.png": picture(90 + i) for i in (1, 2)}
    )
    shutil.copytree(pets, root / "pets")
    convert(tmp_path / "in", root / "dogs")
    convert(root, tmp_path / "out")
    assert split_sizes(tmp_path / "out") == {"train": 8, "test": 6}
    names = (tmp_path / "out/label.labels.txt").read_text().split()
    # Those of the first folder keep their ids.
    assert names == ["dog", "cat", "고양이"]
    found = values(tmp_path / "out")
    for row in found:
        folder = row["filename"][0].decode().split("/")[1]
        assert names[row["label"][0]] == folder
    wanted = [row["image"] for row in values(pets) + values(root / "dogs")]
    assert sorted(row["image"] for row in found) == sorted(wanted)


SEQUENCE = bytes.fromhex(
    "0a0d0a0b0a02696412051a030a010712160a140a0178120f0a051a030a01010a061a040a020203"
)
RANKING = bytes.fromhex(
    "0a0e0a0c0a0a0a016412051a030a0102120e0a0c0a0a0a017112051a030a0101"
)


@pytest.mark.parametrize("record", [SEQUENCE, RANKING])
def test_other_messages(record: bytes, tmp_path: Folder) -> None:
    """What reads Examples names them; what reads bytes works; few are rejects."""
    path = tmp_path / "a.tfrecord"
    write_records(path, [record] * 30)
    name = "SequenceExample with 1 " if record == SEQUENCE else "WithContext with 1 "
    out = tmp_path / "out"
    for words in (["schema"], ["head"], ["inspect"], ["convert", out], ["export", out]):
        run = command(words[0], path, *words[1:])
        assert (run.code, out.exists()) == (4, False)
        assert "record 0 of " in run.err
        assert name in run.err
    run = command("merge", path, path, out)
    assert (run.code, name in run.err) == (4, True)
    with pytest.raises(RecordKindError, match=r"a\.tfrecord"):
        open_dataset(path)
    for words in (["verify"], ["index"], ["repair", tmp_path / "repaired.tfrecord"]):
        assert command(words[0], path, *words[1:]).code == 0
    mixed = tmp_path / "mixed.tfrecord"
    write_records(mixed, [example({"n": n}) for n in range(200)] + [record])
    convert(mixed, out)
    assert account(out)["rejected"] == {"malformed": 1}
    assert name in (out / "rejects.jsonl").read_text()
