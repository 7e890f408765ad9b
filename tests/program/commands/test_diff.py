"""`diff`: which records differ between two datasets."""

import json
import pathlib
import shutil
from typing import Any

import pytest

from beam_pipeline.commands import diff as diff_command
from tests.support.datasets import Row, animals, write_dataset
from tests.support.runs import command, done, failed

Folder = pathlib.Path

WORDS = ("added", "gone", "changed", "moved")


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Thirty animals in two splits."""
    folder = tmp_path_factory.mktemp("diff") / "first"
    write_dataset(folder, {"train": animals(10, 10), "test": animals(10, start=20)})
    return folder


def diff(*arguments: object) -> tuple[dict[str, Any], list[int]]:
    """Runs `diff --json`; returns what it prints, and its counts."""
    run = command("diff", *arguments, "--json")
    assert run.err == ""
    found = json.loads(run.out)
    counts = [found[word] for word in WORDS]
    assert run.code == (0 if found["is_equal"] else 1)
    return found, counts


def second(folder: Folder) -> Folder:
    """Writes what the first dataset might be later: one of each difference."""
    train: list[Row] = [row for shard in animals(10, 10) for row in shard]
    test: list[Row] = [*animals(10, start=20)[0]]
    del train[3]  # gone
    train[5] = {**train[5], "note": "altered"}
    train[7] = {**train[7], "animal": "dog" if train[7]["animal"] != "dog" else "goat"}
    test.append(train.pop(9))  # moved
    train += animals(2, start=100)[0]  # added
    write_dataset(folder, {"train": [train[::-1]], "test": [test]})
    return folder


def test_each_kind_of_difference(first: Folder, tmp_path: Folder) -> None:
    """By a key, with an example of each, whatever the order and the shards."""
    found, counts = diff(first, second(tmp_path / "second"), "--key", "id")
    assert counts == [2, 1, 2, 1]
    assert found["equal"] == 26
    assert found["records"] == [30, 31]
    assert found["known_by"] == ["id"]
    examples = found["examples"]
    assert examples["gone"][0]["key"] == "3"
    assert [each["key"] for each in examples["added"]] == ["101", "100"]
    assert examples["moved"] == [
        {
            "key": "10",
            "first": "train, shard 1, record 0",
            "second": "test, shard 0, record 10",
        }
    ]


def test_without_a_key_content_decides(first: Folder, tmp_path: Folder) -> None:
    """A changed record is then one that is gone and one that is added."""
    found, counts = diff(first, second(tmp_path / "second"))
    assert counts == [4, 3, 0, 1]
    assert found["known_by"] == []


def test_equal_datasets(first: Folder, tmp_path: Folder) -> None:
    """In other shards and another order they are equal; by digest nothing is read."""
    shards = [
        [row for shard in animals(10, 10) for row in shard][::-1],
        [],
    ]
    other = tmp_path / "other"
    write_dataset(
        other,
        {"test": animals(10, start=20), "train": shards},
        compression="gzip",
    )
    for options in ((), ("--key", "id")):
        found, counts = diff(first, other, *options)
        assert counts == [0] * 4
        assert (found["equal"], found["reads"]) == (30, "records")
    found, _ = diff(first, first)
    assert found["reads"] == "digests"
    assert [*found["examples"].values()] == [[]] * 4
    run = done("diff", first, other)
    assert run.out.splitlines()[2].split() == ["equal", "30"]


def test_features_that_differ(first: Folder, tmp_path: Folder) -> None:
    """They make datasets different, even without a record that does."""
    from tests.support.datasets import ANIMALS

    other = tmp_path / "other"
    write_dataset(
        other,
        {"train": animals(10, 10), "test": animals(10, start=20)},
        [each for each in ANIMALS if each.name != "raw"],
    )
    found, counts = diff(first, other)
    assert counts == [0] * 4
    assert [*found["features"]] == ["raw"]
    assert not found["is_equal"]


def test_classes_with_other_ids(first: Folder, tmp_path: Folder) -> None:
    """Records of them are changed, and the feature says why; a key is the name."""
    other = tmp_path / "other"
    names = ["goat", "dog", "고양이"]
    shards = {"train": animals(10, 10), "test": animals(10, start=20)}
    write_dataset(other, shards, classes={"animal": names})
    found, _ = diff(first, other, "--key", "id")
    assert [*found["features"]] == ["animal"]
    assert found["changed"] == 20
    found, _ = diff(first, other, "--key", "animal", "--limit", "30")
    assert found["changed"] == 20
    keys = {example["key"] for example in found["examples"]["changed"]}
    assert keys == {"dog", "goat"}


def test_catalogues_are_compared_without_the_records(
    first: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where both datasets have one, no shard is opened; the findings are the same."""
    other = second(tmp_path / "second")
    by_key, by_content = diff(first, other, "--key", "id"), diff(first, other)
    indexed = [tmp_path / "indexed" / folder.name for folder in (first, other)]
    for folder, copy in zip((first, other), indexed, strict=True):
        shutil.copytree(folder, copy)
        assert command("index", copy, "--catalogue").code == 0
    monkeypatch.setattr(diff_command, "rows_of_shard", None)
    for options, wanted in ((("--key", "id"), by_key), ((), by_content)):
        told, counts = diff(*indexed, *options)
        assert counts == wanted[1]
        assert told == {**wanted[0], "reads": "catalogues"}


def test_what_cannot_be_asked(first: Folder, tmp_path: Folder) -> None:
    """Mistakes end with 2 and say what to write."""
    other = second(tmp_path / "second")
    run = failed(2, "diff", first, other, "--key", "idd")
    assert "'idd'" in run.err
    assert command("diff", first, tmp_path / "nowhere").code == 2
