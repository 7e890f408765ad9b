"""Faults of CSV files and other tables, from the command line, by their numbers.

The numbers are those of a catalogue of faults that are known in this field. Each is a
reject with its reason, one clear error, or survived;
`tests/program/test_bad_input.py` holds more of them in its tables.
"""

import gzip
import pathlib
import re
from typing import Any

import pyarrow as pa
import pytest

from tests.support.outputs import account, dataset, manifest, names, rejects, rows
from tests.support.runs import convert, refused
from tests.support.sources import write_files

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path
AB = [{"n": 1, "w": b"a"}, {"n": 2, "w": b"b"}]


def made(tmp_path: Folder, data: bytes | str, name: str = "t.csv") -> Folder:
    """Writes a source of one file."""
    raw = data.encode() if isinstance(data, str) else data
    return write_files(tmp_path / "s", {name: raw}) / name


def converted(
    tmp_path: Folder, data: bytes | str, *options: object
) -> list[dict[str, Any]]:
    """Converts a file and returns its records in the file's order."""
    convert(made(tmp_path, data), tmp_path / "out", "--no-shuffle", *options)
    return rows(tmp_path / "out")


def error_of(tmp_path: Folder, data: bytes | str, *options: object) -> str:
    """Converts a file in vain, with code 2, and returns the message."""
    message = refused(4, made(tmp_path, data), tmp_path / "out", *options)
    assert names(tmp_path) == ["s"]
    return message


def test_fault_091_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Folder) -> None:
    """`id` is `id` in a file that Excel has written, quoted or not."""
    assert converted(tmp_path, '\ufeff"n",w\n1,a\n2,b\n') == AB


@pytest.mark.parametrize(
    "encoding", ["utf-16", "utf-32", "utf-16-le", "utf-16-be", "utf-32-be"]
)
def test_fault_092_utf_16_and_32_are_known_or_named(
    encoding: str, tmp_path: Folder
) -> None:
    """By their mark; without one they are an error until --encoding names them."""
    data = "n,w\n1,a\n2,한\n".encode(encoding)
    wanted = [AB[0], {"n": 2, "w": "한".encode()}]
    if encoding in ("utf-16", "utf-32"):
        assert converted(tmp_path, data) == wanted
        return
    assert "--encoding" in error_of(tmp_path, data)
    convert(tmp_path / "s", tmp_path / "out", "--no-shuffle", "--encoding", encoding)
    assert rows(tmp_path / "out") == wanted


@pytest.mark.parametrize("encoding", ["cp949", "euc-kr", "latin-1"])
def test_fault_093_other_encodings_are_named_by_line_and_byte(
    encoding: str, tmp_path: Folder
) -> None:
    """File, line, byte and the option to use; with it the text arrives as UTF-8."""
    word = "café" if encoding == "latin-1" else "고양이"
    data = f"n,w\n1,a\n2,{word}\n".encode(encoding)
    message = error_of(tmp_path, data)
    bad = next(i for i, byte in enumerate(data) if byte > 127)
    for part in ("t.csv", "line 3", f"byte {bad}", f"{data[bad]:#04x}", "--encoding"):
        assert part in message
    convert(tmp_path / "s", tmp_path / "out", "--no-shuffle", "--encoding", encoding)
    assert rows(tmp_path / "out")[1]["w"] == word.encode()


def test_fault_093_bytes_that_are_no_text_beyond_the_sample_are_rejects(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where planning did not look, a row is lost and named, not the run."""
    from transforms.formats.csv import reader as csv_reader

    monkeypatch.setattr(csv_reader, "_SAMPLE_BYTES", 1)
    monkeypatch.setattr(csv_reader, "_LEAST_SAMPLE_BYTES", 1_000)
    lines = [b"n,w"] + [b"%d,x" % n for n in range(5_000)] + [b"5000,caf\xe9"]
    lines += [b"5001,\xff,too many"]
    source = made(tmp_path, gzip.compress(b"\n".join(lines)), "t.csv.gz")
    convert(source, tmp_path / "out")
    first, second = rejects(tmp_path / "out")
    assert (first["row"], first["reason"]) == (5_001, "invalid_encoding")
    assert "column 'w' holds 'caf\\xe9'" in first["message"]
    assert (second["row"], second["reason"]) == (5_002, "field_count")


@pytest.mark.parametrize(
    "text",
    [
        "n,w\r\n1,a\r\n2,b\r\n",
        "n,w\r1,a\r2,b\r",
        "n,w\r\n1,a\r2,b\n",
        "n,w\n1,a\n2,b",
        "n,w\r\r\n1,a\r\r\n2,b\r\r\n",
    ],
    ids=["CRLF", "CR", "mixed", "no last one", "CRCRLF"],
)
def test_fault_094_every_line_end_gives_the_same_rows(
    text: str, tmp_path: Folder
) -> None:
    """CRLF, a lone CR, a mixture, none at the end."""
    assert converted(tmp_path, text) == AB


@pytest.mark.parametrize("text", ["n,w\n1,a\n2,b\n\x1a", "n,w\r\n1,a\r\n\x1a\r\n2,b"])
def test_fault_094_a_ctrl_z_is_skipped_and_counted(text: str, tmp_path: Folder) -> None:
    """What DOS ends a text with is no row; it is in the account."""
    assert converted(tmp_path, text) == AB
    assert account(tmp_path / "out")["skipped"] == {"end_mark": 1}
    assert account(tmp_path / "out")["read"] == 3


def test_fault_095_newlines_in_quotes_are_one_row(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 rows stay 20,000 in blocks that are cut everywhere."""
    from beam_pipeline.planning import tables as plan_tables

    monkeypatch.setattr(plan_tables, "_LEAST_BLOCK_BYTES", 100_000)
    text = "".join(f'{n},"line one\nline ""two"", {n}"\n' for n in range(20_000))
    found = converted(tmp_path, "n,w\n" + text)
    assert [row["n"] for row in found] == list(range(20_000))
    assert found[7]["w"] == b'line one\nline "two", 7'


def test_fault_096_an_unclosed_quote_names_the_line_that_opens_it(
    tmp_path: Folder,
) -> None:
    """Not the last line, where it shows; nothing is written."""
    message = error_of(tmp_path, 'n,w\n1,"a\nb"\n2,"c\n' + "3,d\n" * 1_000)
    assert "line 4" in message
    assert "t.csv" in message


def test_fault_096_the_rest_of_a_file_does_not_become_one_field(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record longer than any honest one is an error with its line, soon."""
    from transforms.formats.csv import blocks as csv_blocks
    from transforms.formats.csv import header as csv_header

    for module in (csv_blocks, csv_header):
        monkeypatch.setattr(module, "MAX_RECORD_BYTES", 1 << 20)
    text = 'n,w\n1,a\n2,"c\n' + "3,d\n" * 600_000 + '4,"e\n'
    message = error_of(tmp_path, text)
    assert "line 3" in message
    assert "longer than 1 MiB" in message


def test_fault_097_too_few_and_too_many_fields_are_rejects(tmp_path: Folder) -> None:
    """Each names its row, its line and both numbers; the others are written."""
    text = "n,w\n" + "1,a\n" * 300 + "2\n3,b,c\n" + "4,d\n"
    assert len(converted(tmp_path, text)) == 301
    assert [
        (found["row"], found["line"], found["reason"], found["message"])
        for found in rejects(tmp_path / "out")
    ] == [
        (301, 302, "field_count", "row has 1 field, 2 expected"),
        (302, 303, "field_count", "row has 3 fields, 2 expected"),
    ]


def test_fault_098_nul_bytes_are_kept_in_text_and_refused_in_numbers(
    tmp_path: Folder,
) -> None:
    """A NUL is a character like any: no cell ends at it."""
    text = "n,w\n" + "1,a\n" * 300 + '2,\0b\0\0\n3\0,c\n4,"\0"\n'
    found = converted(tmp_path, text)
    assert [row["w"] for row in found[300:]] == [b"\0b\0\0", b"\0"]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["reason"]) == (302, "not_an_integer")
    assert "column 'n' holds '3\\x00'" in reject["message"]


def test_fault_099_a_long_field_is_whole(tmp_path: Folder) -> None:
    """Beyond 131,072 characters, where Python's csv module stops."""
    long = 'x"\n,' * 500_000
    quoted = long.replace('"', '""')
    found = converted(tmp_path, f'n,w\n1,"{quoted}"\n2,b\n')
    assert found == [{"n": 1, "w": long.encode()}, AB[1]]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("a,b,a", ("'a'", "columns 1, 3")),
        ("a,,c", ("column 2",)),
        (",,", ("column 1, 2, 3",)),
        ('a,"",a', ("column 2",)),
    ],
)
def test_fault_100_duplicate_and_empty_names_are_errors(
    header: str, words: tuple[str, ...], tmp_path: Folder
) -> None:
    """Each is named with its places; no column is renamed or dropped."""
    message = error_of(tmp_path, f"{header}\n1,2,3\n")
    for word in ("t.csv", *words):
        assert word in message


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("data", [b"n,w\n", b"\xef\xbb\xbfn,w\r\n\r\n", b"n,w"])
def test_fault_101_a_header_alone_is_an_empty_dataset_if_allowed(
    data: bytes, suffix: str, tmp_path: Folder
) -> None:
    """An error by default, with the option; with it, a dataset of no record."""
    stored = gzip.compress(data) if suffix else data
    source = made(tmp_path, stored, f"t.csv{suffix}")
    assert "--allow-empty" in refused(4, source, tmp_path / "out")
    convert(source, tmp_path / "out", "--allow-empty")
    assert account(tmp_path / "out")["written"] == 0
    assert account(tmp_path / "out")["read"] == 0


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_fault_101_an_empty_file_has_no_header(suffix: str, tmp_path: Folder) -> None:
    """That is an error even where an empty dataset is allowed."""
    stored = gzip.compress(b"") if suffix else b""
    source = made(tmp_path, stored, f"t.csv{suffix}")
    message = refused(4, source, tmp_path / "out", "--allow-empty")
    assert "no header" in message


def test_fault_102_an_integer_outside_int64_is_a_reject(tmp_path: Folder) -> None:
    """It is named; no other row loses a digit to it."""
    large = 2**63 - 993
    text = "n,w\n" + f"{large},a\n" * 300 + f"{2**63},b\n{-(2**63) - 1},c\n"
    found = converted(tmp_path, text)
    assert {row["n"] for row in found} == {large}
    assert [
        (reject["row"], reject["reason"]) for reject in rejects(tmp_path / "out")
    ] == [(301, "out_of_range"), (302, "out_of_range")]
    assert f"column 'n' holds '{2**63}'" in rejects(tmp_path / "out")[0]["message"]


def test_fault_103_integers_above_2_53_are_exact_beside_blanks(
    tmp_path: Folder,
) -> None:
    """A blank is a missing key, and makes no float of its column."""
    found = converted(tmp_path, f"n,w\n{2**53 + 1},a\n,b\nNA,c\n{-(2**53) - 1},d\n")
    assert [row.get("n") for row in found] == [2**53 + 1, None, None, -(2**53) - 1]


def test_fault_104_leading_zeros_are_kept(tmp_path: Folder) -> None:
    """ZIP codes and phone numbers are text, unless the schema says otherwise."""
    found = converted(tmp_path, "zip,phone\n00501,+4930123\n10115,0301\n")
    assert [row["zip"] for row in found] == [b"00501", b"10115"]
    assert [row["phone"] for row in found] == [b"+4930123", b"0301"]


def test_fault_104_a_leading_zero_in_a_declared_integer_is_a_reject(
    tmp_path: Folder,
) -> None:
    """It is not dropped silently."""
    spec = tmp_path / "spec.yaml"
    spec.write_text("features: {zip: {kind: int64}}\n")
    data = "zip,w\n" + "1,a\n" * 300 + "007,b\n"
    assert len(converted(tmp_path, data, "--spec", spec)) == 300
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["reason"]) == (301, "not_an_integer")


def test_fault_105_words_for_nothing_are_class_names(tmp_path: Folder) -> None:
    """`NA` is Namibia, `None` a class: a label column of them stays text."""
    words = ["NA", "None", "null", "nan", "N/A"]
    data = "n,label\n" + "".join(f"1,{word}\n" for word in words)
    found = converted(tmp_path, data, "--label-column", "label")
    (split,) = dataset(tmp_path / "out")["splits"]
    assert split["classes"]["label"] == dict.fromkeys(sorted(words), 1)
    assert len({row["label"] for row in found}) == 5


def test_fault_106_missing_is_neither_nan_nor_zero(tmp_path: Folder) -> None:
    """A blank leaves the key out; nan and the infinities are values."""
    found = converted(tmp_path, "f,w\n0.5,a\n,b\nnan,c\ninf,d\n-inf,e\n0.0,f\n")
    values = [row.get("f") for row in found]
    assert values[:2] == [0.5, None]
    assert values[2] != values[2]
    assert values[3:] == [float("inf"), float("-inf"), 0.0]


def test_fault_106_missing_values_are_filled_or_refused_on_request(
    tmp_path: Folder,
) -> None:
    """Per column, in the spec."""
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "features:\n  f: {missing: fill, fill: -1}\n  w: {missing: reject}\n"
        "max_reject_rate: 0.5\n"
    )
    assert converted(tmp_path, "f,w\n0.5,a\n,b\n2.5,\n", "--spec", spec) == [
        {"f": 0.5, "w": b"a"},
        {"f": -1.0, "w": b"b"},
    ]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["reason"]) == (3, "missing_value")


def test_fault_107_a_number_beyond_float32_is_a_reject(tmp_path: Folder) -> None:
    """It does not become infinite; one too small becomes 0, as float32 has it."""
    data = "f,w\n" + "0.5,a\n" * 300 + "1e39,b\n-1e39,c\n1e-50,d\n"
    assert converted(tmp_path, data)[300:] == [{"f": 0.0, "w": b"d"}]
    (note,) = manifest(tmp_path / "out")["run"]["notes"]
    assert "1 value of 'f' became 0" in note
    assert [(found["row"], found["reason"]) for found in rejects(tmp_path / "out")] == [
        (301, "out_of_range"),
        (302, "out_of_range"),
    ]


def test_fault_107_a_number_too_small_is_counted_and_named(tmp_path: Folder) -> None:
    """By column, with one example, over all files; other zeros do not count."""
    files = {
        "b.csv": "f,g\n1e-50,0\n0,0.0\n0e-99,1\n",
        "a.csv": "f,g\n0.5,0\n-1E-46,1e-45\n8e-46,0\n,-0\n",
    }
    source = write_files(tmp_path / "s", {k: v.encode() for k, v in files.items()})
    run = convert(source, tmp_path / "out", "--no-shuffle")
    found = [row["f"] for row in rows(tmp_path / "out") if "f" in row]
    assert found == [0.5, -0.0, 1.401298464324817e-45, 0.0, 0.0, 0.0]
    files, note = manifest(tmp_path / "out")["run"]["notes"]
    assert "a.csv (4), b.csv (3)" in files
    assert note.startswith("2 values of 'f' became 0")
    assert note.endswith("'-1E-46' in row 2 of a.csv")
    assert note in run.out


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ('"1,5"', bytes),
        ('"1,000"', bytes),
        ("0x10", bytes),
        ("1_000", bytes),
        ("YES", bytes),
        ("1e3", float),
        ("true", int),
        ("FALSE", int),
    ],
)
def test_fault_108_only_plain_numbers_and_bools_are_typed(
    cells: str, kind: type, tmp_path: Folder
) -> None:
    """Decimal commas, thousands, hexadecimal and yes are text unless declared."""
    (row, _) = converted(tmp_path, f"x,n\n{cells},1\n{cells},2\n")
    cell = row["x"]
    assert type(cell) is kind
    if isinstance(cell, bytes):
        assert cell.decode() == cells.strip('"')


@pytest.mark.parametrize("infer", ["sample", "full"])
@pytest.mark.parametrize("late", ["word", str(2**63)])
def test_fault_109_a_late_misfit_is_a_reject_that_names_it(
    late: str, infer: str, tmp_path: Folder
) -> None:
    """Row, column and value; the 5,000 before it stay exact integers."""
    first = 2**53 + 1
    data = "n,w\n" + "".join(f"{first + n},a\n" for n in range(5_000)) + f"{late},b\n"
    found = converted(tmp_path, data, "--infer", infer)
    assert [row["n"] for row in found] == list(range(first, first + 5_000))
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["line"]) == (5_001, 5_002)
    assert f"column 'n' holds '{late}'" in reject["message"]


def test_fault_109_a_kind_beyond_the_sample_is_found_in_a_full_pass(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a sample takes for integers is text when everything is read."""
    from transforms.formats.csv import reader as csv_reader

    monkeypatch.setattr(csv_reader, "_SAMPLE_BYTES", 1)
    monkeypatch.setattr(csv_reader, "_LEAST_SAMPLE_BYTES", 1_000)
    text = "n,w\n" + "1,a\n" * 2_000 + "word,b\n" * 2_000
    source = made(tmp_path, gzip.compress(text.encode()), "t.csv.gz")
    convert(source, tmp_path / "full", "--infer", "full")
    assert {row["n"] for row in rows(tmp_path / "full")} == {b"1", b"word"}
    convert(source, tmp_path / "sampled", "--max-reject-rate", 0.5)
    assert {row["n"] for row in rows(tmp_path / "sampled")} == {1}
    found = rejects(tmp_path / "sampled")
    assert len(found) == 2_000
    assert found[0]["row"] == 2_001
    assert "column 'n' holds 'word'" in found[0]["message"]


def test_fault_110_dates_are_text_unless_asked(tmp_path: Folder) -> None:
    """No format is guessed, no time zone added; declared, they are numbers."""
    data = "d,n\n2024-01-31 00:00:00,1\n1970-01-02 00:00:00,2\n"
    assert converted(tmp_path, data)[0]["d"] == b"2024-01-31 00:00:00"
    spec = tmp_path / "spec.yaml"
    spec.write_text("features: {d: {kind: timestamp, unit: s}}\nshuffle: false\n")
    convert(tmp_path / "s" / "t.csv", tmp_path / "other", "--spec", spec)
    assert [row["d"] for row in rows(tmp_path / "other")] == [1_706_659_200, 86_400]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("a;b;c\n1;2;3\n", (), ("one column", "';'", "--delimiter")),
        ("a\tb\n1\t2\n", (), (r"'\t'", "--delimiter")),
        ("a,b\n1,2\n", ("--delimiter", ";"), ("','", "--delimiter")),
        ("a\n" + "1,2,3\n" * 9, (), ("most of them 3", "--delimiter")),
        ("'a','b'\n'1,5','2'\n", (), ("--quote",)),
        ('"a","b"\n"1,5","2"\n', ("--quote", "'"), ("--quote",)),
    ],
)
def test_fault_111_a_wrong_delimiter_or_quote_is_an_error(
    text: str, options: tuple[str, ...], words: tuple[str, ...], tmp_path: Folder
) -> None:
    """The message says what was found and which option helps."""
    message = error_of(tmp_path, text, *options)
    for word in words:
        assert word in message


def test_fault_111_every_dialect_is_read_when_it_is_named(tmp_path: Folder) -> None:
    """Delimiter, quote and escape, from the command line; .tsv by its name."""
    data = "n;w\n1;'a;\\'b'\n2;b\\;\n"
    options = ("--delimiter", ";", "--quote", "'", "--escape", "\\")
    found = converted(tmp_path, data, *options)
    assert [row["w"] for row in found] == [b"a;'b", b"b;"]
    source = made(tmp_path, "n\tw\n1\ta\n2\tb\n", "t.tsv")
    convert(source, tmp_path / "other", "--no-shuffle")
    assert rows(tmp_path / "other") == AB


def test_fault_112_blank_lines_are_no_rows_and_count_as_lines(
    tmp_path: Folder,
) -> None:
    """Row numbers pass over them, line numbers do not."""
    text = "\n\nn,w\n\n" + "1,a\n\r\n" * 200 + "x,b\n"
    assert len(converted(tmp_path, text)) == 200
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["line"]) == (201, 405)


def test_fault_112_comment_lines_are_records_like_any(tmp_path: Folder) -> None:
    """No dialect has comments: what does not fit is a reject, what fits is a row."""
    text = "n,w\n" + "1,a\n" * 300 + "# a comment\n# one, more\n"
    assert len(converted(tmp_path, text)) == 300
    assert [found["reason"] for found in rejects(tmp_path / "out")] == [
        "field_count",
        "not_an_integer",
    ]


@pytest.mark.parametrize("joined", ["n,w\n", '"n","w"\r\n', "\ufeffn,w\n"])
@pytest.mark.parametrize("texts", [False, True])
def test_fault_112_a_repeated_header_is_skipped_and_counted(
    joined: str, texts: bool, tmp_path: Folder
) -> None:
    """In tables of numbers and of nothing but text; numbers of rows stay."""
    one = "x1,a\n" if texts else "1,a\n"
    text = "n,w\n" + one * 150 + joined + one * 150 + "1,a,b\n"
    run = convert(made(tmp_path, text), tmp_path / "out")
    assert len(rows(tmp_path / "out")) == 300
    found = account(tmp_path / "out")
    assert found["skipped"] == {"repeated_header": 1}
    assert found["read"] == 302
    assert [reject["row"] for reject in rejects(tmp_path / "out")] == [302]
    assert "repeated_header" in run.out


def test_fault_113_spaces_are_kept(tmp_path: Folder) -> None:
    """In names, in labels and in text; around numbers they mean nothing."""
    data = " n , label\n 1,cat\n2 , cat \n"
    found = converted(tmp_path, data, "--label-column", " label")
    assert [row[" n "] for row in found] == [1, 2]
    (split,) = dataset(tmp_path / "out")["splits"]
    assert split["classes"] == {" label": {" cat ": 1, "cat": 1}}


def test_fault_113_spaces_in_names_and_labels_are_reported(tmp_path: Folder) -> None:
    """The notes name the columns and the classes, on the screen too."""
    data = " n ,label,\u00a0w\n1,cat,a\n2, cat ,b\n"
    source = made(tmp_path, data)
    run = convert(source, tmp_path / "out", "--label-column", "label")
    notes = manifest(tmp_path / "out")["run"]["notes"]
    (columns,) = [note for note in notes if "column names" in note]
    assert "2 column names begin or end with a space: ' n ', " in columns
    assert "--trim" in columns
    (classes,) = [note for note in notes if "begin or end" in note and note != columns]
    assert "' cat '" in classes
    assert columns in run.out
    convert(made(tmp_path, "n,w\n1, a\n"), tmp_path / "plain")
    assert manifest(tmp_path / "plain")["run"]["notes"] == []


@pytest.mark.parametrize("how", ["flag", "spec"])
def test_fault_113_spaces_are_trimmed_on_request(how: str, tmp_path: Folder) -> None:
    """From names and cells, quoted or not; a cell of nothing else is missing."""
    data = ' n , label \n 1,cat\n2 ,"\u3000cat "\n3,  \n'
    options: tuple[object, ...] = ("--trim",)
    if how == "spec":
        (tmp_path / "s").mkdir()
        (tmp_path / "s/spec.yaml").write_text("trim: true\n")
        options = ("--spec", tmp_path / "s/spec.yaml")
    found = converted(tmp_path, data, *options, "--label-column", "label")
    assert found == [{"n": 1, "label": 0}, {"n": 2, "label": 0}, {"n": 3}]
    (note,) = manifest(tmp_path / "out")["run"]["notes"]
    assert "1 has no 'label'" in note
    assert dataset(tmp_path / "out")["settings"]["trim"] is True


def test_fault_113_trimming_holds_beside_bad_bytes_and_repeated_headers(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a piece is read as bytes, and where files were joined."""
    from transforms.formats.csv import reader as csv_reader

    monkeypatch.setattr(csv_reader, "_SAMPLE_BYTES", 1)
    monkeypatch.setattr(csv_reader, "_LEAST_SAMPLE_BYTES", 1_000)
    data = b" n , w \n" + b"1, a \n" * 2_000 + b" n , w \nn,w\n"
    data += b"2, \xff \n3,\xc2\xa0b\xe3\x80\x80\n4,\t\n"
    source = made(tmp_path, gzip.compress(data), "t.csv.gz")
    convert(source, tmp_path / "out", "--trim", "--no-shuffle")
    found = rows(tmp_path / "out")
    assert found[0] == {"n": 1, "w": b"a"}
    assert found[2_000:] == [{"n": 3, "w": b"b"}, {"n": 4}]
    assert account(tmp_path / "out")["skipped"] == {"repeated_header": 2}
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["reason"]) == (2_003, "invalid_encoding")


@pytest.mark.parametrize(
    ("text", "word"),
    [("a, a \n1,2\n", "'a' is the name of"), ("a,  \n1,2\n", "column 2")],
)
def test_fault_113_names_that_trimming_makes_unusable_are_errors(
    text: str, word: str, tmp_path: Folder
) -> None:
    """Two of one name, or none; and JSON is not trimmed."""
    assert word in error_of(tmp_path, text, "--trim")
    source = made(tmp_path, '{"a": 1}\n', "t.jsonl")
    assert "trim is not for JSON lines" in refused(
        2, source, tmp_path / "out", "--trim"
    )


def test_fault_114_tables_need_neither_pandas_nor_beams_readers() -> None:
    """Their versions drift apart; no code here imports either."""
    root = pathlib.Path(__file__).parents[2]
    paths = [*root.glob("transforms/**/*.py"), *root.glob("beam_pipeline/*.py")]
    assert len(paths) > 50
    for path in paths:
        code = path.read_text(encoding="utf-8")
        found = re.search(
            r"apache_beam\.dataframe|ReadFromCsv|^ *import pandas", code, re.M
        )
        assert found is None, path


# --- several files -----------------------------------------------------------------


def test_a_folder_of_plain_and_compressed_files_is_one_table(tmp_path: Folder) -> None:
    """By the name of each: .csv, .csv.gz, .csv.zst and .tsv of one schema."""
    files = {
        "1.csv": b"n,w\n1,a\n",
        "2.csv.gz": gzip.compress(b"n,w\n2,b\n") + gzip.compress(b"3,c\n"),
        "3.csv.zst": pa.compress(b"n,w\n4,d\n", codec="zstd", asbytes=True),
        "4.tsv": b"n\tw\n5\te\n",
    }
    convert(write_files(tmp_path / "s", files), tmp_path / "out", "--no-shuffle")
    assert [(row["n"], row["w"]) for row in rows(tmp_path / "out")] == list(
        zip(range(1, 6), [b"a", b"b", b"c", b"d", b"e"], strict=True)
    )
    convert(tmp_path / "s", tmp_path / "few", "--no-shuffle", "--limit", 3)
    assert [row["n"] for row in rows(tmp_path / "few")] == [1, 2, 3]


def test_a_truncated_file_is_an_error_and_nothing_is_written(tmp_path: Folder) -> None:
    """Planning may not have seen its end; reading does."""
    text = "n,w\n" + "".join(f"{n},{n * 7919 % 10007}\n" for n in range(9_000))
    data = gzip.compress(text.encode())
    source = made(tmp_path, data[: len(data) // 2], "t.csv.gz")
    message = refused(4, source, tmp_path / "out")
    assert "t.csv.gz" in message
    assert "ends early" in message
    assert names(tmp_path) == ["s"]


def test_drift_between_files_names_both_and_the_columns(tmp_path: Folder) -> None:
    """A .csv and a .csv.gz too."""
    files = {"1.csv": b"n,w\n1,a\n", "2.csv.gz": gzip.compress(b"n,v\n2,b\n")}
    source = write_files(tmp_path / "s", files)
    message = refused(4, source, tmp_path / "out")
    for word in ("1.csv", "2.csv.gz", "'w'", "'v'"):
        assert word in message
