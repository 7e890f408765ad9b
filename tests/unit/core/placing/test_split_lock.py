"""Locks and tables of ids: found again, merged, refused where they do not fit."""

import json
import pathlib

import numpy as np
import pandas
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import batch_of, splits_of
from transforms.core.placing.hashes import key_hashes
from transforms.core.placing.splitting import (
    Assignments,
    SplitRule,
    SplitSource,
    SplitTables,
)
from transforms.errors import CommitError, SourceError, SpecError
from transforms.work.split_tables import (
    assignments_table,
    check_lock,
    install_lock,
    open_assignments,
    read_split_ids,
    write_table,
)

Folder = pathlib.Path
NAMES = ("train", "test")
UINT64 = st.integers(0, 2**64 - 1)


def assignments(given: dict[int, int], identity: str = "row") -> Assignments:
    return Assignments.of(
        np.array(list(given), np.uint64),
        np.array(list(given.values()), np.int64),
        names=NAMES,
        identity=identity,
    )


def keyed_lock(**splits: str) -> Assignments:
    return Assignments.of(
        key_hashes(pa.array(list(splits))),
        np.array([NAMES.index(name) for name in splits.values()]),
        names=NAMES,
        identity="key",
    )


@given(st.dictionaries(UINT64, st.integers(0, 1)), st.lists(UINT64), st.randoms())
def test_find_is_a_dictionary(
    given: dict[int, int], others: list[int], random: object
) -> None:
    """Units are found whatever the order of asking; unknown ones are -1."""
    asked = [*others, *given]
    found = assignments(given).find(np.array(asked, np.uint64))
    assert found.tolist() == [given.get(unit, -1) for unit in asked]


@given(
    st.dictionaries(st.integers(0, 40), st.integers(0, 1)),
    st.dictionaries(st.integers(0, 40), st.integers(0, 1)),
)
def test_what_was_known_wins(first: dict[int, int], then: dict[int, int]) -> None:
    """Merging keeps every old assignment, even of rows that no longer exist."""
    merged = assignments(first).with_new(assignments(then))
    wanted = {**then, **first}
    assert merged.units.tolist() == sorted(wanted)
    assert merged.codes.tolist() == [wanted[unit] for unit in sorted(wanted)]


def test_a_unit_in_two_splits_has_the_first() -> None:
    """Rows of one key in two splits: the lock names the first, in any order."""
    for codes in ([1, 0], [0, 1]):
        found = Assignments.of(
            np.array([5, 5], np.uint64), np.array(codes), names=NAMES, identity="key"
        )
        assert (found.units.tolist(), found.codes.tolist()) == ([5], [0])


def test_lock_round_trip(tmp_path: Folder) -> None:
    """A lock comes back from its file, and equal locks are equal bytes."""
    lock = assignments({2**64 - 1: 1, 0: 0, 77: 1})
    for name in ("a", "b"):
        write_table(
            assignments_table(lock), str(tmp_path / name), attempts=str(tmp_path)
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    found = open_assignments(str(tmp_path / "a"))
    assert found.units.tolist() == [0, 77, 2**64 - 1]
    assert found.codes.tolist() == [0, 1, 1]
    assert (found.names, found.identity) == (NAMES, "row")
    read = pa.ipc.open_file(str(tmp_path / "a")).read_pandas()
    assert read["split"].tolist() == ["train", "test", "test"]


def test_what_is_no_lock(tmp_path: Folder) -> None:
    """Other files, other tables and later versions are refused, naming the file."""
    path = tmp_path / "lock"
    path.write_text("train,test\n")
    with pytest.raises(SpecError, match="cannot be read"):
        open_assignments(str(path))
    good = assignments_table(assignments({1: 0, 2: 1}))
    later = json.dumps({"format": "splits of units", "version": 2, "identity": "row"})
    for table in (
        pa.table({"unit": [1], "split": ["train"]}),
        good.replace_schema_metadata(None),
        good.replace_schema_metadata({"beam-tfrecord": later}),
        good.take([1, 0]),
        good.set_column(0, "unit", pa.array([1, 2], pa.int64())),
        good.select(["unit"]),
    ):
        write_table(table, str(path), attempts=str(tmp_path))
        with pytest.raises(SpecError, match="is not one"):
            open_assignments(str(path))


def test_a_lock_that_does_not_fit() -> None:
    """Other identities and unknown splits are named; unused names do not matter."""
    shares = SplitRule(SplitSource.SHARES, ("train", "val"), ("1", "1"))
    with pytest.raises(SpecError, match=r"by their place.*by key 'id'"):
        check_lock(assignments({1: 0}, "key 'id'"), shares, identity="row", path="l")
    with pytest.raises(SpecError, match=r"found \['test'\]"):
        check_lock(assignments({1: 1}), shares, identity="row", path="l")
    check_lock(assignments({1: 0}), shares, identity="row", path="l")
    column = SplitRule(SplitSource.COLUMN, ("train",))
    check_lock(assignments({1: 1}), column, identity="row", path="l")


RULES = {
    "single": SplitRule(),
    "shares": SplitRule(SplitSource.SHARES, NAMES, ("1", "1")),
    "column": SplitRule(SplitSource.COLUMN, NAMES),
    "table": SplitRule(SplitSource.TABLE, NAMES),
}


@pytest.mark.parametrize("rule", list(RULES))
def test_a_lock_comes_before_any_rule(rule: str) -> None:
    """Known rows keep their split; the rule decides for the others."""
    keys = [f"k{i}" for i in range(50)]
    batch = batch_of(range(50), keys=keys, splits=["train"] * 50)
    table = keyed_lock(**dict.fromkeys(keys, "train"))
    plain = splits_of(batch, RULES[rule], SplitTables(table=table))
    lock = keyed_lock(k3="test", k7="test", k8="train", gone="test")
    found = splits_of(batch, RULES[rule], SplitTables(table=table, lock=lock))
    wanted = list(plain)
    wanted[3], wanted[7], wanted[8] = "test", "test", "train"
    assert found == wanted


def test_install_lock(tmp_path: Folder) -> None:
    """The lock appears whole at its place; where it cannot, the old one stays."""
    written, path = tmp_path / "written", tmp_path / "my.lock"
    written.write_bytes(b"new")
    path.write_bytes(b"old")
    install_lock(str(written), str(path))
    assert path.read_bytes() == b"new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my.lock", "written"]
    with pytest.raises(CommitError, match="could not be written"):
        install_lock(str(written), str(tmp_path / "missing" / "my.lock"))


def ids_file(folder: Folder, name: str, frame: pandas.DataFrame) -> str:
    path = str(folder / name)
    if name.endswith(".parquet"):
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if name.endswith(".tsv") else ",")
    return path


@pytest.mark.parametrize("name", ["ids.csv", "ids.tsv", "ids.parquet"])
def test_tables_of_ids(tmp_path: Folder, name: str) -> None:
    """CSV, TSV and Parquet say the same; ids are text, gaps are no split."""
    frame = pandas.DataFrame(
        {
            "subset": ["007", "a,b", "고양이", "x", "x"],
            "Split": ["val", "train", "train", None, "val"],
        }
    )
    found = read_split_ids(ids_file(tmp_path, name, frame), identity="key")
    assert found.sizes == {"train": 2, "val": 2}
    assert len(found.assignments) == 4
    asked = ["a,b", "고양이", "007", "7", "x"]
    codes = found.assignments.find(key_hashes(pa.array(asked))).tolist()
    names = [None if i < 0 else found.assignments.names[i] for i in codes]
    assert names == ["train", "train", "val", None, "val"]


def test_integer_ids_are_their_digits(tmp_path: Folder) -> None:
    """A Parquet table of numbers matches a key column of numbers."""
    frame = pandas.DataFrame({"key": [1, 2], "split": ["a", "b"], "more": [0.5, 1.5]})
    found = read_split_ids(ids_file(tmp_path, "ids.parquet", frame), identity="key")
    asked = key_hashes(pa.array(["2", "1"]))
    assert found.assignments.find(asked).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,part\na,train\n", "of which one is named 'split'"),
        ("a,train\nb,test\n", "of which one is named 'split'"),
        ("id,split,x\na,b\n", "must be a readable"),
        ("", "must be a readable"),
        ("id,split\n,train\n", "data row 1 has none"),
        ("id,split\na,train\na,test\n", "one split of each id"),
        ("id,split\na,all\n", "split is named"),
    ],
)
def test_files_that_are_no_tables_of_ids(
    tmp_path: Folder, text: str, message: str
) -> None:
    """What cannot be a table of ids is said in a sentence that names the file."""
    path = tmp_path / "ids.csv"
    path.write_text(text)
    with pytest.raises((SourceError, SpecError), match=message) as caught:
        read_split_ids(str(path), identity="key")
    assert "ids.csv" in str(caught.value)


def test_the_same_id_twice_is_one(tmp_path: Folder) -> None:
    """A line that repeats another does no harm."""
    path = tmp_path / "ids.csv"
    path.write_text("id,split\na,train\nb,test\na,train\n")
    found = read_split_ids(str(path), identity="key")
    assert len(found.assignments) == 2
