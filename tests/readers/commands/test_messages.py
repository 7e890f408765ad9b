"""Tests of `unit/commands/test_messages.py` with TensorFlow."""

import pytest

from tests.support.examples import MESSAGE
from transforms.core.example.messages import (
    Example,
)


def test_tensorflow_parses_the_same_message() -> None:
    """TensorFlow's own class, loaded beside ours, reads and writes the same."""
    tf = pytest.importorskip("tensorflow")
    data = MESSAGE.SerializeToString()
    theirs = tf.train.Example.FromString(data)
    assert str(theirs) == str(MESSAGE)
    assert Example.FromString(theirs.SerializeToString()) == MESSAGE
