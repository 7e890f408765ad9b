"""How a CSV file is written: its header, and what its content says of settings."""

import gzip
import pathlib

import pytest

from tests.support.archive_sources import write
from tests.support.image_sources import image_bytes
from tests.support.outputs import manifest_of, records, rejects, rows
from tests.support.runs import command, convert, refused
from tests.support.sources import write_files
from transforms.errors import InputError

Folder = pathlib.Path


HEADERLESS = {
    "numbers": "1,2.5,a\n2,3.5,b\n3,4.5,c\n",
    "only numbers": "5.1,3.5\n4.9,3.0\n4.7,3.2\n",
    "padded numbers": " 5.1 , 3.5\n 4.9, 3.0\n",
    "integers": "7,3\n8,1\n9,2\n",
    "a missing number": "5.1,NA,3.5\n4.9,1,3.0\n4.7,2,3.2\n",
    "nan": "5.1,nan,3.5\n4.9,1,3.0\n4.7,2,3.2\n",
    "one column": "3\n4\n5\n",
    "a year alone": "kim,2020\nlee,2021\npark,2019\n",
    "words": "cat,red\ndog,blue\ncat,blue\nrabbit,red\n",
    "bools": "true,x\nfalse,y\ntrue,y\nfalse,x\n",
    "constant bools": "True,False\nfalse,true\nTRUE,true\n",
    "dates": "2024-05-01,web\n2024-05-02,app\n2024-05-03,web\n",
    # Names count from 0 or 1, or are years; all between others would fill the memory.
    "unordered": "5,6\n1,2\n3,4\n",
    "with a gap": "0,2\n1,2\n3,4\n",
    "backwards": "2,1\n1,2\n3,4\n",
    "leading zeros": "007,008\n1,2\n",
    "far apart": "1,999999999\n2,300000000\n3,100000000\n",
}
HEADERS = {
    "names": "id,price,word\n1,2.5,a\n2,3.5,b\n",
    "one number among names": "id,2020\n1,2.5\n2,3.5\n",
    "numbers over texts": "id,1,2\n1,a,b\n2,c,d\n",
    "words that occur elsewhere": "a,b\nb,c\nc,a\n",
    "names of texts": "name,colour\ncat,red\ncat,red\n",
    "dates over numbers": "place,2024-05-01,2024-05-02\nx,1,2\ny,3,4\n",
    "bools among names": "name,true\nkim,false\nlee,false\n",
    "no rows": "1,2.5\n",
}
CONSECUTIVE = {
    "from 0": "0,1,2\n5,x,7\n8,y,9\n",
    "from 1": "1,2,3\n5,6,7\n8,9,9\n",
    "years": "country,2019,2020,2021\nkr,1,2,3\njp,4,5,6\n",
    "years backwards": "country,2021,2020\nkr,1,2\njp,4,5\n",
}


@pytest.mark.parametrize("text", HEADERLESS.values(), ids=HEADERLESS)
def test_a_first_row_of_data_is_refused(text: str, tmp_path: Folder) -> None:
    """It would be lost, and name the features; both ways out are named."""
    source = write_files(tmp_path / "s", {"t.csv": text.encode()}) / "t.csv"
    message = refused(InputError.exit_code, source, tmp_path / "out")
    assert "t.csv: the first row must hold the names" in message
    assert "has no header, say --no-header" in message
    assert "if these are the names, say --header" in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", HEADERS.values(), ids=HEADERS)
def test_a_header_is_accepted_without_a_note(text: str, tmp_path: Folder) -> None:
    """Names that are numbers, or occur in the table, do not make a row of data."""
    source = write_files(tmp_path / "s", {"t.csv": text.encode()}) / "t.csv"
    convert(source, tmp_path / "out", "--min-records=0")
    found = manifest_of(tmp_path / "out")
    assert found.records == text.count("\n") - 1
    assert "--no-header" not in str(found.run["notes"])


@pytest.mark.parametrize("text", CONSECUTIVE.values(), ids=CONSECUTIVE)
def test_consecutive_integers_are_names_with_a_note(
    text: str, tmp_path: Folder
) -> None:
    """pandas numbers its columns, and tables have a column a year."""
    source = write_files(tmp_path / "s", {"t.csv": text.encode()}) / "t.csv"
    convert(source, tmp_path / "out")
    found = manifest_of(tmp_path / "out")
    assert found.records == 2
    (note,) = found.run["notes"]
    assert "was taken for the header; if it is data, say --no-header" in note
    convert(source, tmp_path / "said", "--header")
    assert manifest_of(tmp_path / "said").run["notes"] == []
    assert manifest_of(tmp_path / "said").digest == found.digest


def packed(path: Folder, text: bytes) -> Folder:
    """Writes the text as a file, compressed or in an archive, as its name says."""
    if path.name.endswith((".zip", ".tar.gz")):
        return write(path, [("t.csv", text)])
    data = gzip.compress(text) if path.suffix == ".gz" else text
    return write_files(path.parent, {path.name: data}) / path.name


@pytest.mark.parametrize("name", ["t.tsv", "t.csv.gz", "t.zip", "t.tar.gz"])
def test_every_door_looks_at_the_first_row(name: str, tmp_path: Folder) -> None:
    """Compressed files and members of archives are asked as plain files are."""
    text = HEADERLESS["numbers"].encode()
    if name.endswith(".tsv"):
        text = text.replace(b",", b"\t")
    source = packed(tmp_path / "s" / name, text)
    message = refused(InputError.exit_code, source, tmp_path / "out")
    assert "--no-header" in message
    convert(source, tmp_path / "out", "--no-header", "--no-shuffle")
    assert [row["column_0"] for row in rows(tmp_path / "out")] == [1, 2, 3]


def test_several_files_without_a_header(tmp_path: Folder) -> None:
    """First rows that differ from file to file are data, not different columns."""
    files = {"a.csv": b"1,2.5\n2,3.5\n", "b.csv": b"3,4.5\n4,5.5\n"}
    source = write_files(tmp_path / "s", files)
    assert "--no-header" in refused(InputError.exit_code, source, tmp_path / "out")
    convert(source, tmp_path / "out", "--no-header")
    assert manifest_of(tmp_path / "out").records == 4
    convert(source / "a.csv", tmp_path / "named", "--header")
    assert manifest_of(tmp_path / "named").records == 1


def test_names_that_are_given_do_not_hide_a_row(tmp_path: Folder) -> None:
    """`--columns` replaces a header: of a file that has none it would eat a row."""
    files = {"a.csv": b"x,y\n1,2.5\n2,3.5\n", "b.csv": b"3,4.5\n4,5.5\n"}
    source = write_files(tmp_path / "s", files)
    first, named = source / "a.csv", ("--columns", "id,price")
    convert(first, tmp_path / "one", *named)
    assert manifest_of(tmp_path / "one").records == 2
    message = refused(InputError.exit_code, source, tmp_path / "out", *named)
    assert "b.csv: the first row" in message
    assert "'3', '4.5'" in message
    convert(source / "b.csv", tmp_path / "out", *named, "--no-header")
    assert manifest_of(tmp_path / "out").records == 2


def test_a_table_of_labels_has_a_header_too(tmp_path: Folder) -> None:
    """The first row of a headerless table of labels would lose an image its label."""
    source = write_files(tmp_path / "s", {f"{n}.png": image_bytes(n) for n in (1, 2)})
    (tmp_path / "l.csv").write_text("1,7\n2,8\n")
    flags = ("--labels", tmp_path / "l.csv", "--id-column")
    message = refused(InputError.exit_code, source, tmp_path / "out", *flags, "1")
    assert "l.csv: the first row" in message
    more = ("column_0", "--no-header", "--label-column", "column_1")
    convert(source, tmp_path / "out", *flags, *more)
    assert manifest_of(tmp_path / "out").records == 2


# --- what files say of how they are written ----------------------------------------


def sources(root: Folder, table: bytes, door: str) -> Folder:
    """Returns a source that holds the table: a file, packed, in an archive, joined."""
    if door in ("zip", "gz"):
        return packed(root / ("t.zip" if door == "zip" else "t.csv.gz"), table)
    if door == "utf-16":
        table = table.decode().encode("utf-16")
    if door == "bom":
        table = b"\xef\xbb\xbf" + table.replace(b"\n", b"\r\n")
    files = {"t.csv": table}
    if door == "joined":
        header, _, _ = table.partition(b"\n")
        files |= {f"{n}.csv": header + b"\n" for n in range(3)}
        files |= {"u.csv": table}
    write_files(root, files)
    return root


DOORS = ["plain", "bom", "utf-16", "gz", "zip"]


@pytest.mark.parametrize("door", [*DOORS, "joined"])
def test_text_behind_a_closing_quote_is_a_reject(tmp_path: Folder, door: str) -> None:
    """At every door, with its row and line; other quotes are read."""
    lines = [f'{n},"a, ""{n}"""' for n in range(300)]
    lines[7] = '7,"a" b'
    table = "\n".join(["id,text", *lines, ""]).encode()
    convert(sources(tmp_path / "s", table, door), tmp_path / "out")
    found = rejects(tmp_path / "out")
    assert {(r["row"], r["line"], r["reason"]) for r in found} == {(8, 9, "malformed")}
    texts = {row["id"]: row["text"] for row in rows(tmp_path / "out")}
    assert texts == {n: f'a, "{n}"'.encode() for n in range(300) if n != 7}


@pytest.mark.parametrize(
    ("door", "line"),
    [*((door, "sep=;") for door in DOORS), ("plain", "SEP=;"), ("bom", '"sep=;"')],
)
def test_a_line_of_excel_says_the_delimiter(
    tmp_path: Folder, door: str, line: str
) -> None:
    """It is no row, and lines are counted with it."""
    cells = [f"{n};n{n}" for n in range(200)]
    cells[3] = "3"
    table = "\n".join([line, "id;name", *cells, ""]).encode()
    convert(sources(tmp_path / "s", table, door), tmp_path / "out")
    assert [(r["row"], r["line"]) for r in rejects(tmp_path / "out")] == [(4, 6)]
    found = {row["id"]: row["name"] for row in rows(tmp_path / "out")}
    assert found == {n: f"n{n}".encode() for n in range(200) if n != 3}


def test_a_tab_is_written_as_messages_show_it(tmp_path: Folder) -> None:
    """As a backslash and t, which most shells pass on as they are."""
    source = write_files(tmp_path / "s", {"t.csv": b"a\tb\n1\t2\n"}) / "t.csv"
    assert r"is it '\t'" in refused(4, source, tmp_path / "out")
    convert(source, tmp_path / "out", "--delimiter", r"\t")
    assert rows(tmp_path / "out") == [{"a": 1, "b": 2}]


def test_each_file_may_say_its_delimiter(tmp_path: Folder) -> None:
    """Files of a folder may differ in it; --delimiter overrules the line."""
    files = {"a.csv": b"sep=;\nx;y\n1;2\n", "b.csv": b"sep=|\nx|y\n3|4\n"}
    source = write_files(tmp_path / "s", files | {"c.csv": b"x,y\n5,6\n"})
    convert(source, tmp_path / "out")
    found = sorted((row["x"], row["y"]) for row in rows(tmp_path / "out"))
    assert found == [(1, 2), (3, 4), (5, 6)]
    refused(4, source / "a.csv", tmp_path / "other", "--delimiter", ",")


@pytest.mark.parametrize(
    ("door", "infer"), [*((door, "sample") for door in DOORS), ("gz", "full")]
)
def test_numbers_with_a_decimal_comma(tmp_path: Folder, door: str, infer: str) -> None:
    """With --decimal , points group thousands; other points make no number."""
    lines = [f"A;{n},5;{n + 1}.037;1.{n:03},25" for n in range(300)]
    lines[4] = "A;2.5;1.000;1"
    table = "\n".join(["t;a;b;c", *lines, ""]).encode()
    options = ["--delimiter", ";", "--decimal", ",", "--infer", infer]
    source = sources(tmp_path / "s", table, door)
    convert(source, tmp_path / "out", *options, "--splits", "train=0.5,test=0.5")
    (reject,) = rejects(tmp_path / "out")
    assert (reject["line"], reject["reason"]) == (6, "not_a_number")
    assert "'2.5'" in reject["message"]
    found = sorted((r["a"], r["b"], r["c"]) for r in rows(tmp_path / "out"))
    numbers = (n for n in range(300) if n != 4)
    assert found == [(n + 0.5, (n + 1) * 1000 + 37, 1000 + n + 0.25) for n in numbers]


@pytest.mark.parametrize(
    ("table", "options", "setting"),
    [
        (["a;b", *(f"{n};1.0{n},5" for n in range(10, 50))], ["--delimiter", ";"],
         "--decimal ,"),
        (["a,b", *(f"{n}, w{n}" for n in range(20))], [], "--trim"),
        ([f"{n}, w{n}" for n in range(20)], ["--no-header"], "--trim"),
        ([f'{n}  {n}.5\t"c {n}"' for n in range(9)], ["--no-header"],
         "--delimiter whitespace"),
        ([f"{n};w w;{n}" for n in range(9)], ["--no-header"], "--delimiter ';'"),
        (["a,b", *(f"{n},w" for n in range(200)), '5,"x', '6,y"'], [], "--quote ''"),
        (["a,b", *(f'{n},"w {n}"' for n in range(9))], [], ""),
        (["a,b,c", *(f'{n},"{n},000.50",${n}' for n in range(1, 9))], [],
         "'b' (1,000.50), 'c' ($1); numbers are written as 1234.5"),
        (["a,b", "0,ask us", *(f"{n},${n}" for n in range(1, 200))], [],
         "'b' ($1); numbers are"),
        (["a;b", *(f"{n};{n}.234,50 €" for n in range(1, 9))],
         ["--delimiter", ";", "--decimal", ","], "'b' (1.234,50 €); numbers are"),
        (["a,b", *(f" {n}.5 , 192.168.100.{n}" for n in range(9))], [], "--trim"),
    ],
)  # fmt: skip
def test_cells_suggest_a_setting(
    tmp_path: Folder, table: list[str], options: list[str], setting: str
) -> None:
    """A note names it, and there is none where nothing suggests one."""
    text = "\n".join([*table, ""]).encode()
    source = write_files(tmp_path / "s", {"t.csv": text}) / "t.csv"
    convert(source, tmp_path / "out", *options)
    notes = manifest_of(tmp_path / "out").run["notes"]
    assert [setting in note for note in notes] == ([True] if setting else [])
    assert repr("x\n6,y") in "".join(notes) or "quote" not in setting


def test_files_that_are_together_are_named(tmp_path: Folder) -> None:
    """With their rows, and one whose name says a split."""
    ids = [f"r{n}" for n in range(40)]
    files = {"train.csv": ids[:30], "train_v2.csv": ids[5:], "part-1.csv": ids[:2]}
    tables = {n: "\n".join(["id", *v, ""]).encode() for n, v in files.items()}
    source = write_files(tmp_path / "s", tables)
    first, second = (
        line
        for line in command("plan", source, tmp_path / "out").out.splitlines()
        if line.startswith("note ")
    )
    for name, found in files.items():
        assert f"{name} ({len(found)})" in first
    assert "'train.csv'" in second


@pytest.mark.parametrize(
    ("name", "in_folder", "is_array"),
    [
        ("a.csv", False, False),
        ("a.json", False, True),
        ("a.json", True, False),
        ("a.txt", False, False),
        ("a.txt", True, True),
        ("a", False, True),
        ("a", True, False),
        ("a.json.gz", False, False),
        ("a.json.gz", True, True),
    ],
)
def test_json_lines_are_recognised_by_content(
    tmp_path: Folder, name: str, in_folder: bool, is_array: bool
) -> None:
    """Whatever the suffix; in a folder, where no other format takes the files."""
    data = b'{"images": [1], "n": 1}\n{"images": [2], "n": 2}\n'
    if is_array:
        data = b"[%s]" % data.strip().replace(b"\n", b",\n")
    data = gzip.compress(data) if name.endswith(".gz") else data
    source = write_files(tmp_path / "s", {name: data, "notes.md": b"# text\n"})
    convert(source if in_folder else source / name, tmp_path / "out")
    assert sorted(r["n"] for r in records(tmp_path / "out")) == [[1], [2]]


def test_one_object_beside_json_lines_is_named(tmp_path: Folder) -> None:
    """Files of one suffix must all be JSON lines or arrays."""
    files = {
        "a.json": b'{"n": 1}\n{"n": 2}\n',
        "b.json": b'{"n": [3]}',
        "c.json": b'[{"n": 4}]',
    }
    source = write_files(tmp_path / "s", files)
    assert "b.json" in refused(4, source, tmp_path / "out")
    convert(source, tmp_path / "out", "--exclude", "b.json")
    assert len(rows(tmp_path / "out")) == 3
