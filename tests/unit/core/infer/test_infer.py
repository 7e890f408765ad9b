"""Kinds from samples of text, exactly and at a glance."""

import re
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.infer import texts as exact
from transforms.core.infer import texts as texts_of_columns
from transforms.core.infer.columns import infer_batches, infer_columns
from transforms.core.schema import Feature, InexactIntegers, Kind

CASES = {
    "integers": (["1", "-2", "+3", None], Kind.INT64),
    "zero": (["0", "-0", "0"], Kind.INT64),
    "padded": ([" 1", "2\t"], Kind.INT64),
    "largest": (["9223372036854775807", "-9223372036854775808"], Kind.INT64),
    "too large": (["9223372036854775808", "1"], Kind.TEXT),
    "too large beside 1.0": (["9223372036854775808", "1.0"], Kind.FLOAT),
    "decimals": (["1", "2.5", "1e3", ".5"], Kind.FLOAT),
    "beyond float32": (["1e39", "1"], Kind.FLOAT),
    "nan beside decimals": (["nan", "1.5", "inf"], Kind.FLOAT),
    "nan beside integers": (["nan", "1"], Kind.FLOAT),
    "nan alone": (["nan", "NaN"], Kind.TEXT),
    "inf alone": (["inf", "-Infinity"], Kind.TEXT),
    "missing words": (["NA", "N/A", "null", "None", "4"], Kind.INT64),
    "missing words only": (["NA", "null"], Kind.TEXT),
    "nothing": ([None, None], Kind.TEXT),
    "no rows": ([], Kind.TEXT),
    "empty texts": (["", ""], Kind.TEXT),
    "zip codes": (["12345"] * 999 + ["01234"], Kind.TEXT),
    "negative with zero": (["5", "-01"], Kind.TEXT),
    "padded zero": (["5"] * 200 + [" 007"], Kind.TEXT),
    "decimal with zeros": (["1.5"] * 200 + ["00.5"], Kind.TEXT),
    "phone": (["010-1234-5678"], Kind.TEXT),
    "one in 100 odd": (["1"] * 99 + ["x"], Kind.INT64),
    "two in 100 odd": (["1"] * 98 + ["x", "y"], Kind.TEXT),
    "one in 100 odd, decimal": (["1"] * 98 + ["2.5", "x"], Kind.FLOAT),
    "missing do not count": (["1"] * 98 + ["x", "y"] + ["NA"] * 200, Kind.TEXT),
    "bools": (["true", "False", "TRUE", None, "NA"], Kind.BOOL),
    "bools and another": (["true"] * 500 + ["yes"], Kind.TEXT),
    "ones and zeros": (["1", "0"], Kind.INT64),
    "yes": (["yes", "no"], Kind.TEXT),
    "dates": (["2024-01-02", "2024-01-03"], Kind.TEXT),
    "hex": (["0x10", "0x11"], Kind.TEXT),
    "separators": (["1_000", "1,000"], Kind.TEXT),
    "decimal commas": (["1,5"], Kind.TEXT),
}


def feature_of(name: str, kind: Kind, **fields: Any) -> Feature:
    """Returns a feature as inference makes it."""
    if kind is Kind.FLOAT:
        fields["inexact_integers"] = InexactIntegers.REJECT
    return Feature(name, kind, **fields)


@pytest.mark.parametrize("piece_bytes", [texts_of_columns._PIECE_BYTES, 1])
@pytest.mark.parametrize("case", CASES)
def test_a_kind_is_inferred(
    case: str, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule, at its edge; large cells are looked at a few at a time."""
    monkeypatch.setattr(texts_of_columns, "_PIECE_BYTES", piece_bytes)
    texts, kind = CASES[case]
    inference = infer_columns({"c": pa.array(texts, pa.string())})
    assert inference.features == (feature_of("c", kind),)


def test_evidence_tells_what_was_seen() -> None:
    """Counts, range and examples are of the cells as their kind takes them."""
    texts = [*map(str, range(150)), "x", "NA", None]
    (facts,) = infer_columns({"n": pa.array(texts)}).evidence
    assert (facts.sampled, facts.missing, facts.misfits) == (153, 2, 1)
    assert (facts.minimum, facts.maximum) == (0, 149)
    assert facts.examples == ("0", "1", "2")
    assert facts.misfit_examples == ("x",)

    (facts,) = infer_columns({"t": pa.array(["NA", "b", "NA", None])}).evidence
    assert (facts.missing, facts.minimum, facts.examples) == (1, None, ("NA", "b"))
    (facts,) = infer_columns({"x": pa.array(["nan", "inf", "2.5"])}).evidence
    assert (facts.minimum, facts.maximum) == (2.5, 2.5)
    (facts,) = infer_columns({"h": pa.array(["18446744073709551615"])}).evidence
    assert facts.exact_text
    (facts,) = infer_columns({"e": pa.array([], pa.string())}).evidence
    assert (facts.sampled, facts.missing) == (0, 0)


@pytest.mark.parametrize("sizes", [(3,), (1, 1, 1), (2, 1)])
def test_the_extent_does_not_depend_on_the_pieces(sizes: tuple[int, ...]) -> None:
    """It is that of the numbers as float32 has them, whatever came together."""
    cells = pa.array(["16777217", "16777219", "18446744073709551615.0"])
    starts = np.cumsum([0, *sizes[:-1]])
    batches = [{"x": cells.slice(*at)} for at in zip(starts, sizes, strict=True)]
    found = infer_batches(batches)
    (feature,), (facts,) = found.features, found.evidence
    assert feature.kind is Kind.FLOAT
    assert (facts.minimum, facts.maximum) == (2.0**24, 2.0**64)


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
    names = [f"c{i}" for i in range(draw(st.integers(1, 3)))]
    batches = []
    for rows in draw(st.lists(st.integers(1, 20), min_size=1, max_size=2)):
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
        expected = infer_batches(batches)
    assert repr(infer_batches(batches)) == repr(expected)
