"""Samples of CSV files: whole, even, between records, or refused; bad files."""

import pytest

from tests.support.csv_samples import named_sample, sample
from transforms.core.infer.columns import infer_columns
from transforms.errors import MAX_MESSAGE_BYTES, InputError, SourceError
from transforms.formats.csv import sample as csv_sample
from transforms.formats.csv.header_check import naming_others


def test_small_sources_are_sampled_whole() -> None:
    """It reads every row of every file, tells blank from empty, counts bad rows."""
    found = sample(b'a,b\n1,""\n2,\n3\n', b"\xef\xbb\xbfa,b\r\n\r\n4,x", b"a,b\n")
    assert {name: column.to_pylist() for name, column in found.columns.items()} == {
        "a": ["1", "2", "4"],
        "b": ["", None, "x"],
    }
    assert (found.rows, found.unread) == (3, 1)
    assert (found.complete, found.total_rows) == (True, 4)
    assert found.sampled_bytes == 10 + 3


@pytest.mark.parametrize("data", [b'"x"\n"1",5\n"2",6\n', b"x\n1,5\n2,6\n"])
def test_names_are_given_for_a_header_that_lacks_one(data: bytes) -> None:
    """As R's write.table makes it. Both must be said; the error before says how."""
    with pytest.raises(InputError, match=r"'x'.*--columns and --header"):
        sample(data)
    with pytest.raises(InputError, match=r"has 1: 'x'.*--header"):
        sample(data, columns=("row", "x"), header=None)
    found = sample(data, columns=("row", "x"))
    assert {name: column.to_pylist() for name, column in found.columns.items()} == {
        "row": ["1", "2"],
        "x": ["5", "6"],
    }


def test_a_header_without_rows_is_sampled_as_text() -> None:
    """Nothing speaks for any other kind."""
    found = sample(b"a,b\n")
    assert found.rows == found.sampled_bytes == 0
    assert [f.kind for f in infer_columns(found.columns).features] == ["text"] * 2


ESCAPED = [r"\,", r"\"", "\\\n", r"\\", r"x\"y\,z"]


@pytest.mark.parametrize(
    ("cell", "escape"),
    [
        *((cell, "") for cell in ("x", '"x"', '"x\n"', '"x\n1,2"', '5" pipe')),
        ('"x, ""y""\r\n"', ""),
        *((cell, "\\") for cell in ESCAPED),
        *((f'"{cell}"', "\\") for cell in ESCAPED),
    ],
)
def test_large_sources_are_sampled_evenly(cell: str, escape: str) -> None:
    """Whole rows only, from all over the files, the same every time."""
    record = cell + ",{0}\n"
    data = ["".join(record.format(i) for i in range(n)) for n in (3000, 20, 5000)]
    files = [b"text,number\n" + text.encode() for text in data]
    first = sample(*files, sample_bytes=8000, escape=escape)
    again = sample(*files, sample_bytes=8000, escape=escape)
    assert first == again
    assert first.unread == 0
    assert len(set(first.columns["text"].to_pylist())) == 1
    numbers = [int(n) for n in first.columns["number"].to_pylist()]
    assert 100 < len(numbers) < 1500
    fifths = {number // 1000 for number in numbers}
    assert fifths == {0, 1, 2, 3, 4}
    assert 2000 < first.sampled_bytes <= 8000


@pytest.mark.parametrize(
    "cell", ["x" * 50, '"x"', '"x\n1,2"', '"x, ""y""\r\n"', '5" pipe']
)
@pytest.mark.parametrize("size", [40, 1000])
def test_whole_files_are_parsed_in_pieces(
    cell: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut between records, so that one text of 64 MB is never parsed at a time."""
    data = "".join(f"{number},{cell}\n" for number in range(500))
    whole = sample(b"number,text\n" + data.encode())
    monkeypatch.setattr(csv_sample, "_PARSED_BYTES", size)
    parts = sample(b"number,text\n" + data.encode())
    assert parts == whole
    assert parts.columns["number"].to_pylist() == [*map(str, range(500))]
    least = len(data) // (size + 100)
    assert whole.columns["text"].num_chunks == 1
    assert least < parts.columns["text"].num_chunks <= 500


def test_the_line_of_a_bad_character_is_told_from_any_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever piece of the file it is in."""
    monkeypatch.setattr(csv_sample, "_PARSED_BYTES", 40)
    data = b"a,b\n" + b"1,2\n" * 100 + b"3,\xb0\n" + b"4,5\n" * 100
    with pytest.raises(SourceError, match=r"1.csv, line 102: column .b. .*xb0.*--enco"):
        sample(data)


@pytest.mark.parametrize("length", [90, 300, 1500, 5000])
def test_rows_larger_than_a_place_are_sampled(length: int) -> None:
    """Where 64 places hold no whole row, fewer and larger ones are looked at."""
    record = f"{{0}},{'x' * length}\n"
    data = b"number,text\n" + "".join(record.format(i) for i in range(40)).encode()
    found = sample(data, sample_bytes=min(6400, len(data) - 1))
    numbers = [int(cell) for cell in found.columns["number"].to_pylist()]
    assert numbers == sorted(set(numbers))
    assert found.columns["text"].to_pylist() == ["x" * length] * len(numbers)
    assert 0 < found.rows == len(numbers) < 40
    assert not found.complete


def test_utf_16_is_sampled_from_its_start() -> None:
    """A piece of it would not say where characters begin."""
    data = ("a,b\n" + "".join(f"{i},한\n" for i in range(2000))).encode("utf-16")
    found = sample(data, sample_bytes=4096)
    assert found.columns["a"].to_pylist()[:3] == ["0", "1", "2"]
    assert set(found.columns["b"].to_pylist()) == {"한"}
    assert found.rows > 200
    assert sample(data).rows == 2000


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            [b"a,b\n1,2\r\n3,\xb0\xa1\n"],
            r"1.csv, line 3: column 'b' .*xb0.* not valid utf-8; .*--enco",
        ),
        (
            [b"a b\n" + b"1,2,3\n" * 9],
            "9 of 9 .* 3 fields, 1 expected; .*--de",
        ),
        ([b"a,b,c\n" + b"1;2;3\n" * 9], "1 field, 3 expected; .*--delimiter"),
        ([b"a;b\n1;2\n"], "is it ';'"),
        (
            [b"a,b\n1,2\n", b"a,c\n1,2\n"],
            "2.csv differ: 'b' only in 1.csv; 'c' only in 2",
        ),
        ([b"a,b\n1,2\n", b"a\n1\n"], "1.csv and 2.csv differ: 'b' only in 1.csv"),
        ([b"a\n1\n", b"a,b\n1,2\n"], "1.csv and 2.csv differ: 'b' only in 2.csv"),
        ([b"a,b\n1,2\n", b"b,a\n1,2\n"], "the order differs at 'b', 'a'.*--exclude"),
        ([b"a,b\n1,2\n", b""], "2.csv: no header"),
        (
            [*[b"a,b\n1,2\n"] * 70, b"", *[b"a,b\n1,2\n"] * 9, b"a\n1\n", b""],
            "3 of 82 files .* 71.csv: no header, 81.csv: other .*, 82.csv: no header",
        ),
    ],
)
def test_files_that_cannot_be_sampled_are_refused(
    files: list[bytes], message: str
) -> None:
    """With the file, the place and the option to try."""
    with pytest.raises(SourceError, match=message):
        sample(*files)


def test_invalid_bytes_far_inside_are_named_by_their_offset() -> None:
    """No line is known there."""
    data = b"a,b\n" + b"1,2\n" * 5000 + b"3,\xff\n" * 99 + b"1,2\n" * 5000
    with pytest.raises(SourceError, match=r"1.csv, byte \d+ or later: column .*xff"):
        sample(data, sample_bytes=40_000)


def test_the_note_on_line_ends_says_where() -> None:
    """Where a quote swallows lines, the note names the column, lines and file."""
    lines = ["n,text", *(f"{n},say" for n in range(400))]
    lines[50] = '48,"he said'
    lines[53] = lines[53] + '"'
    data = "\n".join(lines).encode()
    (note,) = sample(data).notes
    assert "'text'" in note
    assert "lines 51 to 54 of 1.csv" in note
    assert not sample(data.replace(b'"', b"")).notes


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
