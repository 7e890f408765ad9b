"""Shards have the asked bytes however rows repeat, and are the same in any bundling."""

import functools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.gathered_rows import Gathered, gather
from transforms.codec.decode import decode_example
from transforms.core.placing.content import content_hashes
from transforms.core.placing.identity import unit_hashes
from transforms.errors import InputError
from transforms.gather import bundle
from transforms.gather.cuts import BINS, Bounds, Histogram, even_bounds, plan_cuts
from transforms.gather.row_runs import row_sizes

Row = dict[str, Any]
SCHEMA = {"n": "int64", "v": "text"}


def few_hashes(
    rows: pa.RecordBatch, names: Sequence[str], values: int
) -> npt.NDArray[np.uint64]:
    """As `content_hashes`, with so few values that different rows have one hash."""
    return content_hashes(rows, names) % np.uint64(values) << np.uint64(60)


def divided(rows: Sequence[Any], bundles: int, seed: int) -> list[list[Any]]:
    mixed = random.Random(seed).sample(rows, len(rows))
    return [mixed[number::bundles] for number in range(bundles)]


def sizes_of(records: Sequence[bytes]) -> npt.NDArray[np.int64]:
    rows = [decode_example(record, SCHEMA) for record in records]
    columns = {name: [row.get(name) for row in rows] for name in SCHEMA}
    types = {"n": pa.int64(), "v": pa.string()}
    return row_sizes(
        pa.record_batch({n: pa.array(v, types[n]) for n, v in columns.items()})
    )


def check_sizes(found: Gathered, shards: int) -> None:
    """Checks that no cut is further from its target than it need be."""
    sizes = [sizes_of(found.records[key]) for key in sorted(found.records)]
    total = sum(int(each.sum()) for each in sizes)
    row = max(int(each.max()) for each in sizes)
    least = max(total / shards / 4, total * 8 / BINS)
    ends = np.cumsum([each.sum() for each in sizes])
    targets = total * np.arange(1, shards) / shards
    for target in targets:
        assert np.abs(np.append(0, ends) - target).min() <= max(row, least) / 2 + 1
    assert all(len(each) for each in sizes)
    assert len(sizes) <= shards


ROWS = st.lists(
    st.tuples(
        st.fixed_dictionaries(
            {
                "n": st.none() | st.integers(0, 3),
                "v": st.sampled_from(["", "a", "ab", "b" * 40, "c" * 400]),
            }
        ),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=12,
).map(lambda found: [row for row, many in found for _ in range(many)])


@pytest.mark.stress
@given(
    rows=ROWS,
    shards=st.integers(1, 9),
    hashes=st.sampled_from([0, 1, 2, 5]),
    bundles=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_shards_are_the_same_in_any_bundling(
    rows: list[Row], shards: int, hashes: int, bundles: int, seed: int
) -> None:
    """Also where different rows have one hash; and they have their sizes."""
    with pytest.MonkeyPatch.context() as patch:
        if hashes:
            few = functools.partial(few_hashes, values=hashes)
            patch.setattr(bundle, "content_hashes", few)
        one = gather([rows], num_shards=shards, features=SCHEMA)
        other = gather(divided(rows, bundles, seed), num_shards=shards, features=SCHEMA)
        whole = gather([rows], num_shards=1, features=SCHEMA)
    assert one.facts == other.facts
    parts = [one.records[key] for key in sorted(one.records)]
    assert [each for part in parts for each in part] == whole.records["train", 0]
    counted = one.plan.counts.rows
    assert {key: len(each) for key, each in one.records.items()} == counted
    check_sizes(one, shards)


@given(
    rows=ROWS,
    odd=st.lists(st.integers(1, 30), max_size=4),
    shards=st.integers(1, 6),
    bundles=st.integers(1, 4),
)
def test_rejected_rows_are_in_one_shard(
    rows: list[Row], odd: list[int], shards: int, bundles: int
) -> None:
    """Rows that do not fit share a hash with others; each is rejected once."""
    refused: list[Row] = [
        {"n": f"x{number}", "v": "a"}
        for number, many in enumerate(odd)
        for _ in range(many)
    ]
    rows = [*rows, *refused]
    with pytest.MonkeyPatch.context() as patch:
        few = functools.partial(few_hashes, values=2)
        patch.setattr(bundle, "content_hashes", few)
        one = gather([rows], num_shards=shards, features=SCHEMA)
        other = gather(divided(rows, bundles, 7), num_shards=shards, features=SCHEMA)
    assert one.facts == other.facts
    assert len(one.rejections) == len(refused)
    assert sum(map(len, one.records.values())) == len(rows) - len(refused)
    assert sum(one.plan.counts.rows.values()) == len(rows)


@pytest.mark.parametrize("bundles", [1, 3])
def test_ten_equal_rows_are_five_shards_of_two(bundles: int) -> None:
    """Cuts fall between equal rows."""
    found = gather(divided([{"v": "same"}] * 10, bundles, 1), num_shards=5)
    assert list(found.plan.counts.rows.values()) == [2] * 5
    assert [len(each) for each in found.records.values()] == [2] * 5


@pytest.mark.parametrize("distinct", [1, 3])
def test_few_rows_many_times_have_the_asked_sizes(distinct: int) -> None:
    """Arrow batches of equal rows; each of the shards has as many rows, within one."""
    texts = pa.array([f"row {number % distinct}" for number in range(12_000)])
    batches = [pa.record_batch({"v": texts})] * 25
    found = gather([batches[:20], batches[20:]], num_shards=7)
    counts = list(found.plan.counts.rows.values())
    assert sum(counts) == 300_000
    assert max(counts) - min(counts) <= 1
    assert [len(each) for each in found.records.values()] == counts


def test_one_row_among_many_others() -> None:
    """Usual rows beside one that is there very often."""
    rows = [{"n": 7, "v": "often"}] * 9_000
    rows += [{"n": number, "v": f"row {number}"} for number in range(3_000)]
    one = gather([rows], num_shards=8)
    assert gather(divided(rows, 3, 5), num_shards=8).facts == one.facts
    counts = list(one.plan.counts.rows.values())
    assert len(counts) == 8
    assert min(counts) > 1_300
    assert max(counts) < 1_700


def test_rows_of_one_key_are_divided_where_keys_may_repeat() -> None:
    """By their records; where keys must differ, rows of one hash stay together."""
    rows = [{"k": "one", "n": number % 700} for number in range(1_000)]
    found = gather([rows], key="k", duplicates="keep", num_shards=4)
    assert [len(each) for each in found.records.values()] == [250] * 4
    other = gather(divided(rows, 4, 3), key="k", duplicates="keep", num_shards=4)
    assert other.facts == found.facts
    with pytest.raises(InputError, match="'one' is given more than once"):
        gather(divided(rows, 4, 3), key="k", num_shards=4)


def test_unique_keys_of_one_hash_share_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cut falls inside a hash, for keys are compared in their shard."""

    def three(*arguments: Any, **options: Any) -> npt.NDArray[np.uint64]:
        return unit_hashes(*arguments, **options) % np.uint64(3)

    monkeypatch.setattr(bundle, "unit_hashes", three)
    rows = [{"k": f"key {number}", "n": number} for number in range(90)]
    found = gather([rows], key="k", num_shards=9)
    assert len(found.records) == 3
    assert gather(divided(rows, 4, 3), key="k", num_shards=9).facts == found.facts
    twice = [*rows, rows[17]]
    with pytest.raises(InputError, match="'key 17' is given more than once"):
        gather(divided(twice, 2, 3), key="k", num_shards=9)
    with pytest.raises(InputError, match="'key 17' is given more than once"):
        gather([twice], key="k", num_shards=9)


def test_sizes_of_files_count(tmp_path: Any) -> None:
    """Rows that name image files are cut by the bytes of the files."""
    for number in range(8):
        (tmp_path / f"{number}.jpg").write_bytes(b"x" * 10_000)
    (tmp_path / "large.jpg").write_bytes(b"x" * 40_000)
    rows = [{"image": f"{number}.jpg"} for number in range(8)]
    rows += [{"image": "large.jpg"}] * 8
    found = gather(
        [rows[::2], rows[1::2]],
        features={"image": {"kind": "image"}},
        images_root=str(tmp_path),
        num_shards=10,
    )
    counts = list(found.plan.counts.rows.values())
    assert sum(counts) == 16
    assert len(counts) == 10
    assert max(counts) <= 4


def test_usual_parts_are_not_read_again() -> None:
    """Even rows leave no large parts, with few shards and with very many."""
    bins = np.arange(BINS)
    even = Histogram(bins, np.full(BINS, 100), np.full(BINS, 10_000))
    for shards in (1, 2, 500, 5_000, BINS):
        cutting = plan_cuts(even, shards)
        assert not cutting.large
        bounds, rows = cutting.settle(())
        assert len(bounds) == shards
        assert max(rows) - min(rows) <= 100


def test_only_large_parts_are_read_again() -> None:
    """Of a part that is no target, and of a single row, nothing is to be found."""
    sizes = np.full(100, 10)
    sizes[[20, 60]] = 5_000
    counts = np.where(sizes > 10, [1 if i == 60 else 9 for i in range(100)], 1)
    cutting = plan_cuts(Histogram(np.arange(100) * 7, counts, sizes), 5)
    assert [part.low >> 50 for part in cutting.large] == [140]
    assert cutting.large[0].targets == pytest.approx((1996.0, 4192.0), abs=500)
    assert isinstance(cutting.large_bounds, Bounds)
    assert len(cutting.large_bounds) == 1


def test_even_bounds_are_all_hashes() -> None:
    """One part begins behind the end of the one before."""
    bounds = even_bounds(3)
    assert bounds.lows[0] == 0
    assert bounds.highs[-1] == 2**64 - 1
    assert (bounds.lows[1:] - bounds.highs[:-1] == 1).all()
