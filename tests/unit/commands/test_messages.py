"""The message classes: TensorFlow's bytes, and no clash with TensorFlow's own."""

import subprocess
import sys

import pytest

from transforms.core.example.messages import (
    BytesList,
    Example,
    Feature,
    Features,
    FloatList,
    Int64List,
)

MESSAGE = Example(
    features=Features(
        feature={
            "이름": Feature(bytes_list=BytesList(value=[b"a", b""])),
            "f": Feature(float_list=FloatList(value=[1.5, -2.0])),
            "i": Feature(int64_list=Int64List(value=[-1, 300])),
            "none": Feature(),
        }
    )
)


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


@pytest.mark.reads_with_tensorflow
def test_tensorflow_parses_the_same_message() -> None:
    """TensorFlow's own class, loaded beside ours, reads and writes the same."""
    tf = pytest.importorskip("tensorflow")
    data = MESSAGE.SerializeToString()
    theirs = tf.train.Example.FromString(data)
    assert str(theirs) == str(MESSAGE)
    assert Example.FromString(theirs.SerializeToString()) == MESSAGE


def test_importing_the_messages_does_not_touch_the_default_pool() -> None:
    """The default pool knows no tensorflow.Example after the import."""
    code = (
        "import transforms.core.example.messages\n"
        "from google.protobuf import descriptor_pool\n"
        "try:\n"
        "    descriptor_pool.Default().FindMessageTypeByName('tensorflow.Example')\n"
        "except KeyError:\n"
        "    print('unknown')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "unknown"
