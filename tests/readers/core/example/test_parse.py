"""Tests of `unit/core/example/test_parse.py` with TensorFlow."""

import dataclasses
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import Values, examples, serialise
from tests.support.parse_cases import (
    CASES,
    PARTITIONS,
    RAGGED,
    VARYING,
    Wanted,
    as_lists,
    assert_same_array,
)
from transforms.core.example.parse import (
    FixedLenFeature,
    RaggedFeature,
    RowLengths,
    UniformRowLength,
    VarLenFeature,
    parse_single_example,
)
from transforms.errors import (
    ExampleError,
    SpecError,
)


def theirs(tensorflow: Any, data: bytes, wanted: Wanted) -> Any:
    shape, dtype, default = wanted
    kind = getattr(tensorflow, dtype)
    spec = tensorflow.io.FixedLenFeature(shape, kind, default)
    return tensorflow.io.parse_single_example(data, {"a": spec})["a"].numpy()


def refusals(tensorflow: Any) -> Any:
    return (tensorflow.errors.InvalidArgumentError, TypeError, ValueError)


def test_fixed_features_mean_what_tensorflow_means() -> None:
    """Values, shapes, types and refusals of every case."""
    tensorflow = pytest.importorskip("tensorflow")
    refused = 0
    for values, wanted in CASES:
        data = serialise(values)
        try:
            expected = theirs(tensorflow, data, wanted)
        except refusals(tensorflow):
            refused += 1
            with pytest.raises((ExampleError, SpecError)):
                parse_single_example(data, {"a": FixedLenFeature(*wanted)})
            continue
        found = parse_single_example(data, {"a": FixedLenFeature(*wanted)})["a"]
        assert_same_array(found, expected)
    assert 30 < refused < len(CASES) - 30


@pytest.mark.stress
def test_varying_features_mean_what_tensorflow_means() -> None:
    """Absent, untyped and empty are an empty list; another type is refused."""
    tensorflow = pytest.importorskip("tensorflow")
    for values, dtype in VARYING:
        data = serialise(values)
        kind = getattr(tensorflow, dtype)
        theirs_spec = {"a": tensorflow.io.VarLenFeature(kind)}
        spec = {"a": VarLenFeature(dtype)}
        try:
            expected = tensorflow.io.parse_single_example(data, theirs_spec)["a"]
        except refusals(tensorflow):
            with pytest.raises(ExampleError):
                parse_single_example(data, spec)
            continue
        assert_same_array(
            parse_single_example(data, spec)["a"], expected.values.numpy()
        )


def test_random_examples_mean_what_tensorflow_means() -> None:
    """Random messages under random descriptions: the same values or both refuse."""
    tensorflow = pytest.importorskip("tensorflow")
    shapes = st.sampled_from([None, (), (1,), (2,), (0,), (2, 2)])
    wanted = st.dictionaries(
        st.text(max_size=1),
        st.tuples(shapes, st.sampled_from(["int64", "float32", "string"])),
        min_size=1,
        max_size=3,
    )

    @given(examples, wanted, st.data())
    def compare(values: Values, wanted: dict[str, Any], data: st.DataObject) -> None:
        # Names out of both, or hardly any would meet.
        names = st.sampled_from(sorted({*values, *wanted}))
        description: dict[str, Any] = {}
        their_description: dict[str, Any] = {}
        for shape, dtype in wanted.values():
            name = data.draw(names)
            kind = getattr(tensorflow, dtype)
            if shape is None:
                description[name] = VarLenFeature(dtype)
                their_description[name] = tensorflow.io.VarLenFeature(kind)
            else:
                description[name] = FixedLenFeature(shape, dtype)
                their_description[name] = tensorflow.io.FixedLenFeature(shape, kind)
        payload = serialise(values)
        try:
            expected = tensorflow.io.parse_single_example(payload, their_description)
        except refusals(tensorflow):
            with pytest.raises(ExampleError):
                parse_single_example(payload, description)
            return
        found = parse_single_example(payload, description)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            sparse = isinstance(value, tensorflow.SparseTensor)
            assert_same_array(found[name], (value.values if sparse else value).numpy())

    compare()


def test_damaged_examples_are_never_read_differently() -> None:
    """Where both parsers accept a message, they agree on its values."""
    tensorflow = pytest.importorskip("tensorflow")
    noise = random.Random(5)
    whole = serialise({"a": ("int64_list", [1, -1]), "b": ("float_list", [0.5])})
    both = 0
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(noise.randint(1, 2)):
            changed[noise.randrange(len(changed))] = noise.randrange(256)
        data = bytes(changed)
        theirs_spec = {"a": tensorflow.io.VarLenFeature(tensorflow.int64)}
        try:
            found = parse_single_example(data, {"a": VarLenFeature("int64")})
            expected = tensorflow.io.parse_single_example(data, theirs_spec)
        except (ExampleError, *refusals(tensorflow)):
            continue
        both += 1
        assert_same_array(found["a"], expected["a"].values.numpy())
    assert both > 100


@pytest.mark.parametrize(
    "dtype",
    [np.int64, np.dtype("int64"), int, "int64", pytest.param("tf", id="tensorflow")],
)
def test_spellings_of_a_type(dtype: Any) -> None:
    """NumPy's, Python's, TensorFlow's, or the name."""
    if dtype == "tf":
        dtype = dataclasses.make_dataclass("DType", [("name", str)])("int64")
    assert FixedLenFeature([], dtype).dtype == "int64"
    assert VarLenFeature(dtype).dtype == "int64"


def test_ragged_features_mean_what_tensorflow_means() -> None:
    """Every way to put values into rows; TensorFlow checks them as well."""
    tensorflow = pytest.importorskip("tensorflow")
    theirs = tensorflow.io.RaggedFeature
    ours = {"RowLengths": RowLengths, "UniformRowLength": UniformRowLength}
    read = refused = 0
    for values in RAGGED:
        data = serialise(values)
        for partitions in PARTITIONS:
            spec = RaggedFeature(
                "int64", "v", [ours[word](what) for word, what in partitions]
            )
            their_spec = theirs(
                tensorflow.int64,
                value_key="v",
                partitions=[getattr(theirs, word)(what) for word, what in partitions],
                validate=True,
            )
            try:
                expected = tensorflow.io.parse_single_example(data, {"a": their_spec})
            except refusals(tensorflow):
                refused += 1
                with pytest.raises(ExampleError):
                    parse_single_example(data, {"a": spec})
                continue
            read += 1
            found = parse_single_example(data, {"a": spec})["a"]
            assert as_lists(found) == as_lists(expected["a"])
    assert read > 15
    assert refused > 5
