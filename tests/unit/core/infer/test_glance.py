"""What is told of cells at a glance is what the exact rules find."""

import re
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.infer import texts as exact
from transforms.core.infer.evidence import Inference, inference

# Cells by what they look like; the cells of a column are mostly of one look.
_LOOKS = {
    "integers": st.integers(-300, 300).map(str),
    "long integers": st.integers(-(2**65), 2**65).map(str),
    "integers that float32 may not hold": st.integers(0, 2**26).map(str),
    "floats": st.floats(-10, 10).map("{:.4f}".format),
    "floats with exponents": st.floats(-1e40, 1e40).map("{:.4e}".format),
    "large floats": st.floats(0, 2**26).map(str),
    "whole floats": st.integers(-3, 3).map("{}.0".format),
    "zeros": st.sampled_from(["0.0", "-0.0", "0", "-0", ".0", "0."]),
    "nearly whole": st.sampled_from(["7." + "0" * 20 + "1", "7.0", "1e-400"]),
    "dates": st.dates().map(str),
    "leading zeros": st.sampled_from(["007", "1", "-01", "00.5"]),
    "signs": st.sampled_from(["+7", "1", "-", "--1", "1-2"]),
    "words": st.sampled_from(["NA", "nan", "true", "x", "0x1f", "1.2.3.4", " 1"]),
    "words alone": st.sampled_from(
        ["x", "2024-01-02", "12 cm", "1e", "NAN.", "t1", ""]
    ),
    "words that mean something": st.sampled_from(
        ["true", "FALSE ", "\tnan", "+inf", "-Infinity ", " 007", "1.e3", ".5", "1e400"]
    ),
    "missing": st.sampled_from(["NA", "N/A", "null", "None", "na", " NA"]),
}


def _cells(draw: st.DrawFn, rows: int) -> pa.StringArray:
    look = _LOOKS[draw(st.sampled_from(sorted(_LOOKS)))]
    other = _LOOKS[draw(st.sampled_from(sorted(_LOOKS)))]
    missing = _LOOKS["missing"]
    mixtures = [look, st.none() | look, look | other, look | look | missing]
    cell = draw(st.sampled_from(mixtures))
    cells = draw(st.lists(cell, min_size=rows, max_size=rows))
    # A slice of a longer array, as a part of a table is.
    return pa.array(["1", *cells, "2"], pa.string()).slice(1, rows)


@st.composite
def _batches(draw: st.DrawFn) -> list[dict[str, pa.Array | pa.ChunkedArray]]:
    names = [f"c{i}" for i in range(draw(st.integers(1, 6)))]
    batches = []
    for rows in draw(st.lists(st.integers(1, 40), min_size=1, max_size=2)):
        batch = {name: _cells(draw, rows) for name in names}
        cut = draw(st.integers(0, rows))
        batches.append(
            {
                name: pa.chunked_array([cells.slice(0, cut), cells.slice(cut)])
                for name, cells in batch.items()
            }
            if cut
            else batch
        )
    return batches


def _found(batches: list[dict[str, pa.Array | pa.ChunkedArray]]) -> Inference:
    return inference(exact.infer_texts(batches), None)


@given(_batches())
def test_a_glance_finds_what_the_exact_rules_find(
    batches: list[dict[str, pa.Array | pa.ChunkedArray]],
) -> None:
    """Features and all evidence are those of the exact rules."""
    with pytest.MonkeyPatch.context() as patch:
        # Without all that is told of cells at a glance.
        patch.setattr(exact, "_are_words", lambda cells: False)
        patch.setattr(exact, "_BOOLS", (mock.ANY,))
        patch.setattr(exact, "_NOT_WHOLE", re.compile("(?!)"))
        expected = _found(batches)
    assert repr(_found(batches)) == repr(expected)
