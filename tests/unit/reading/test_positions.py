"""Places of views against lists that are cut in the same way."""

from typing import Any

import numpy as np
import pytest

from transforms.reading.positions import (
    Selection,
    Shuffled,
    place_of,
    places_of,
)

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
    view = Selection.whole(Shuffled(Selection.whole(range(2**60)), 1, range(2)))
    late = view[2**60 + 12_000 :: 5]
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
