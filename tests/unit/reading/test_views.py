"""Views are sequences: each selection of them is what Python does with a list."""

import pathlib
import pickle
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfrecord
from tests.support.datasets import animals, write_dataset
from tests.support.kinds import write_kinds
from transforms.core.schema import Feature, Kind
from transforms.errors import SpecError
from transforms.reading.positions import (
    Selection,
    Shuffled,
    place_of,
    places_of,
)
from transforms.reading.view import View

Folder = pathlib.Path

COUNTS = (5, 0, 11, 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of two splits, of 17 and 3 rows."""
    path = tmp_path_factory.mktemp("views") / "animals"
    splits = {"train": animals(*COUNTS), "test": animals(3, start=100)}
    write_dataset(path, splits)
    return path


@pytest.fixture(scope="module")
def train(folder: Folder) -> View:
    return beam_tfrecord.open_dataset(folder)["train"]


def ids(view: Any) -> list[int]:
    return [row["id"] for row in view]


def test_a_dataset_says_what_it_has(folder: Folder) -> None:
    """Splits, features and class names, without reading a record."""
    found = beam_tfrecord.open_dataset(folder)
    assert found.splits == {"train": 17, "test": 3}
    assert [*found] == ["train", "test"]
    assert "test" in found
    assert len(found) == 2
    assert "17 rows" in repr(found["train"])
    assert found.features["weight"].kind == "float"
    assert found.classes == {"animal": ("dog", "goat", "고양이")}
    assert ids(found["test"]) == [100, 101, 102]


def test_another_split(folder: Folder) -> None:
    """The error suggests a name that is alike, or lists all."""
    with pytest.raises(SpecError, match=r"'trian'.*'train'"):
        beam_tfrecord.open_dataset(folder)["trian"]
    with pytest.raises(SpecError, match=r"'x'.*'train', 'test'"):
        beam_tfrecord.open_dataset(folder)["x"]


def test_rows(train: View) -> None:
    """Each row has every key, and values of plain or NumPy types."""
    row = train[2]
    assert row == {
        "id": 2,
        "weight": np.float32(0.5),
        "tame": True,
        "note": None,
        "raw": b"\xff\x02",
        "animal": 1,
    }
    assert type(row["weight"]) is np.float32
    assert [type(row[name]) for name in ("id", "tame")] == [int, bool]
    assert [*train][2] == row


_SLICES = st.builds(
    slice,
    st.none() | st.integers(-20, 20),
    st.none() | st.integers(-20, 20),
    st.none() | st.integers(-3, 3).filter(bool),
)


@st.composite
def steps(draw: st.DrawFn) -> list[Any]:
    return draw(st.lists(_SLICES | st.integers(0, 2**32), max_size=5))


@given(steps())
def test_selections_are_those_of_lists(train: View, chain: list[Any]) -> None:
    """A chain of slices, lists and shuffles gives what it gives of a list."""
    view, oracle = train, list(range(17))
    for step in chain:
        if isinstance(step, slice):
            view, oracle = view[step], oracle[step]
        elif step % 2 and oracle:
            rng = np.random.default_rng(step)
            chosen = rng.integers(-len(oracle), len(oracle), 6)
            view = view[chosen.tolist()] if step % 3 else view[chosen]
            oracle = [oracle[place] for place in chosen]
        else:
            shuffled = view.shuffled(seed=step)
            assert sorted(ids(shuffled)) == sorted(oracle)
            view, oracle = shuffled, ids(shuffled)
    assert len(view) == len(oracle)
    assert ids(view) == oracle
    assert [view[place]["id"] for place in range(len(view))] == oracle
    assert ids(pickle.loads(pickle.dumps(view))) == oracle
    assert pa.table(view).column("id").to_pylist() == oracle
    if oracle:
        assert view[-1]["id"] == oracle[-1]


def test_no_library_takes_it_for_a_list(train: View) -> None:
    """Polars reads a registered sequence row by row; `random` needs none."""
    assert not isinstance(train, Sequence)
    assert not isinstance(train.records, Sequence)
    assert {random.Random(seed).choice(train)["id"] for seed in range(99)} == {
        *range(17)
    }


def test_several_at_once(train: View) -> None:
    """In the order asked for, doubled ones too."""
    assert ids(train.__getitems__([3, 1, 1, 16, 4])) == [3, 1, 1, 16, 4]
    assert train.__getitems__([]) == []


def test_records(train: View) -> None:
    """The same selection, as serialised Examples."""
    records = train[3:9:2].records
    assert [beam_tfrecord.decode_example(each)["id"] for each in records] == [3, 5, 7]
    assert records[-1] == train.records[7]
    assert records[1:].__getitems__([0]) == [train.records[5]]


def test_select(train: View) -> None:
    """Only the features named, in that order; a wrong name is an error."""
    view = train[4:6].select(["note", "id"])
    assert [*view] == [{"note": "메모 4", "id": 4}, {"note": None, "id": 5}]
    assert [*view.features] == ["note", "id"]
    with pytest.raises(SpecError, match="'notes'"):
        train.select(["notes"])
    with pytest.raises(SpecError, match="list of names"):
        train.select("note")


def test_a_float_for_missing_ones_has_32_bits(tmp_path: Folder) -> None:
    """As the others have; one read by itself, too. A whole number is a float there."""
    features = [Feature("weight", Kind.FLOAT), Feature("id", Kind.INT64)]
    write_kinds(tmp_path / "d", [{"weight": 1.5, "id": 1}, {}], features)
    fill: dict[str, float] = {"weight": -1, "id": -1}
    view = beam_tfrecord.open_dataset(tmp_path / "d", missing=fill)["train"]
    for row in (view[1], [*view][1]):
        assert row == {"weight": -1.0, "id": -1}
        assert type(row["weight"]) is np.float32
        assert type(row["id"]) is int


@pytest.mark.parametrize("argument", [{"seed": 1.5}, {"epoch": "1"}, {"run": True}])
def test_numbers_of_a_shuffle_are_whole(train: View, argument: dict[str, Any]) -> None:
    """What is no whole number is a TypeError that names the argument and the value."""
    (name,) = argument
    with pytest.raises(TypeError, match=f"{name[:5]} must be a whole number; found"):
        train.shuffled(**argument)


def test_epochs(train: View) -> None:
    """Each epoch has an order of its own."""
    one, other = (train.shuffled(seed=5, epoch=epoch) for epoch in (2, 3))
    assert ids(one) != ids(other)


def test_a_batch_has_a_row(train: View) -> None:
    """A smaller size is refused."""
    with pytest.raises(SpecError, match="1 row"):
        next(train.batches(0))


def test_a_stream_reads_nothing_before_it_is_asked(
    train: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB makes three of them for a query; and no reader asks for single rows."""

    def fail(*_: object) -> Iterator[object]:
        raise AssertionError("a record was read")

    monkeypatch.setattr(View, "__getitem__", fail)
    with monkeypatch.context() as patch:
        patch.setattr(View, "_payloads", fail)
        train.__arrow_c_stream__()
    assert pa.table(train.select(["id"])).num_rows == 17


@pytest.mark.parametrize("run", [1, 2, 5, 100])
def test_runs_that_are_shuffled(train: View, run: int) -> None:
    """Any part of the order is the same, however it is read."""
    whole = train.shuffled(seed=3, epoch=2, run=run)
    every = [whole[place]["id"] for place in range(len(whole))]
    assert sorted(every) == sorted(ids(train))
    for part in (slice(None), slice(7, 16, 3), slice(None, None, -1), slice(5, 9)):
        assert ids(whole[part]) == every[part]
    assert [*whole.records] == [whole.records[place] for place in range(len(whole))]
    with pytest.raises(SpecError, match="run must be"):
        train.shuffled(run=-1)


THREE = [3, 199, 3]


def test_slices_of_slices_are_one() -> None:
    """A slice of a slice has the base of the first, so chains cost nothing."""
    base = range(1_000_000)
    view = Selection.whole(base)
    for _ in range(50):
        view = view[1:]
    assert view == Selection(base, range(50, 1_000_000))


def test_a_shuffle_takes_no_memory() -> None:
    """Any slice of an order of 2^60 records is there at once."""
    shuffled = Shuffled.of(Selection.whole(range(2**60)), seed=1, epoch=0)
    view = Selection.whole(shuffled)
    late = view[12_000::5]
    assert late.span(0, 2).tolist() == [late.at(0), late.at(1)]


@pytest.mark.parametrize(
    ("indices", "places"),
    [
        *((7, 7), (np.int8(7), 7), (np.uint64(7), 7), (np.array(7), 7)),
        *(([], []), ((), []), (range(0), []), (np.array([], np.uint8), [])),
        *(([3, -1, 3], THREE), ((3, -1, 3), THREE), (iter([3, -1, 3]), THREE)),
        (np.array([3, -1, 3], np.int8), THREE),
    ],
)
def test_indices(indices: Any, places: Any) -> None:
    """Whole numbers of Python and NumPy; any iterable of them, repeated ones too."""
    if isinstance(places, int):
        assert place_of(indices) == places
    else:
        assert places_of(indices, 200).tolist() == places


@pytest.mark.parametrize("index", [True, np.True_, 1.0, np.float32(1), "1", None, [1]])
def test_what_is_no_index(index: Any) -> None:
    """What is no whole number, alone, in a list and in an array."""
    for indices in ([index], [1, index], np.array([index])):
        with pytest.raises(TypeError, match="whole numbers"):
            places_of(indices, 10)
    with pytest.raises(TypeError, match="whole numbers"):
        place_of(index)


@pytest.mark.parametrize(
    "indices", [[10], [-11], [2**63], [2**70], [-(2**70)], np.array([2**64 - 1])]
)
def test_lists_outside_of_a_view(indices: Any) -> None:
    """Each place of a list must be in the view, however large the number is."""
    with pytest.raises(IndexError, match=r"out of range .*10"):
        places_of(indices, 10)
