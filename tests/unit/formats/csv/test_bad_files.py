"""Bad files among good ones: one error names them all."""

import pytest

from tests.support.csv_samples import named_sample
from transforms.errors import MAX_MESSAGE_BYTES, InputError
from transforms.formats.csv.header_check import naming_others

GOOD = b"id,v\n1,2\n3,4\n"
BAD = {
    "a.csv": (b"id;v\n1;2\n", "the header is one column, 'id;v', with ',' as the"),
    "b.csv": (b"", "no header"),
    "m.csv": (b"id,v\n1,caf\xe9\n", "line 2: column 'v' holds"),
    "z.csv": (b"id,w\n1,2\n", "other columns than most files"),
}


def said(files: dict[str, bytes]) -> str:
    """Returns the error of a folder with these files; "" for none."""
    try:
        named_sample(dict(sorted(files.items())))
    except InputError as error:
        return str(error)
    return ""


def good(count: int) -> dict[str, bytes]:
    return {f"g{number}.csv": GOOD for number in range(count)}


def test_all_of_them_are_named() -> None:
    """Wrong delimiter, no content, encoding and header, with the ways out."""
    found = said(good(5) | {name: data for name, (data, _) in BAD.items()})
    assert found.startswith("4 of 9 files do not fit the others: a.csv: ")
    for name, (_, why) in BAD.items():
        assert name in found
        assert why in found
    assert "--exclude" in found
    assert "beam-tfrecord merge" in found


@pytest.mark.parametrize("name", BAD)
def test_one_has_the_message_of_its_own(name: str) -> None:
    """What helps with this very fault is not cut off."""
    found = said(good(5) | {name: BAD[name][0]})
    assert name in found
    assert "do not fit the others" not in found


def test_where_most_files_differ_the_first_error_stays() -> None:
    """Then the job is wrong rather than the files."""
    found = said({f"{n}.csv": b"id;v\n1;2\n" for n in range(5)})
    assert "Say so with --delimiter" in found
    found = said({f"{n}.csv": f"id,{n}\n1,2\n".encode() for n in range(5)})
    assert "must have the same columns" in found


def test_many_are_counted() -> None:
    """The message stays short: some are named, and how many more there are."""
    bad = {f"{'long' * 20}{number:03}.csv": b"" for number in range(50)}
    found = said(good(10) | bad)
    assert found.startswith("50 of 60 files do not fit the others: ")
    assert "merge'." in found
    assert " and 44 more. " in found
    assert " ... " not in found.replace("long ... long", "")
    assert len(found.encode()) <= MAX_MESSAGE_BYTES


def test_a_file_that_is_gone_leaves_the_first_error() -> None:
    """A second look must not hide what the first one found."""
    first = InputError("first")

    def gone() -> tuple[str, ...]:
        raise FileNotFoundError("x")

    assert naming_others(first, [("x", gone)]) is first
