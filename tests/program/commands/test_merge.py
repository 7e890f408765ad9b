"""`merge`: several datasets as one, their class ids joined by name."""

import os
import pathlib
import shutil
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import open_dataset
from tests.support.datasets import ANIMALS, Row, animal, animals, write_dataset
from tests.support.outputs import as_stated, manifest_of
from tests.support.runs import command, done, failed
from transforms.core.schema import Feature, Kind

Folder = pathlib.Path

NAMES = st.sampled_from(["ant", "bee", "cat", "dog"])


def rows(start: int, classes: list[str]) -> list[Row]:
    return [
        {**animal(start + number), "animal": name}
        for number, name in enumerate(classes)
    ]


@given(
    first=st.lists(NAMES, min_size=1, max_size=6),
    second=st.lists(NAMES, min_size=1, max_size=6),
    third=st.lists(NAMES, min_size=1, max_size=6),
    compression=st.sampled_from(["none", "gzip"]),
)
def test_merged_datasets_are_what_writing_their_rows_gives(
    first: list[str], second: list[str], third: list[str], compression: str
) -> None:
    """Records, shards, ids, counts and ranges are those of a dataset written anew."""
    parts: list[dict[str, list[list[Row]]]] = [
        {"train": [rows(0, first), []], "test": [rows(10, first[:2])]},
        {"test": [rows(20, second)], "extra": [rows(30, second)]},
        {"train": [rows(40, third)]},
    ]
    with tempfile.TemporaryDirectory() as place:
        root = Folder(place)
        for number, shards in enumerate(parts):
            write_dataset(root / f"{number}", shards, compression=compression)
        done("merge", *(root / f"{n}" for n in range(3)), root / "out")
        found = manifest_of(root / "out")
        names = found.features[-1].classes
        order = [*sorted({*first}), *sorted({*second}), *sorted({*third})]
        assert list(names) == [*dict.fromkeys(order)]
        together: dict[str, list[list[Row]]] = {"train": [], "test": [], "extra": []}
        for shards in parts:
            for split, more in shards.items():
                together[split] += more
        wanted = write_dataset(
            root / "new", together, compression=compression, classes={"animal": names}
        )
        assert as_stated(found) == as_stated(wanted)
        assert command("verify", root / "out", "--quiet").code == 0


def test_both_labels_of_a_record_get_new_ids(tmp_path: Folder) -> None:
    """Of two labels whose classes differ, the record has both names in the end."""
    features = [
        Feature("animal", Kind.LABEL, is_label=True),
        Feature("hue", Kind.LABEL),
    ]
    first: list[Row] = [{"animal": "cat", "hue": "red"}]
    second: list[Row] = [{"animal": "ant", "hue": "blue"}, *first]
    write_dataset(tmp_path / "a", {"train": [first]}, features)
    write_dataset(tmp_path / "b", {"train": [second]}, features)
    done("merge", tmp_path / "a", tmp_path / "b", tmp_path / "out")
    dataset = open_dataset(tmp_path / "out", labels="names")
    assert [*dataset["train"]] == [*first, *second]


def test_shards_whose_ids_stay_are_links(tmp_path: Folder) -> None:
    """Only those are written in which a class has another id now."""
    one, other, out = (tmp_path / name for name in ("one", "other", "out"))
    write_dataset(one, {"train": animals(6, 6)})
    apes = [rows(50, ["ape", "dog"])]
    write_dataset(other, {"train": apes, "test": animals(3, start=70)}, name="others")
    run = done("merge", one, other, out)
    assert "4 shards" not in run.out
    names = sorted(path.name for path in out.glob("*tfrecord*"))
    assert names == [
        "animals-test.tfrecord-00000-of-00001",
        *(f"animals-train.tfrecord-0000{n}-of-00003" for n in range(3)),
    ]
    links = [name for name in names if (out / name).stat().st_nlink == 2]
    assert links == names[1:3]
    dataset = open_dataset(out, labels="names")
    found = [row["animal"] for row in dataset["train"]]
    assert found[-2:] == ["ape", "dog"]
    manifest = manifest_of(out)
    assert [each["records"] for each in manifest.settings["merged"]] == [12, 5]
    assert manifest.account.balance == 0


def test_what_cannot_be_merged(tmp_path: Folder) -> None:
    """Each mistake says what to do, and leaves nothing behind."""
    write_dataset(tmp_path / "one", {"train": animals(3)})
    write_dataset(tmp_path / "two", {"train": animals(4)})
    write_dataset(tmp_path / "gzip", {"train": animals(5)}, compression="gzip")
    fewer = [each for each in ANIMALS if each.name != "note"]
    write_dataset(tmp_path / "fewer", {"train": animals(6)}, fewer)
    there = sorted(os.listdir(tmp_path))
    for names, code, words in (
        ((), 2, "Two or more"),
        (("one", "out"), 2, "Two or more"),
        (("one", "one", "out"), 2, "Name each once"),
        (("one", "gzip", "out"), 4, "--compression"),
        (("one", "fewer", "out"), 4, "'note'"),
        (("one", "none", "out"), 2, "none"),
        (("one", "two", "gzip"), 2, "--overwrite"),
        (("one", "two", "one/below"), 2, "outside of the dataset"),
    ):
        run = command("merge", *(tmp_path / name for name in names))
        assert run.code == code, (names, run)
        assert words in run.err, (names, run.err)
        assert "Traceback" not in run.err
    assert sorted(os.listdir(tmp_path)) == there


def test_a_dataset_grows_in_place(tmp_path: Folder) -> None:
    """The first dataset may be the output, with --overwrite."""
    write_dataset(tmp_path / "all", {"train": animals(3)})
    write_dataset(tmp_path / "new", {"train": animals(2, start=10)})
    all_, new = tmp_path / "all", tmp_path / "new"
    run = done("merge", all_, new, all_, "--overwrite", "--quiet")
    assert run.out == ""
    assert [row["id"] for row in open_dataset(all_)["train"]] == [0, 1, 2, 10, 11]


def test_records_are_not_merged_twice(tmp_path: Folder) -> None:
    """A dataset that is in another one already, at any depth, is refused."""
    for number, name in enumerate(("one", "two", "three", "four")):
        write_dataset(tmp_path / name, {"train": animals(2, start=10 * number)})
    shutil.copytree(tmp_path / "two", tmp_path / "copy")

    def merge(*names: str) -> int:
        folders = [tmp_path / name for name in names]
        return command("merge", *folders, "--overwrite").code

    assert merge("one", "two", "all") == 0
    assert merge("two", "three", "others") == 0
    assert merge("all", "two", "all") == 2
    assert merge("copy", "all", "out") == 2
    assert merge("all", "others", "out") == 2
    assert merge("all", "three", "all") == 0
    assert merge("all", "four", "all") == 0
    for name in ("one", "two", "three", "four"):
        assert merge("all", name, "all") == 2
    assert [row["id"] // 10 for row in open_dataset(tmp_path / "all")["train"]] == [
        *(0, 0, 1, 1, 2, 2, 3, 3)
    ]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_damaged_dataset_stops_it(tmp_path: Folder, compression: str) -> None:
    """Nothing is left at the output."""
    for name, start in (("one", 0), ("two", 10)):
        shards = [rows(start, ["cat" if start else "dog", "ant"])]
        write_dataset(tmp_path / name, {"train": shards}, compression=compression)
    path = next((tmp_path / "two").glob("*tfrecord*"))
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    run = failed(1, "merge", *(tmp_path / name for name in ("one", "two", "out")))
    assert path.name in run.err
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


PHOTOS = [Feature("image", Kind.IMAGE), Feature("filename", Kind.TEXT)]


def photo(name: str, data: bytes) -> Row:
    return {"image": data, "filename": name}


def write_photos(folder: Folder, splits: dict[str, list[Row]]) -> None:
    shards = {split: [found] for split, found in splits.items()}
    write_dataset(folder, shards, PHOTOS)


def test_equal_images_in_different_splits_are_named(tmp_path: Folder) -> None:
    """Those of two datasets too, which no one else would notice."""
    first = [photo("train/1.jpg", b"one"), photo("train/2.jpg", b"two")]
    second = [photo("test/3.jpg", b"three"), photo("test/4.jpg", b"two")]
    write_photos(tmp_path / "a", {"train": first})
    write_photos(tmp_path / "b", {"test": second, "train": [photo("5.jpg", b"one")]})
    run = done("merge", tmp_path / "a", tmp_path / "b", tmp_path / "out")
    said = (
        "1 image stands in more than one split: train and test: 1; for example "
        "train: train/2.jpg = test: test/4.jpg"
    )
    assert f"note: {said}\n" in run.out.replace("\n  ", " ")
    assert manifest_of(tmp_path / "out").run["notes"] == [said]


def test_records_without_an_image_are_not_equal(tmp_path: Folder) -> None:
    """Splits that both have such records share no image by that."""
    for name, split in (("a", "train"), ("b", "test")):
        rows: list[Row] = [{"filename": "none"}, photo(name, name.encode())]
        write_photos(tmp_path / name, {split: rows})
    run = command("merge", tmp_path / "a", tmp_path / "b", tmp_path / "out")
    assert (run.code, run.err) == (0, "")
    assert manifest_of(tmp_path / "out").run["notes"] == []
