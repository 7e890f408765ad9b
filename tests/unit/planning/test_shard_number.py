"""The number of shards of a split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.planning.sizes import choose_shards, shards_of
from beam_pipeline.settings.spec import Spec, make_spec
from transforms.errors import SpecError

MB = 1_000_000
TB = 1_000_000 * MB


def spec(**given: int) -> Spec:
    return make_spec({"source": "in", "output": "out", **given})


@given(st.integers(200 * MB + 1, 13 * TB))
def test_shards_are_of_100_to_200_mb(size: int) -> None:
    """Above 200 MB every shard gets 100 to 200 MB, up to 13 TB."""
    shards = choose_shards(size)
    assert 100 * MB <= size / shards <= 200 * MB


@pytest.mark.parametrize(
    ("size", "shards"),
    [
        (0, 1),
        (1, 1),
        (200 * MB, 1),
        (200 * MB + 1, 2),
        (299 * MB, 2),
        (400 * MB, 4),
        (450 * MB, 4),
        (1_000 * MB, 8),
        (10_000 * MB, 64),
        (144_000 * MB, 1024),
        (65_536 * 200 * MB, 65_536),
        (65_536 * 200 * MB + 1, 65_536),
        (100 * TB, 65_536),
    ],
)
def test_shard_counts(size: int, shards: int) -> None:
    """The count that most powers of two divide: pinned, since it decides names."""
    assert choose_shards(size) == shards


def test_given_sizes_have_the_same_bound() -> None:
    """A size of shards that makes too many is refused; one that does not is taken."""
    assert shards_of(spec(shard_size=150 * MB), 9 * TB) == 60_000
    assert shards_of(spec(shards=65_536), 9 * TB) == 65_536
    with pytest.raises(SpecError, match="at most 65,536 shards"):
        shards_of(spec(shard_size=150 * MB), 10 * TB)
