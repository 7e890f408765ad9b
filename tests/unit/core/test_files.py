"""Shard names: literal, and back to their parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.files import COMPRESSION_SUFFIXES, ShardName, parse_shard_name

SPLITS = st.from_regex(r"[A-Za-z0-9_-]+", fullmatch=True)
NAMES = st.text(min_size=1, max_size=12).filter(lambda text: "/" not in text)
AWKWARD = st.sampled_from(
    ["a-b", "a-train", "x.tfrecord-y", "고양이 🐈", "a\nb", "-", "a-", "[a]*?"]
)
SHARD_NAMES = st.builds(
    ShardName,
    name=NAMES | AWKWARD,
    split=SPLITS,
    index=st.integers(0, 200_000),
    shards=st.integers(200_001, 300_000),
    compression=st.sampled_from(list(COMPRESSION_SUFFIXES)),
)


@pytest.mark.parametrize(
    ("shard", "text"),
    [
        (ShardName("mnist", "train", 0, 1), "mnist-train.tfrecord-00000-of-00001"),
        (ShardName("a-b", "x-y", 7, 10), "a-b-x-y.tfrecord-00007-of-00010"),
        (
            ShardName("고양이", "test", 3, 4, "gzip"),
            "고양이-test.tfrecord-00003-of-00004.gz",
        ),
        (
            ShardName("m", "dev", 99_999, 100_001, "zlib"),
            "m-dev.tfrecord-99999-of-100001.zlib",
        ),
    ],
)
def test_literal_names(shard: ShardName, text: str) -> None:
    """The template that TFDS reads by default, both ways."""
    assert str(shard) == text
    assert parse_shard_name(text, shard.name) == shard


@given(SHARD_NAMES)
def test_round_trip(shard: ShardName) -> None:
    """Any name and split come back, '-' and '.tfrecord-' in the name or not."""
    assert parse_shard_name(str(shard), shard.name) == shard


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "m"),
        ("manifest.json", "m"),
        ("m-train.tfrecord", "m"),
        ("m-train.tfrecord-0-of-1", "m"),
        ("m-train.tfrecord-00000-of-00001.bak", "m"),
        ("m-train.tfrecord-00000-of-00001-backup", "m"),
        ("other-train.tfrecord-00000-of-00001", "m"),
        ("m.tfrecord-00000-of-00001", "m"),
        ("mtrain.tfrecord-00000-of-00001", "m"),
        ("m-tr ain.tfrecord-00000-of-00001", "m"),
        ("a-b-.tfrecord-00000-of-00001", "a-b"),
        ("m-v2.1-train.tfrecord-00000-of-00001", "m"),
        ("m-a.tfrecord-b-train.tfrecord-00000-of-00001", "m"),
        ("m-train.tfrecord-٠٠٠٠٠-of-٠٠٠٠١", "m"),
        ("m-train.tfrecord-000000-of-00001", "m"),
        ("m-train.tfrecord-00005-of-00003", "m"),
    ],
)
def test_near_misses_are_none(text: str, name: str) -> None:
    """No empty or impossible split, no foreign digits or zeros, no index past the end.

    These are files of another dataset whose name begins alike, or of none.
    """
    assert parse_shard_name(text, name) is None
