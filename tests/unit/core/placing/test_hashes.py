"""Hashes of rows: golden values, and that they are what the formulas say."""

import hashlib
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.placing import MASK, mixed
from transforms.core.placing import hashes


def base(origin: str, purpose: str, seed: int) -> int:
    text = f"{purpose}\0{seed}\0{unicodedata.normalize('NFC', origin)}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def row_hashes(count: int, purpose: str) -> npt.NDArray[Any]:
    return hashes.hash_rows("a.csv", np.arange(count), purpose=purpose, seed=0)


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
    assert hashes.splitmix64(values).tolist() == list(GOLDEN_SPLITMIX.values())
    assert [mixed(value) for value in GOLDEN_SPLITMIX] == list(GOLDEN_SPLITMIX.values())
    assert values.tolist() == list(GOLDEN_SPLITMIX), "the input stays as it was"


@pytest.mark.parametrize(("origin", "purpose", "seed"), list(GOLDEN_BASES))
def test_golden_origin_bases(origin: str, purpose: str, seed: int) -> None:
    """An origin's base is blake2b over purpose, seed and path, little-endian."""
    (found,) = hashes.origin_bases([origin], purpose, seed).tolist()
    assert found == GOLDEN_BASES[origin, purpose, seed] == base(origin, purpose, seed)


@pytest.mark.parametrize(
    ("purpose", "golden"), [("split", GOLDEN_SPLIT_ROWS), ("order", GOLDEN_ORDER_ROWS)]
)
def test_golden_hash_rows(purpose: str, golden: list[int]) -> None:
    """Ten rows of one file: literal hashes, the same by plain integers."""
    assert row_hashes(10, purpose).tolist() == golden
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
    (found,) = hashes.hash_rows(
        origin, np.array([row]), purpose=purpose, seed=seed
    ).tolist()
    assert found == mixed((base(origin, purpose, seed) + row) & MASK)


def test_one_origin_for_each_row() -> None:
    """Rows with origins of their own hash as they do one by one."""
    origins = ["b/1.jpg", "a/2.jpg", "b/1.jpg"]
    numbers = np.array([0, 0, 5])
    found = hashes.hash_rows(pa.array(origins), numbers, purpose="order", seed=3)
    single = [
        hashes.hash_rows(o, np.array([n]), purpose="order", seed=3).tolist()[0]
        for o, n in zip(origins, numbers.tolist(), strict=True)
    ]
    assert found.tolist() == single


def test_normal_forms_are_one_origin() -> None:
    """A name in NFD, as macOS copies it, keeps the placement of its NFC."""
    for name in ("고양이/é.jpg", "Å/ñ.png"):
        forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
        assert forms[0] != forms[1]
        first, second = hashes.origin_bases(forms, "order", 0).tolist()
        assert first == second


def test_names_that_are_no_utf8_still_hash() -> None:
    """Surrogates of undecodable names become their bytes again."""
    (found,) = hashes.origin_bases(["\udcff.jpg"], "order", 0).tolist()
    digest = hashlib.blake2b(b"order\x000\x00\xff.jpg", digest_size=8).digest()
    assert found == int.from_bytes(digest, "little")
