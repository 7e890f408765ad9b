"""Our parser against protobuf's `tf.train.Example`, on valid and on mutated messages.

Verdict and values are the same.
"""

import random
import struct
from typing import Any

import pytest
from google.protobuf.message import DecodeError

from tests.conftest import Headline
from tests.support.fuzzing import mutated
from tests.support.stress import sizes
from transforms.core.example.decoder import decode_examples
from transforms.core.example.messages import Example, parse_example
from transforms.errors import ExampleError

TOKENS = (
    *(b"\x0a\x00", b"\x12\x02\x1a\x00", b"\x1b", b"\x1c", b"\x1b\x1c", b"\xff" * 11),
    *(b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\x80" * 10 + b"\x01"),
    *(b"\x0a\x01i", b"\x08\x01", b"\x0d\0\0\x80\x3f", b"\x0a\x01\xff", b"\x1a\0"),
    b"\x0a\x0c\x0a\x0a\x0a\x01i\x12\x05\x1a\x03\x0a\x01\x09",
)
FEATURES = ("one", "i", "f", "글")
INT64S = (0, 1, -1, 127, 128, 300, 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
FLOAT_BITS = (0, 1 << 31, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x3F800000)
BYTES = (b"", b"\0", b"\xff\xfe", "글".encode(), b"x" * 200)


def random_example(rng: random.Random) -> bytes:
    """Returns a serialised Example with some of the features, and others."""
    example = Example()
    for name in FEATURES:
        if rng.random() < 0.2:
            continue
        feature = example.features.feature[name]
        size = 1 if name == "one" else rng.randrange(4)
        match name:
            case "f":
                bits = rng.choices(FLOAT_BITS, k=size)
                values = struct.unpack(f"<{size}f", struct.pack(f"<{size}I", *bits))
                feature.float_list.value.extend(values)
            case "글":
                feature.bytes_list.value.extend(rng.choices(BYTES, k=size))
            case _:
                feature.int64_list.value.extend(rng.choices(INT64S, k=size))
    for _ in range(rng.randrange(3)):
        other = example.features.feature[rng.choice(("", "a", "b" * 130))]
        other.int64_list.value.append(rng.choice(INT64S))
    return bytes(example.SerializeToString())


def cases(number: int) -> Any:
    """Yields (case, message): of three, one is valid and two are mutated."""
    for case in range(number):
        rng = random.Random(case)
        data = random_example(rng)
        yield case, mutated(data, rng, TOKENS) if case % 3 else data


def same(left: Any, right: Any) -> bool:
    return repr(left) == repr(right)


@pytest.mark.parametrize("total", sizes(300, 100_000))
def test_verdict_and_values_are_those_of_tensorflows_message(
    total: int, tf: Any, headline: Headline
) -> None:
    """`tf.train.Example` accepts what we accept, and says the same of it."""
    accepted = 0
    for case, data in cases(total):
        try:
            theirs: Any = tf.train.Example.FromString(data)
        except DecodeError:
            theirs = None
        try:
            ours = parse_example(data)
        except ExampleError:
            assert theirs is None, (case, data)
            with pytest.raises(ExampleError):
                decode_examples([data])
            continue
        assert theirs is not None, (case, data)
        accepted += 1
        features = theirs.features.feature
        expected = {}
        for name in sorted(features):
            kind = features[name].WhichOneof("kind")
            expected[name] = (
                [] if kind is None else list(getattr(features[name], kind).value)
            )
        assert same(ours, expected), (case, data)
    assert total // 3 < accepted < total
    headline(
        "H13", f"tf.train.Example: {total:,} messages, {accepted:,} valid, 0 differ"
    )
