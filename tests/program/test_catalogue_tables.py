"""Faults of CSV files that only a command can show, by their numbers.

The numbers are those of a catalogue of faults that are known in this field. What a row,
a header or a cell is taken for is tested in `tests/unit/formats/csv/`,
`tests/unit/core/rows/` and `tests/unit/core/infer/`; rejects and empty tables in
`tests/program/test_convert_rejects.py` and `tests/program/test_convert_options.py`.
"""

import gzip
import pathlib
from typing import Any

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
    """Converts a file in vain, with code 4, and returns the message."""
    message = refused(4, made(tmp_path, data), tmp_path / "out", *options)
    assert names(tmp_path) == ["s"]
    return message


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-32-be"])
def test_fault_092_utf_16_and_32_without_a_mark_are_named(
    encoding: str, tmp_path: Folder
) -> None:
    """Without a mark they are an error that names --encoding, which reads them."""
    data = "n,w\n1,a\n2,한\n".encode(encoding)
    assert "--encoding" in error_of(tmp_path, data)
    convert(tmp_path / "s", tmp_path / "out", "--no-shuffle", "--encoding", encoding)
    assert rows(tmp_path / "out") == [AB[0], {"n": 2, "w": "한".encode()}]


def test_fault_098_nul_bytes_are_kept_in_text_and_refused_in_numbers(
    tmp_path: Folder,
) -> None:
    """A NUL is a character like any: no cell ends at it."""
    text = "n,w\n" + "1,a\n" * 300 + '2,\0b\0\0\n3\0,c\n4,"\0"\n'
    found = converted(tmp_path, text)
    assert [row["w"] for row in found[300:]] == [b"\0b\0\0", b"\0"]
    (reject,) = rejects(tmp_path / "out")
    assert (reject["row"], reject["reason"]) == (302, "not_an_integer")
    assert r"'3\x00'" in reject["message"]


def test_fault_101_a_compressed_header_alone(tmp_path: Folder) -> None:
    """A .gz of a mark and a header is exit code 4, and empty with --min-records 0.

    Plain files are in `test_convert_options`; of compressed ones no row is counted
    when the job is planned.
    """
    data = gzip.compress(b"\xef\xbb\xbfn,w\r\n\r\n")
    source = made(tmp_path, data, "t.csv.gz")
    assert "--min-records 0" in refused(4, source, tmp_path / "out")
    convert(source, tmp_path / "out", "--min-records=0")
    written = account(tmp_path / "out")
    assert (written["read"], written["written"]) == (0, 0)


def test_fault_107_a_number_too_small_is_counted_and_named(tmp_path: Folder) -> None:
    """By column, with file and row of one, over all files; other zeros do not count."""
    files = {
        "b.csv": "f,g\n1e-50,0\n0,0.0\n0e-99,1\n",
        "a.csv": "f,g\n0.5,0\n-1E-46,1e-45\n8e-46,0\n,-0\n",
    }
    source = write_files(tmp_path / "s", {k: v.encode() for k, v in files.items()})
    run = convert(source, tmp_path / "out", "--no-shuffle")
    found = [row["f"] for row in rows(tmp_path / "out") if "f" in row]
    assert found == [0.5, -0.0, 1.401298464324817e-45, 0.0, 0.0, 0.0]
    _, note = manifest(tmp_path / "out")["run"]["notes"]
    for word in ("2 values", "'f'", "'-1E-46'", "row 2", "a.csv"):
        assert word in note
    assert note in run.out


def test_fault_113_spaces_in_names_and_labels_are_reported(tmp_path: Folder) -> None:
    """The notes name the columns and the classes, on the screen too."""
    data = " n ,label,\u00a0w\n1,cat,a\n2, cat ,b\n"
    source = made(tmp_path, data)
    run = convert(source, tmp_path / "out", "--label-column", "label")
    notes = manifest(tmp_path / "out")["run"]["notes"]
    (columns,) = [note for note in notes if "' n '" in note]
    assert "2 column names" in columns
    assert "--trim" in columns
    assert columns in run.out
    assert [note for note in notes if "' cat '" in note and note != columns]
    convert(made(tmp_path, "n,w\n1, a\n"), tmp_path / "plain")
    assert manifest(tmp_path / "plain")["run"]["notes"] == []


def test_fault_113_spaces_are_trimmed_on_request(tmp_path: Folder) -> None:
    """From names and cells, quoted or not; a cell of nothing else is missing."""
    data = ' n , label \n 1,cat\n2 ,"\u3000cat "\n3,  \n'
    found = converted(tmp_path, data, "--trim", "--label-column", "label")
    assert found == [{"n": 1, "label": 0}, {"n": 2, "label": 0}, {"n": 3}]
    (note,) = manifest(tmp_path / "out")["run"]["notes"]
    assert "1 has no 'label'" in note
    assert dataset(tmp_path / "out")["settings"]["trim"] is True


@pytest.mark.parametrize(
    ("text", "word"), [("a, a \n1,2\n", "'a'"), ("a,  \n1,2\n", "column 2")]
)
def test_fault_113_names_that_trimming_makes_unusable_are_errors(
    text: str, word: str, tmp_path: Folder
) -> None:
    """Two columns of one name, or one of none: exit code 4, and the column."""
    assert word in error_of(tmp_path, text, "--trim")
