"""The message classes: TensorFlow's bytes, and no clash with TensorFlow's own."""

import pytest

from transforms.core.example.messages import CLASSES, Example

Features, Feature = CLASSES["Features"], CLASSES["Feature"]
BytesList, FloatList = CLASSES["BytesList"], CLASSES["FloatList"]
Int64List = CLASSES["Int64List"]


def test_field_numbers_and_packing_are_those_of_the_format() -> None:
    """One feature of each kind serialises to bytes written out by hand."""
    assert Feature(bytes_list=BytesList(value=[b"ab", b""])).SerializeToString() == (
        b"\x0a\x06" + b"\x0a\x02ab" + b"\x0a\x00"
    )
    assert Feature(float_list=FloatList(value=[1.0])).SerializeToString() == (
        b"\x12\x06" + b"\x0a\x04\x00\x00\x80\x3f"
    )
    assert Feature(int64_list=Int64List(value=[1, 300])).SerializeToString() == (
        b"\x1a\x05" + b"\x0a\x03\x01\xac\x02"
    )
    assert Example(features=Features()).SerializeToString() == b"\x0a\x00"


def test_a_feature_has_one_kind() -> None:
    """Setting a second kind clears the first, as in a oneof."""
    feature = Feature(int64_list=Int64List(value=[1]))
    feature.float_list.value.append(2.0)
    assert feature.WhichOneof("kind") == "float_list"


def test_values_of_the_wrong_type_are_refused() -> None:
    """A float is no int64, as in TensorFlow's classes."""
    with pytest.raises(TypeError):
        Int64List(value=[1.5])
