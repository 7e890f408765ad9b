"""The exception tree: exit codes, bounded messages, and the way between processes."""

import inspect
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms import errors
from transforms.errors import MAX_MESSAGE_BYTES, BeamTFRecordError, bounded

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.BeamTFRecordError)
]
EXIT_CODES = {
    "BeamTFRecordError": 1,
    "UsageError": 2,
    "SpecError": 2,
    "SourceError": 2,
    "InputError": 4,
    "TargetError": 2,
    "BusyError": 5,
    "RejectLimitError": 3,
    "RecordCountError": 3,
    "DamageError": 1,
    "TFRecordError": 1,
    "ExampleError": 1,
    "RecordKindError": 4,
    "EncodingError": 1,
    "StorageError": 1,
    "WorkerError": 1,
    "ConservationError": 1,
    "CommitError": 1,
    "RaceError": 5,
}


def test_exit_codes() -> None:
    """Every type has the exit code that the command line promises."""
    assert {kind.__name__: kind.exit_code for kind in ALL} == EXIT_CODES


@pytest.mark.parametrize("kind", ALL)
def test_pickling(kind: type[BeamTFRecordError]) -> None:
    """A worker's error arrives as it was raised."""
    back = pickle.loads(pickle.dumps(kind("what, 고양이, where")))
    assert type(back) is kind
    assert str(back) == "what, 고양이, where"


def test_pickling_keeps_where_the_damage_is() -> None:
    """Path, record, offset and kind survive as well."""
    error = errors.TFRecordError("x", path="p", record=3, offset=9, kind="truncated")
    back = pickle.loads(pickle.dumps(error))
    assert (back.path, back.record, back.offset, back.kind) == ("p", 3, 9, "truncated")


@pytest.mark.parametrize("kind", ALL)
def test_messages_are_short(kind: type[BeamTFRecordError]) -> None:
    """A message of megabytes keeps its beginning and its end, in one line of 1 KiB."""
    message = str(kind("begin " + "값\n" * 1_000_000 + " end"))
    assert len(message.encode()) <= MAX_MESSAGE_BYTES == 1024
    assert len(message.encode()) > 1_000
    assert message.startswith("begin ")
    assert message.endswith(" end")
    assert " ... " in message
    assert "\n" not in message


@given(st.text(), st.integers(16, 200))
def test_bounded_is_within_its_limit(text: str, limit: int) -> None:
    """Any text comes out as whole characters in at most the bytes asked for."""
    found = bounded(text * 5, limit)
    assert len(found.encode()) <= limit
    if len((text * 5).encode()) <= limit:
        assert found == text * 5


@pytest.mark.parametrize("size", [1023, 1024, 1025])
def test_bounded_at_the_limit(size: int) -> None:
    """1,024 bytes stay unchanged, and one more is cut."""
    assert (bounded("x" * size) == "x" * size) is (size <= 1024)


@pytest.mark.parametrize(
    ("name", "names", "end"),
    [
        ("spcies", ["island", "species"], "; the nearest name is 'species'"),
        ("PRICE", ["id", "price"], "; the nearest name is 'price'"),
        ("zzz", ["a", "b"], "; known names are 'a', 'b'"),
        ("zzz", [f"c{n}" for n in range(3000)], "'c7' and 2,992 more"),
        ("zzz", ["x" * 5000], f"; known names are '{'x' * 60}'"),
        ("", ["a"], "; known names are 'a'"),
        ("a", [], ""),
    ],
)
def test_nearest_names(name: str, names: list[str], end: str) -> None:
    """A name that was meant is named; where none resembles it, some that exist."""
    assert errors.nearest(name, names).endswith(end)
    assert errors.nearest(name, names).startswith("; " if end else "")


def test_names_that_are_no_utf8_can_be_printed() -> None:
    """The surrogates of an undecodable name are escaped; printing cannot fail."""
    assert str(errors.SourceError("\udcff.jpg")) == r"\udcff.jpg"
