"""Whole numbers beyond 2^24: kept whole, or rejected, in every source."""

import gzip
import json
import math
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.image_sources import write_metadata
from tests.support.outputs import dataset, features, records, rejects
from tests.support.runs import command, convert, refused
from transforms.core.infer.columns import infer_batches, infer_columns
from transforms.core.schema import InexactIntegers, Kind
from transforms.formats.csv import sample as csv_sample
from transforms.formats.json_lines import reader as json_reader

Folder = pathlib.Path

IDS = range(123_456_789, 123_457_789)
# float32 holds one in eight of them.
LOST = sum(int(np.float32(i)) != i for i in IDS)


NAMES = ["a.csv", "a.jsonl", "a.parquet"]
every_source = pytest.mark.parametrize("name", NAMES)


def write(path: Folder, values: Iterable[object]) -> Folder:
    """Writes a column x of numbers beside one of texts."""
    write_metadata(path, [{"x": value, "y": "t"} for value in values])
    return path


def kind_of(out: Folder) -> str:
    """Returns the kind of the feature x."""
    return str(features(out)["x"]["kind"])


def values(out: Folder) -> list[Any]:
    return sorted(value for row in records(out) for value in row.get("x", []))


@every_source
def test_ids_beside_a_fraction_are_rejects(name: str, tmp_path: Folder) -> None:
    """Nothing is committed; the message names column, value and the ways out."""
    source = write(tmp_path / name, [*map(float, IDS), 1.5])
    message = refused(3, source, tmp_path / "out")
    assert f"not_float32: {LOST:,}" in message
    left = tmp_path / "out.rejects.jsonl"
    first = json.loads(left.read_text().splitlines()[0])
    assert first["reason"] == "not_float32"
    assert "column 'x' holds" in first["message"]
    assert "123456789 would become 123456792" in first["message"]
    for way in ("kind: int64", "kind: text", "kind: float"):
        assert way in first["message"]


def as_texts(numbers: Sequence[float]) -> pa.Array:
    return pa.array([repr(number) for number in numbers])


def as_doubles(numbers: Sequence[float]) -> pa.Array:
    return pa.array(numbers, pa.float64())


def as_lists(numbers: Sequence[float]) -> pa.Array:
    return pa.array([[number] for number in numbers], pa.list_(pa.float64()))


SMALL = [0.5, 1.25, 16_777_216.0] * 50
VOTES: dict[str, tuple[list[float], bool]] = {
    "1 of 100": ([16_777_217.0] * 99 + [16_777_217.5], True),
    "1 of 101": ([16_777_217.0] * 100 + [16_777_217.5], False),
    "1 of 100 below 0": ([-16_777_217.0] * 99 + [-16_777_217.5], True),
    "no large one": ([], False),
    "small ones do not vote": ([16_777_217.0] * 3, False),
    "whole doubles do not vote": (
        [16_777_217.0, 16_777_217.5] + [9_007_199_254_740_994.0] * 300,
        True,
    ),
    "they speak for nothing": ([9_007_199_254_740_994.0] * 9, False),
    "the last double votes": (
        [9_007_199_254_740_992.0] * 100 + [16_777_217.5, 16_777_219.0],
        False,
    ),
    "what is no number does not vote": (
        [16_777_217.0] * 99 + [16_777_217.5] + [math.nan, math.inf, 1e300] * 50,
        True,
    ),
}


@pytest.mark.parametrize("case", VOTES)
@pytest.mark.parametrize("make", [as_texts, as_doubles, as_lists])
@pytest.mark.parametrize("batches", [0, 1, 7])
def test_what_large_values_decide(
    make: Callable[[Sequence[float]], pa.Array], case: str, batches: int
) -> None:
    """The rule at its edges: alike for texts and doubles, at once and in batches."""
    large, rounds = VOTES[case]
    column = make(SMALL + large)
    if batches:
        size = -(-len(column) // batches)
        parts = [column.slice(at, size) for at in range(0, len(column), size)]
        found = infer_batches(({"x": part} for part in parts), label_column=None)
    else:
        found = infer_columns({"x": column}, label_column=None)
    (feature,), (facts,) = found.features, found.evidence
    assert feature.kind is Kind.FLOAT
    assert (feature.inexact_integers is InexactIntegers.ROUND) is rounds
    beyond = large.count(1e300)
    lost = 0 if rounds else sum(abs(n) in (16_777_217.0, 16_777_219.0) for n in large)
    assert facts.misfits == lost + beyond
    assert len(facts.misfit_examples) == (lost > 0) + (beyond > 0)


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are a kilobyte of packed CSV, at its start, and 64 of JSON lines."""
    monkeypatch.setattr(csv_sample, "_SAMPLE_BYTES", 1)
    monkeypatch.setattr(csv_sample, "_LEAST_SAMPLE_BYTES", 1_000)
    monkeypatch.setattr(json_reader, "SAMPLE_BYTES", 1 << 10)


def packed(source: Folder) -> Folder:
    """Compresses a CSV file: only its start is sampled then."""
    if source.suffix != ".csv":
        return source
    path = source.with_name("a.csv.gz")
    path.write_bytes(gzip.compress(source.read_bytes()))
    return path


late = pytest.mark.parametrize("name", NAMES[:2])


@late
@pytest.mark.usefixtures("small_samples")
def test_a_fraction_after_the_sample_fits_a_float(name: str, tmp_path: Folder) -> None:
    """A column of zeros is no column of integers, whatever the sample has missed."""
    numbers = [0.0] * 50_000
    numbers[33_333] = 0.37
    source = packed(write(tmp_path / name, numbers))
    convert(source, tmp_path / "out", "--max-reject-rate", 0)
    assert kind_of(tmp_path / "out") == "float"
    assert values(tmp_path / "out")[-1] == np.float32(0.37)


@late
@pytest.mark.usefixtures("small_samples")
def test_whole_numbers_after_the_sample_are_integers(
    name: str, tmp_path: Folder
) -> None:
    """However they are written, and a fraction among them is a reject."""
    lines = write(tmp_path / name, [123_456_789.0] * 50_000).read_text().splitlines()
    for index, text in enumerate(["1e9", "123456791", "2.50e1", "9007199254740993.0"]):
        lines[33_333 + index] = lines[9].replace("123456789.0", text)
    lines[37_925] = lines[9].replace("123456789.0", "1.5")
    source = tmp_path / name
    source.write_text("\n".join(lines) + "\n")
    convert(packed(source), tmp_path / "out")
    assert kind_of(tmp_path / "out") == "int64"
    found = set(values(tmp_path / "out")) - {123_456_789}
    reasons = [reject["reason"] for reject in rejects(tmp_path / "out")]
    if name == "a.csv":
        assert found == {10**9, 123_456_791, 25, 9_007_199_254_740_993}
        assert reasons == ["not_an_integer"]
    else:
        # The column is one of doubles by then.
        assert found == {10**9, 123_456_791, 25}
        assert reasons == ["out_of_range", "not_an_integer"]


@every_source
def test_the_printed_spec_gives_the_same_dataset(name: str, tmp_path: Folder) -> None:
    """Unedited it rejects the same rows; without its line the floats are rounded."""
    source = write(tmp_path / name, [1.5] * 500 + [16_777_217.0, 16_777_219.0])
    convert(source, tmp_path / "plain")
    text = command("spec", source).out
    assert "inexact_integers: reject" in text
    spec = tmp_path / "spec.yaml"
    spec.write_text(text)
    convert(source, tmp_path / "said", "--spec", spec)
    assert dataset(tmp_path / "said") == dataset(tmp_path / "plain")
    assert len(rejects(tmp_path / "said")) == 2
    spec.write_text(text.replace("    inexact_integers: reject\n", ""))
    convert(source, tmp_path / "edited", "--spec", spec)
    assert len(records(tmp_path / "edited")) == 502


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["123456789.0", "1"], Kind.INT64),
        (["1e9", "5"], Kind.INT64),
        (["-123456789.00", None, "NA"], Kind.INT64),
        (["16777216.0", "1"], Kind.FLOAT),
        (["16777217.0", "1"], Kind.INT64),
        (["1.0", "2.0"], Kind.FLOAT),
        (["123456789.0", "nan"], Kind.FLOAT),
        (["123456789", "1.5"], Kind.FLOAT),
        (["9223372036854775807.0"], Kind.INT64),
        (["9223372036854775808.0", "1"], Kind.FLOAT),
        (["1"] * 500 + ["6e23"], Kind.FLOAT),
        (["1"] * 500 + ["9223372036854775808"], Kind.INT64),
        (["1"] * 500 + ["2.0", "9223372036854775808"], Kind.INT64),
        (["123456789.0"] * 99 + ["x"], Kind.INT64),
        (["007.0", "123456789.0"], Kind.TEXT),
    ],
)
@pytest.mark.parametrize("repeated", [1, 70_000])
def test_the_kind_of_texts(texts: list[str | None], kind: Kind, repeated: int) -> None:
    """The rule at its edges, in one piece of a column and over several."""
    column = pa.array(texts * max(1, repeated // len(texts)), pa.string())
    (feature,) = infer_columns({"x": column}).features
    assert feature.kind is kind
    wanted = InexactIntegers.REJECT if kind is Kind.FLOAT else InexactIntegers.ROUND
    assert feature.inexact_integers is wanted


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([123456789.0, None, 1.0]), Kind.INT64),
        (pa.array([123456789.0, 0.5]), Kind.FLOAT),
        (pa.array([123456789.0, float("nan")]), Kind.FLOAT),
        (pa.array([123456789.0, float("inf")]), Kind.FLOAT),
        (pa.array([2.0**24, -(2.0**24)]), Kind.FLOAT),
        (pa.array([-(2.0**24) - 1]), Kind.INT64),
        (pa.array([-(2.0**63), 2.0**62]), Kind.INT64),
        (pa.array([2.0**63, 1.0]), Kind.FLOAT),
        (pa.array([123456792.0], pa.float32()), Kind.FLOAT),
        (pa.array([[123456789.0], [], None, [1.0]]), Kind.INT64),
        (pa.array([[123456789.0, 0.5]]), Kind.FLOAT),
        (pa.array([123456789.0, 1.0]).dictionary_encode(), Kind.INT64),
        (pa.array([None, None], pa.float64()), Kind.FLOAT),
    ],
)
def test_the_kind_of_float64(column: pa.Array, kind: Kind) -> None:
    """Only whole numbers, one of them beyond 2^24; float32 never needs it."""
    (feature,) = infer_columns({"x": column}).features
    assert feature.kind is kind


def test_exact_beyond_double(tmp_path: Folder) -> None:
    """2^53 + 1 with a point survives CSV and JSON lines, first seen or seen late."""
    numbers = [9_007_199_254_740_993, 123_456_789]
    for name in ("a.csv", "a.jsonl"):
        lines = ['{"x": %s.0}' if name == "a.jsonl" else "%s.0"] * 2
        texts = [line % n for line, n in zip(lines, numbers, strict=True)]
        head = [] if name == "a.jsonl" else ["x"]
        (tmp_path / name).write_text("\n".join([*head, *texts]) + "\n")
        convert(tmp_path / name, tmp_path / f"{name}.out")
        assert values(tmp_path / f"{name}.out") == sorted(numbers)
