"""Placement: golden values, and that they are what the formulas say."""

import hashlib
import unicodedata
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import MASK, mixed
from transforms.core.placing import placement
from transforms.core.placing.placement import SplitRule, SplitSource
from transforms.errors import SpecError


def base(origin: str, purpose: str, seed: int) -> int:
    text = f"{purpose}\0{seed}\0{unicodedata.normalize('NFC', origin)}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def shares(**parts: str) -> SplitRule:
    return SplitRule(SplitSource.SHARES, tuple(parts), tuple(parts.values()))


def hashes(count: int, purpose: str) -> npt.NDArray[Any]:
    return placement.hash_rows("a.csv", np.arange(count), purpose=purpose, seed=0)


GOLDEN_SPLITMIX = {
    0: 0xE220A8397B1DCDAF,
    1: 0x910A2DEC89025CC1,
    MASK: 0xE4D971771B652C20,
}
GOLDEN_BASES = {
    ("a.csv", "split", 7): 0x56124A03E452D53B,
    ("a.csv", "order", 7): 0x0562F14508145B69,
    ("고양이/1.jpg", "split", 7): 0x0D92D5E4AF91368D,
    ("고양이/1.jpg", "order", 7): 0x54A53A13CB728B54,
}
GOLDEN_SPLIT_ROWS = [
    0xD77E501F730198B3,
    0xB41BB56DEEE6D5D3,
    0x0A42211DBB0FBCEB,
    0xC303B1D0C21BC56F,
    0x38312248AFD87580,
    0x43FD1ABE7DAC2BA7,
    0xB471B7AACBDEC40F,
    0x016A61C290203942,
    0x3F86F9F4E3D76331,
    0x2CF4B80EC5FE6CD5,
]
GOLDEN_ORDER_ROWS = [
    0xB783FC4406F92BBB,
    0xE968718C52B9FD3E,
    0x34BF66D6134B26F4,
    0x36A5DDCB15A26FD1,
    0xC3DD99D99388D147,
    0x082E9CDFB499BBF7,
    0x7C4D55271D3CEFE5,
    0xF16BA98FDDD49CBD,
    0x50EDF87A78CDBC1D,
    0x1E76E33421ADEA6E,
]


def test_golden_splitmix64() -> None:
    """The finaliser gives its published numbers: every dataset hangs on them."""
    values = np.array(list(GOLDEN_SPLITMIX), np.uint64)
    assert placement.splitmix64(values).tolist() == list(GOLDEN_SPLITMIX.values())
    assert [mixed(value) for value in GOLDEN_SPLITMIX] == list(GOLDEN_SPLITMIX.values())
    assert values.tolist() == list(GOLDEN_SPLITMIX), "the input stays as it was"


@pytest.mark.parametrize(("origin", "purpose", "seed"), list(GOLDEN_BASES))
def test_golden_origin_bases(origin: str, purpose: str, seed: int) -> None:
    """An origin's base is blake2b over purpose, seed and path, little-endian."""
    (found,) = placement.origin_bases([origin], purpose, seed).tolist()
    assert found == GOLDEN_BASES[origin, purpose, seed] == base(origin, purpose, seed)


@pytest.mark.parametrize(
    ("purpose", "golden"), [("split", GOLDEN_SPLIT_ROWS), ("order", GOLDEN_ORDER_ROWS)]
)
def test_golden_hash_rows(purpose: str, golden: list[int]) -> None:
    """Ten rows of one file: literal hashes, the same by plain integers."""
    assert hashes(10, purpose).tolist() == golden
    start = base("a.csv", purpose, 0)
    assert [mixed((start + row) & MASK) for row in range(10)] == golden


@given(
    st.text(max_size=20),
    st.integers(0, 2**63 - 1),
    st.sampled_from(["split", "order"]),
    st.integers(0, 2**70),
)
def test_hash_rows_is_its_formula(
    origin: str, row: int, purpose: str, seed: int
) -> None:
    """For any origin, row and seed the hash is what plain integers give."""
    (found,) = placement.hash_rows(
        origin, np.array([row]), purpose=purpose, seed=seed
    ).tolist()
    assert found == mixed((base(origin, purpose, seed) + row) & MASK)


def test_one_origin_for_each_row() -> None:
    """Rows with origins of their own hash as they do one by one."""
    origins = ["b/1.jpg", "a/2.jpg", "b/1.jpg"]
    numbers = np.array([0, 0, 5])
    found = placement.hash_rows(pa.array(origins), numbers, purpose="order", seed=3)
    single = [
        placement.hash_rows(o, np.array([n]), purpose="order", seed=3).tolist()[0]
        for o, n in zip(origins, numbers.tolist(), strict=True)
    ]
    assert found.tolist() == single


def test_normal_forms_are_one_origin() -> None:
    """A name in NFD, as macOS copies it, keeps the placement of its NFC."""
    for name in ("고양이/é.jpg", "Å/ñ.png"):
        forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
        assert forms[0] != forms[1]
        first, second = placement.origin_bases(forms, "order", 0).tolist()
        assert first == second


def test_names_that_are_no_utf8_still_hash() -> None:
    """Surrogates of undecodable names become their bytes again."""
    (found,) = placement.origin_bases(["\udcff.jpg"], "order", 0).tolist()
    digest = hashlib.blake2b(b"order\x000\x00\xff.jpg", digest_size=8).digest()
    assert found == int.from_bytes(digest, "little")


@given(st.lists(st.fractions(min_value=0).filter(bool), min_size=1, max_size=6))
def test_thresholds_rise_within_64_bits(parts: list[Fraction]) -> None:
    """Any positive shares give bounds that rise and fit, with no float between."""
    rule = shares(**{f"s{i}": str(part) for i, part in enumerate(parts)})
    bounds = rule.thresholds().tolist()
    total = sum(parts)
    exact = [sum(parts[: i + 1]) * 2**64 / total for i in range(len(parts) - 1)]
    assert bounds == [int(bound) for bound in exact]
    assert bounds == sorted(bounds)


def test_split_at_a_threshold() -> None:
    """A hash just under a bound is in the split before it, one on it in the next."""
    rule = shares(a="1/3", b="2/3")
    bound = 2**64 // 3
    keys = np.array([0, bound - 1, bound, MASK], np.uint64)
    assert placement.split_of_keys(keys, rule).tolist() == [0, 0, 1, 1]


def test_shards_follow_the_order_of_keys() -> None:
    """Shards are ranges of keys, so reading them in order is reading by key."""
    keys = np.sort(hashes(10_000, "order"))
    for shards in (1, 3, 65_536):
        assert (np.diff(placement.shard_of_keys(keys, shards)) >= 0).all()
    ends = np.array([0, 2**63 - 1, 2**63, MASK], np.uint64)
    assert placement.shard_of_keys(ends, 2).tolist() == [0, 0, 1, 1]


@given(
    st.lists(st.integers(0, 2**50), max_size=50),
    st.integers(0, 2**50),
    st.integers(1, 1000),
)
def test_positions_cut_shards_in_order(
    positions: list[int], total: int, shards: int
) -> None:
    """Without shuffling the shard number never falls and never leaves its range."""
    found = placement.shard_of_positions(
        np.array(sorted(positions), np.int64), total, shards
    )
    assert (np.diff(found) >= 0).all()
    assert all(0 <= shard < shards for shard in found.tolist())


def test_positions_cut_by_bytes() -> None:
    """Each shard gets its share of the bytes; the last one gets the places past it."""
    positions = np.array([0, 24, 25, 50, 74, 75, 99, 100, 1000])
    found = placement.shard_of_positions(positions, 100, 4)
    assert found.tolist() == [0, 0, 1, 2, 2, 3, 3, 3, 3]
    assert placement.shard_of_positions(np.array([0]), 0, 4).tolist() == [0]


def test_split_names_that_readers_take() -> None:
    """'all' means every split to TFDS; other characters end up in file names."""
    for name in ("train", "a", "A-b_9", "-", "1"):
        assert placement.check_split_name(name) == name
    for name in ("", "all", "a b", "a.b", "a/b", "훈련", "a\n", "é"):
        with pytest.raises(SpecError, match="split is named"):
            placement.check_split_name(name)


@pytest.mark.parametrize(
    ("source", "names", "parts", "by", "message"),
    [
        (SplitSource.SHARES, ("a", "a"), ("1", "1"), "", "differ in name"),
        (SplitSource.SHARES, ("a", "b"), ("1",), "", "needs a share"),
        (SplitSource.COLUMN, ("a",), ("1", "1"), "", "needs a share"),
        (SplitSource.TABLE, ("a",), ("1", "1"), "", "needs a share"),
        (SplitSource.STRATIFIED, ("a", "b"), ("1",), "label", "needs a share"),
        (SplitSource.SHARES, ("a", "b"), ("1", "0"), "", "above 0"),
        (SplitSource.SHARES, ("a", "b"), ("1", "-1/2"), "", "above 0"),
        (SplitSource.SHARES, ("a", "all"), ("1", "1"), "", "split is named"),
        (SplitSource.STRATIFIED, ("a",), ("1",), "", "feature of the classes"),
        (SplitSource.SHARES, ("a",), ("1",), "label", "feature of the classes"),
    ],
)
def test_rules_that_cannot_be(
    source: SplitSource,
    names: tuple[str, ...],
    parts: tuple[str, ...],
    by: str,
    message: str,
) -> None:
    """A rule that cannot place every row is refused when it is made."""
    with pytest.raises(SpecError, match=message):
        SplitRule(source, names, parts, stratify_by=by)
