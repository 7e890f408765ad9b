"""Settings of the C library save time; without them the dataset is the same."""

import ctypes
import pathlib
from collections.abc import Iterator

import pytest

from beam_pipeline import sample
from tests.support.outputs import contents
from tests.support.runs import convert
from transforms.shards.allocation import keep_freed_memory


@pytest.fixture(autouse=True)
def _asked_again() -> Iterator[None]:
    """Lets each test ask the C library, which a process does once."""
    keep_freed_memory.cache_clear()
    yield
    keep_freed_memory.cache_clear()


def test_settings_are_taken_where_the_library_is_glibc() -> None:
    """glibc takes all of them; no other library is asked."""
    is_glibc = hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
    assert keep_freed_memory() is is_glibc


def test_conversion_without_the_settings(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a library that lacks them, as on macOS and Alpine, the files are equal."""
    sample.write_photos(tmp_path / "in")
    convert(tmp_path / "in", tmp_path / "with" / "out", "--workers", 1)
    keep_freed_memory.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    convert(tmp_path / "in", tmp_path / "without" / "out", "--workers", 1)
    assert keep_freed_memory() is False
    assert contents(tmp_path / "with" / "out") == contents(tmp_path / "without" / "out")
