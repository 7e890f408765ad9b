"""Parts of a dataset: one a day, whole or absent, like each other."""

import json
import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.outputs import contents, dataset, features, manifest, names
from tests.support.runs import command, convert, refused
from tests.support.sources import write_csv, write_files
from transforms.core.image.png import encode_png
from transforms.publishing.parts import read_model

Folder = pathlib.Path
pytestmark = pytest.mark.usefixtures("without_runner")
ROWS = 60
PNG = encode_png(np.arange(48, dtype=np.uint8).reshape(1, 4, 4, 3))[0].as_py()
OPTIONS = (
    *("--label-column", "kind", "--splits", "train=0.5,test=0.5"),
    *("--key-column", "id"),
)


def day(
    folder: Folder,
    name: str,
    *,
    first: int = 0,
    kinds: Sequence[str] = ("cat", "dog"),
    column: str = "",
    age: str = "7",
) -> Folder:
    """Writes the rows of one day, of which row 10 has another age."""
    head = f"id,age,kind{f',{column}' if column else ''}"
    lines = [
        f"{first + n},{age if n == 9 else n % 7},{kinds[n % len(kinds)]}"
        f"{',x' if column else ''}"
        for n in range(ROWS)
    ]
    return write_csv(folder / f"{name}.csv", head, lines)


def classes_of(folder: Folder) -> list[str]:
    return list(features(folder)["kind"]["classes"])


@pytest.fixture
def events(tmp_path: Folder) -> Folder:
    """A folder of two parts."""
    out = tmp_path / "sets" / "events"
    for number in (1, 2):
        source = day(tmp_path, f"day-{number}", first=number * 1000)
        convert(source, out, "--part", f"2026-11-0{number}", *OPTIONS)
    return out


def test_a_part_is_a_dataset_beside_the_others(
    events: Folder, tmp_path: Folder
) -> None:
    """Nothing of another part is written, and what they have in common is taken."""
    assert names(events) == ["part=2026-11-01", "part=2026-11-02", "parts.json"]
    before = contents(events)
    assert dataset(events / "part=2026-11-01")["name"] == "events"
    convert(day(tmp_path, "day-3", first=3000), events, "--part", "2026-11-03")
    after = contents(events)
    assert {name: after[name] for name in before} == before
    # Taken from the other parts without a word.
    third = dataset(events / "part=2026-11-03")
    assert [split["name"] for split in third["splits"]] == ["train", "test"]
    assert classes_of(events / "part=2026-11-03") == ["cat", "dog"]


def test_settings_that_parts_share_may_be_said_or_left_out(
    events: Folder, tmp_path: Folder
) -> None:
    """Both are the same job: a part that is there is up to date, first and later."""
    before = contents(events)
    own = ("--compression", "none", "--seed", 0)
    for number in (1, 2):
        source = tmp_path / f"day-{number}.csv"
        for options in ((), OPTIONS, OPTIONS[2:4], (*OPTIONS, *own)):
            said = convert(source, events, "--part", f"2026-11-0{number}", *options)
            assert said.out.startswith("up to date")
    assert contents(events) == before
    convert(day(tmp_path, "day-3", first=3000), events, "--part", "2026-11-03")
    again = (tmp_path / "day-3.csv", events, "--part", "2026-11-03")
    assert convert(*again, *OPTIONS).out.startswith("up to date")
    # What parts do not share is another job.
    refused(2, *again, "--drop", "age")


@pytest.mark.parametrize("change", ["older", "swapped"])
def test_ids_are_not_given_twice(events: Folder, tmp_path: Folder, change: str) -> None:
    """What parts share must not be older than the newest part, or contradict it."""
    shared = events / "parts.json"
    before = shared.read_text()
    allow = ("--allow", "new-classes")
    third = day(tmp_path, "day-3", first=3000, kinds=("cow", "emu"))
    convert(third, events, "--part", "2026-11-03", *allow)
    after = shared.read_text()
    wrong = (
        after.replace('"cow"', '"x"').replace('"emu"', '"cow"').replace('"x"', '"emu"')
    )
    shared.write_text(before if change == "older" else wrong)
    left = contents(events)
    fourth = day(tmp_path, "day-4", first=4000, kinds=("ant",))
    message = refused(1, fourth, events, "--part", "2026-11-04", *allow)
    assert message.startswith(f"error: {shared}: ")
    assert "part=2026-11-03" in message
    assert contents(events) == left
    shared.write_text(after)
    convert(fourth, events, "--part", "2026-11-04", *allow)
    assert classes_of(events / "part=2026-11-04") == ["cat", "dog", "cow", "emu", "ant"]


def test_a_vocabulary_is_for_the_label_of_all_parts(
    events: Folder, tmp_path: Folder
) -> None:
    """Its column need not be named again."""
    source = day(tmp_path, "day-3", first=3000, kinds=("cat",))
    names = tmp_path / "names.txt"
    names.write_text("cat\ndog\n")
    convert(source, events, "--part", "2026-11-03", "--vocabulary", names)
    assert classes_of(events / "part=2026-11-03") == ["cat", "dog"]
    names.write_text("dog\ncat\n")
    message = refused(4, source, events, "--part", "2026-11-04", "--vocabulary", names)
    assert "does not begin with its 2 classes" in message
    # What all unknown names are, is settled as well.
    unknown = ("--unknown-label", "oov")
    message = refused(2, source, events, "--part", "2026-11-04", *unknown)
    assert "unknown_label must be that of" in message
    new = tmp_path / "new"
    convert(source, new, "--part", "1", *OPTIONS, "--vocabulary", names, *unknown)
    convert(source, new, "--part", "2", *unknown)
    assert convert(source, new, "--part", "2").out.startswith("up to date")
    assert classes_of(new / "part=2") == classes_of(new / "part=1")
    assert len(classes_of(new / "part=2")) == 3


def test_new_classes_follow_and_ids_stay(events: Folder, tmp_path: Folder) -> None:
    """What is allowed is appended, and reported; each kind by itself is too little."""
    source = day(tmp_path, "day-4", first=4000, kinds=("ant", "dog"), column="extra")
    allow = ("--allow", "new-classes", "--allow", "new-columns")
    refused(4, source, events, "--part", "2026-11-04", *allow[:2])
    refused(4, source, events, "--part", "2026-11-04", *allow[2:])
    report = tmp_path / "report.json"
    convert(source, events, "--part", "2026-11-04", *allow, "--report-json", report)
    said = json.loads(report.read_text())
    assert (said["status"], said["part"]) == ("committed", "2026-11-04")
    assert said["drift"] == {"new_columns": ["extra"], "new_classes": {"kind": ["ant"]}}
    counts = [split["kind"] for split in said["classes"].values()]
    assert sum(each["ant"] for each in counts) == ROWS / 2
    assert classes_of(events / "part=2026-11-04") == ["cat", "dog", "ant"]
    assert any(
        "extra" in note for note in manifest(events / "part=2026-11-04")["run"]["notes"]
    )
    shared = read_model(str(events))
    assert shared is not None
    assert shared.classes == {"kind": ("cat", "dog", "ant")}
    assert shared.optional == {"extra"}


def test_a_class_beyond_the_sample_is_drift_too(
    events: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no reject: nothing is committed."""
    monkeypatch.setattr("beam_pipeline.planning.like._new_in", lambda *_: iter(()))
    source = day(tmp_path, "day-3", kinds=("cat",) * 59 + ("cow",))
    message = refused(4, source, events, "--part", "2026-11-03", "--max-reject-rate", 1)
    assert "cow" in message
    assert not (events / "part=2026-11-03").exists()


def test_a_feature_that_a_spec_names_is_the_label_still(
    events: Folder, tmp_path: Folder
) -> None:
    """A night's spec may say more of the label without saying that it is one."""
    spec = tmp_path / "spec.yaml"
    spec.write_text("features: {kind: {kind: label}}")
    source = day(tmp_path, "day-3", first=3000)
    convert(source, events, "--part", "2026-11-03", "--spec", spec)
    assert features(events / "part=2026-11-03")["kind"]["is_label"]


def test_new_classes_of_images_name_a_file(tmp_path: Folder) -> None:
    """The first one of each class, as a table's name a row."""
    photos = tmp_path / "photos"
    write_files(photos, {"cat/1.png": PNG, "dog/1.png": PNG})
    convert(photos, tmp_path / "sets", "--part", "1")
    write_files(photos, {"emu/1.png": PNG, "emu/2.png": PNG})
    message = refused(4, photos, tmp_path / "sets", "--part", "2")
    assert "'label' has new classes: 'emu' in 'emu/1.png'." in message


def test_a_changed_file_is_not_counted(events: Folder, tmp_path: Folder) -> None:
    """Numbers of files are said where they differ."""
    source = day(tmp_path, "day-1", first=1000, age="9")
    message = refused(2, source, events, "--part", "2026-11-01")
    assert "(its inputs have changed since)" in message


def test_parts_agree_in_what_decides_splits(events: Folder, tmp_path: Folder) -> None:
    """Another seed or share would move rows between splits; another label was kept."""
    source = day(tmp_path, "day-3")
    label = ("--label-column", "age")
    for wrong in (("--seed", 1), ("--splits", "train=0.9,test=0.1"), label):
        refused(2, source, events, "--part", "2026-11-03", *wrong)
    # Without a key, rows of equal content share a split, and keys do not.
    refused(2, source, tmp_path / "new", "--part", "1", *OPTIONS[:4])


def test_a_dataset_has_no_parts(tmp_path: Folder) -> None:
    """And a folder of parts is not replaced by a dataset."""
    source = day(tmp_path, "day")
    convert(source, tmp_path / "set")
    refused(2, source, tmp_path / "set", "--part", "1")
    convert(source, tmp_path / "parts", "--part", "1")
    refused(2, source, tmp_path / "parts", "--overwrite")
    # It would be read as one of them, and is not made like them.
    refused(2, source, tmp_path / "parts" / "part=2")
    (tmp_path / "parts" / "parts.json").unlink()
    refused(2, source, tmp_path / "parts", "--part", "2")


def test_like_takes_what_a_dataset_has(tmp_path: Folder) -> None:
    """Features, classes in their order, key, splits; what is said comes first."""
    first = day(tmp_path, "first", kinds=("dog", "ant"))
    convert(first, tmp_path / "one", *OPTIONS, "--seed", 3)
    second = day(tmp_path, "second", first=1000, kinds=("ant",))
    label = ("--label-column", "age")
    convert(
        second, tmp_path / "two", "--like", tmp_path / "one", "--compression", "gzip"
    )
    one, two = dataset(tmp_path / "one"), dataset(tmp_path / "two")
    assert classes_of(tmp_path / "two") == ["ant", "dog"]
    assert [each["name"] for each in two["splits"]] == ["train", "test"]
    assert two["settings"]["seed"] == 3
    assert two["settings"]["key_column"] == "id"
    assert (one["compression"], two["compression"]) == ("none", "gzip")
    refused(
        4,
        day(tmp_path, "third", kinds=("cow",)),
        tmp_path / "three",
        "--like",
        tmp_path / "one",
    )
    refused(2, second, tmp_path / "three", "--like", tmp_path / "none")
    refused(2, second, tmp_path / "three", "--allow", "new-classes")
    refused(2, second, tmp_path / "three", "--like", tmp_path / "one", *label)
    assert command("verify", tmp_path / "two").code == 0
