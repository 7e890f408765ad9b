"""Places of views against lists that are cut in the same way."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.errors import UsageError
from transforms.reading.positions import (
    Permutation,
    Selection,
    Shuffled,
    epochs_of,
    place_of,
    places_of,
)

BOUNDS = st.none() | st.integers(-30, 30)
SLICES = st.builds(
    slice, BOUNDS, BOUNDS, st.none() | st.sampled_from([-7, -2, -1, 1, 3])
)


def shuffled(items: list[int], seed: int, epochs: list[int]) -> list[int]:
    """Returns the items in the order of each epoch; the oracle of `Shuffled`."""
    if not items:
        return []
    orders = [Permutation.of(len(items), seed=seed, epoch=each) for each in epochs]
    return [items[order(place)] for order in orders for place in range(len(items))]


@given(st.integers(0, 40), st.data())
def test_any_chain_is_that_of_a_list(count: int, data: st.DataObject) -> None:
    """Slices, lists and shuffles of one another give what they give of a list."""
    items = list(range(count))
    view = Selection.whole(range(count))
    for _ in range(data.draw(st.integers(0, 5))):
        step = data.draw(st.sampled_from(["slice", "list", "shuffle"]))
        if step == "slice":
            part = data.draw(SLICES)
            items, view = items[part], view[part]
        elif step == "list" and items:
            chosen = data.draw(
                st.lists(st.integers(-len(items), len(items) - 1), max_size=50)
            )
            view = view.listed(places_of(chosen, len(view)))
            items = [items[place] for place in chosen]
        elif step == "shuffle":
            seed = data.draw(st.integers(0, 9))
            epochs = data.draw(st.lists(st.integers(0, 9), max_size=3))
            items = shuffled(items, seed, epochs)
            view = Selection.whole(Shuffled(view, seed, tuple(epochs)))
    assert len(view) == len(items)
    assert view.span(0, len(view)).tolist() == items
    assert [view.at(place) for place in range(-len(items), len(items))] == 2 * items
    for place in (len(items), -len(items) - 1):
        with pytest.raises(IndexError):
            view.at(place)


def test_slices_of_slices_are_one() -> None:
    """A slice of a slice has the base of the first, so chains cost nothing."""
    base = range(1_000_000)
    view = Selection.whole(base)
    for _ in range(50):
        view = view[1:]
    assert view == Selection(base, range(50, 1_000_000))


def test_a_shuffle_takes_no_memory() -> None:
    """Any slice of an order of 2^60 records is there at once."""
    view = Selection.whole(Shuffled(Selection.whole(range(2**60)), 1, range(2)))
    late = view[2**60 + 12_000 :: 5]
    assert late.span(0, 2).tolist() == [late.at(0), late.at(1)]


@pytest.mark.parametrize("index", [True, np.True_, 1.0, np.float32(1), "1", None, [1]])
def test_other_indices_are_no_numbers(index: Any) -> None:
    """What is no whole number is a TypeError that says what is."""
    with pytest.raises(TypeError, match="whole numbers"):
        place_of(index)


@pytest.mark.parametrize("index", [7, np.int8(7), np.uint64(7), np.array(7)])
def test_numpy_integers_are_numbers(index: Any) -> None:
    """NumPy's integers are indices as Python's are."""
    assert place_of(index) == 7


@pytest.mark.parametrize(
    "indices",
    [
        [True, False],
        [1, True],
        [1.0],
        ["1"],
        [None],
        [[1]],
        np.array([True, False]),
        np.array([1.0]),
        np.array([[1]]),
        np.array(1),
    ],
)
def test_other_lists_are_no_indices(indices: Any) -> None:
    """A mask, or a list of what is no whole number, is a TypeError."""
    with pytest.raises(TypeError, match="whole numbers"):
        places_of(indices, 10)


@pytest.mark.parametrize(
    "indices", [[10], [-11], [2**63], [2**70], [-(2**70)], np.array([2**64 - 1])]
)
def test_lists_outside_of_a_view(indices: Any) -> None:
    """Each place of a list must be in the view, however large the number is."""
    with pytest.raises(IndexError, match=r"out of range .*10"):
        places_of(indices, 10)


@pytest.mark.parametrize(
    "indices", [[], (), range(0), np.array([], np.int64), np.array([], np.uint8)]
)
def test_an_empty_list_is_an_empty_view(indices: Any) -> None:
    """No indices are no records."""
    assert places_of(indices, 10).tolist() == []


@pytest.mark.parametrize(
    "indices", [[3, -1, 3], (3, -1, 3), iter([3, -1, 3]), np.array([3, -1, 3], np.int8)]
)
def test_any_iterable_is_a_list(indices: Any) -> None:
    """Lists, tuples, arrays of any whole type; repeated and negative places."""
    assert places_of(indices, 200).tolist() == [3, 199, 3]


def test_epochs_or_an_epoch() -> None:
    """One epoch or several; both are a mistake."""
    assert epochs_of(None, None) == (0,)
    assert epochs_of(3, None) == (3,)
    assert epochs_of(None, range(3, 90)) == range(3, 90)
    assert epochs_of(None, [1, 2]) == (1, 2)
    with pytest.raises(UsageError, match="epoch"):
        epochs_of(1, [2])
