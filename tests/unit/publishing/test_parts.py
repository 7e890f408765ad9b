"""What parts share: lists that grow at their end, and who is first."""

import concurrent.futures
import os
import pathlib

import pytest

from transforms.core.manifest import PARTS_NAME
from transforms.core.schema import Feature, Kind, Unknown
from transforms.errors import DamageError, RaceError
from transforms.publishing.parts import (
    Model,
    announce,
    part_names,
    read_model,
)
from transforms.publishing.published import holds_others

Folder = pathlib.Path
ID, KIND = Feature("id", Kind.INT64), Feature("kind", Kind.LABEL)


def model(*classes: str, features: tuple[Feature, ...] = (ID, KIND)) -> Model:
    return Model(features, {"kind": classes}, {"seed": 7})


def test_json_keeps_all() -> None:
    """The file states what was settled."""
    given = Model(
        (ID, Feature("kind", Kind.LABEL, column="Kind", unknown=Unknown.OOV)),
        {"kind": ("고양이", "dog")},
        {"splits": {"a": "0.5", "b": "0.5"}},
        frozenset({"id"}),
    )
    assert Model.from_bytes(given.to_bytes(), "parts.json") == given


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": "other"}'])
def test_another_file_is_damage(data: bytes) -> None:
    """It is not taken for a folder without parts."""
    with pytest.raises(DamageError):
        Model.from_bytes(data, "parts.json")


@pytest.mark.parametrize(
    ("before", "part", "after"),
    [
        (("cat",), ("cat", "dog"), ("cat", "dog")),
        (("cat", "dog"), ("cat",), ("cat", "dog")),
        (("cat", "dog"), (), ("cat", "dog")),
    ],
)
def test_the_longest_list_stays(
    before: tuple[str, ...], part: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """A part of an earlier day has the first classes, and loses none of the others."""
    joined = model(*before).joined(model(*part), "sets")
    assert joined.classes["kind"] == after


def test_a_new_feature_is_one_that_others_lack() -> None:
    """It is optional from then on: a part of an earlier day fits without it."""
    extra = Feature("extra", Kind.TEXT)
    joined = model("a").joined(model("a", features=(ID, KIND, extra)), "sets")
    assert joined.features == (ID, KIND, extra)
    assert joined.optional == {"extra"}
    assert joined.joined(model("a"), "sets") == joined


@pytest.mark.parametrize(
    "part",
    [
        model("a", "c"),
        model("b"),
        model("a", features=(ID,)),
        model("a", features=(Feature("id", Kind.TEXT), KIND)),
    ],
)
def test_a_part_that_contradicts_another_loses(part: Model) -> None:
    """Two runs appended other classes, or began the dataset in two ways."""
    with pytest.raises(RaceError):
        model("a", "b").joined(part, "sets")


def test_announced_before_it_appears(tmp_path: Folder) -> None:
    """The file holds the longest list, and no lock and no draft stays."""
    assert read_model(str(tmp_path)) is None
    for classes in (("a",), ("a", "b"), ("a",)):
        announce(str(tmp_path), model(*classes), attempts=str(tmp_path))
    assert read_model(str(tmp_path)) == model("a", "b")
    assert os.listdir(tmp_path) == [PARTS_NAME]
    before = (tmp_path / PARTS_NAME).stat()
    announce(str(tmp_path), model("a", "b"), attempts=str(tmp_path))
    assert (tmp_path / PARTS_NAME).stat().st_mtime_ns == before.st_mtime_ns


def _announced(folder: str, number: int) -> bool:
    try:
        announce(folder, model("a", f"new-{number}"), attempts=folder)
    except RaceError:
        return False
    return True


def test_one_of_several_that_append_wins(tmp_path: Folder) -> None:
    """The others end, and the list has one new class."""
    announce(str(tmp_path), model("a"), attempts=str(tmp_path))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        won = [*pool.map(_announced, [str(tmp_path)] * 8, range(8))]
    assert sum(won) == 1
    found = read_model(str(tmp_path))
    assert found is not None
    assert found.classes["kind"] == ("a", f"new-{won.index(True)}")


def test_parts_are_folders_with_a_manifest(tmp_path: Folder) -> None:
    """What runs have left, and what is no part, is none; names are in their order."""
    for name in ("part=b", "part=a", "other", ".part=c.beam-tfrecord", "part=d"):
        (tmp_path / name).mkdir()
        if name != "part=d":
            (tmp_path / name / "manifest.json").write_text("{}")
    assert part_names(str(tmp_path)) == ["a", "b"]


def test_an_output_of_parts_names_the_command_that_writes_one() -> None:
    """`merge` and `subset` write no parts, and have no option for them."""
    error = holds_others("sets", None, ["part=a", PARTS_NAME])
    assert "'sets'" in str(error)
    assert "convert --part" in str(error)
