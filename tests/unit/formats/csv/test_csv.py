"""CSV files: names, samples, typed rows and rejections."""

import csv
import hashlib
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.model import Batch, Block
from transforms.core.reasons import Reason, Rejection
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import (
    MAX_MESSAGE_BYTES,
    SourceError,
    SpecError,
)
from transforms.formats.csv.blocks import iter_blocks, read_header
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.sample import CsvReader
from transforms.formats.csv.scan import CsvDialect
from transforms.formats.file_runs import TableSource


def read_block(
    data: bytes,
    block: Block,
    dialect: CsvDialect,
    columns: tuple[str, ...],
    schema: Schema,
    *,
    split_column: str = "",
) -> tuple[Batch, Sequence[Rejection]]:
    """Returns the typed rows of a block, and the rest, as a table source does."""
    source = TableSource(CsvReader(), "", "", schema, split_column=split_column)
    asked = [f.source_column for f in schema.features if not f.derived]
    wanted = list(dict.fromkeys([*asked, split_column] if split_column else asked))
    raw = read_raw(data, block, dialect, columns, wanted)
    reading = source.reading(raw)
    return reading.batch, reading.rejections


FOUR = Schema(
    (
        Feature("flag", Kind.BOOL),
        Feature("count", Kind.INT64),
        Feature("name", Kind.TEXT),
        Feature("score", Kind.FLOAT),
    )
)
HEADER = b"flag,count,name,score\n"


def header_of(data: bytes, dialect: CsvDialect | None = None) -> tuple[Any, ...]:
    return read_header(io.BytesIO(data), dialect or CsvDialect(), "f.csv").names


def read(
    data: bytes,
    schema: Schema = FOUR,
    dialect: CsvDialect | None = None,
    *,
    block_bytes: int = 1 << 20,
    **options: Any,
) -> tuple[Any, ...]:
    """Reads a file block by block: rows, their numbers, rejections."""
    dialect = dialect or CsvDialect()
    columns = header_of(data, dialect)
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    rejections: list[Rejection] = []
    for block in iter_blocks(
        io.BytesIO(data), "f.csv", dialect, block_bytes=block_bytes
    ):
        piece = data[block.start : block.stop]
        batch, bad = read_block(piece, block, dialect, columns, schema, **options)
        assert batch.rows.schema.equals(schema.row_schema)
        assert batch.rows.num_rows == len(batch.numbers)
        assert batch.rows.num_rows + len(bad) == block.rows
        rows += batch.rows.to_pylist()
        numbers += batch.numbers.tolist()
        rejections += bad
    return rows, numbers, rejections


def sha(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()


# --- the dialect -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ({"delimiter": ""}, "delimiter must be"),
        ({"delimiter": "::"}, "delimiter must be"),
        ({"delimiter": "\n"}, "delimiter must be"),
        ({"delimiter": "é"}, "delimiter must be"),
        ({"delimiter": "a"}, "delimiter must be"),
        ({"quote": "''"}, "quote must be"),
        ({"delimiter": ";", "quote": ";"}, "must differ"),
        ({"escape": "\\\\"}, "escape must be"),
        ({"escape": "n"}, "escape must be"),
        ({"escape": '"'}, "must differ"),
        ({"delimiter": "\\", "escape": "\\"}, "must differ"),
        ({"columns": ()}, "distinct names"),
        ({"columns": ("a", "a")}, "distinct names"),
        ({"columns": ("a", "")}, "distinct names"),
        ({"encoding": "utf-9"}, "found 'utf-9'"),
        ({"encoding": "hex"}, "found 'hex'"),
        ({"encoding": "undefined"}, "found 'undefined'"),
        ({"encoding": "idna"}, "found 'idna'"),
    ],
)
def test_a_dialect_that_makes_no_sense_is_refused(
    setting: dict[str, Any], found: str
) -> None:
    """Each setting is named with what was found."""
    with pytest.raises(SpecError, match=found):
        CsvDialect(**setting)


def test_one_encoding_under_two_names_is_one_dialect() -> None:
    """Equal dialects compare equal, whatever the spelling."""
    assert CsvDialect(encoding="UTF8") == CsvDialect(encoding="utf-8-sig")


# --- the header --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "dialect", "names"),
    [
        (b"a,b\n1,2\n", CsvDialect(), ("a", "b")),
        (b"\xef\xbb\xbfid,b\r\n", CsvDialect(), ("id", "b")),
        (b'\xef\xbb\xbf"id",b\r1,2', CsvDialect(), ("id", "b")),
        (b'\n\r\n" a ","b\n""c"""\n', CsvDialect(), (" a ", 'b\n"c"')),
        (b"01,2024-01-02,NA", CsvDialect(), ("01", "2024-01-02", "NA")),
        (b"a\tb\n", CsvDialect(delimiter="\t"), ("a", "b")),
        (b"1,2,3\n", CsvDialect(header=False), ("column_0", "column_1", "column_2")),
        (b"1,2\n", CsvDialect(header=False, columns=("x", "y")), ("x", "y")),
        (b"1,2\n", CsvDialect(columns=("x", "y")), ("x", "y")),
        (b"PAR1,PAR2\n", CsvDialect(), ("PAR1", "PAR2")),
        ("이름,값\n".encode("cp949"), CsvDialect(encoding="cp949"), ("이름", "값")),
        ("이름,값\n가,1".encode("utf-16"), CsvDialect(), ("이름", "값")),
        (
            "이름,값".encode("utf-16-be"),
            CsvDialect(encoding="utf-16-be"),
            ("이름", "값"),
        ),
        ("a,b\n1,2".encode("utf-32"), CsvDialect(), ("a", "b")),
        ("a,b\n1,2".encode("cp037"), CsvDialect(encoding="cp037"), ("a", "b")),
    ],
)
def test_names_are_read_unchanged(
    data: bytes, dialect: CsvDialect, names: tuple[Any, ...]
) -> None:
    """Byte order mark stripped, quotes taken off, spaces and words kept."""
    assert header_of(data, dialect) == names


def test_a_header_longer_than_the_first_read_is_whole() -> None:
    """Some tables have thousands of columns."""
    names = [f"column number {i:020}" for i in range(4_000)]
    data = ",".join(names).encode() + b"\n1,2\n"
    assert header_of(data) == tuple(names)
    assert header_of(data.decode().encode("utf-16")) == tuple(names)


@pytest.mark.parametrize(
    ("data", "dialect", "message"),
    [
        (b"", CsvDialect(), "f.csv: no header"),
        (b"\xef\xbb\xbf\r\n\n", CsvDialect(), "f.csv: no header"),
        (b"a,b,a,c,b\n", CsvDialect(), "'a' is that of column 1, 3"),
        (b"a,,b,\n", CsvDialect(), "'' is that of column 2, 4"),
        (b'a,""\n', CsvDialect(), "'' is that of column 2"),
        (b"a" * 10_001, CsvDialect(), "has 10,001 and begins with 'aaaa.*--encoding"),
        (b"a;b;c\n1;2;3\n", CsvDialect(), "is it ';'. Say so with --delimiter"),
        (b"a\tb\n", CsvDialect(), r"is it '\\t'"),
        (b"a,b\n", CsvDialect(delimiter=";"), "is it ','"),
        (b'\na,"b\n1,2\n', CsvDialect(), "line 2: a quote"),
        (b"PK\x03\x04\xff\n", CsvDialect(encoding="latin-1"), "a zip archive"),
        (b"PAR1\x15\x04\n", CsvDialect(), "Parquet"),
        (b"version https://git-lfs.github.com/spec/v1\n", CsvDialect(), "git lfs pull"),
        (b"caf\xe9,b\n", CsvDialect(), r"byte 3 \(0xe9\) is not valid utf-8"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(
    data: bytes, dialect: CsvDialect, message: str
) -> None:
    """The file, the columns' positions and a way out are named."""
    with pytest.raises(SourceError, match=message) as error:
        header_of(data, dialect)
    assert str(error.value).startswith("f.csv")


# --- rows --------------------------------------------------------------------------


def test_missing_is_blank_and_unquoted_or_a_word_beside_numbers() -> None:
    """Text keeps NA and empty quotes; numbers and bools take NA for missing."""
    schema = Schema((*FOUR.features, Feature("kind", Kind.LABEL)))
    data = b"flag,count,name,score,kind\n,,,,\nNA,N/A,NA,null,None\n"
    data += b'"None","null","",nan," "\n'
    rows, _, bad = read(data, schema)
    assert not bad
    assert [list(row.values()) for row in rows[:2]] == [
        [None] * 5,
        [None, None, "NA", None, "None"],
    ]
    assert list(rows[2].values())[:3] == [None, None, ""]
    assert rows[2]["score"] != rows[2]["score"]
    assert rows[2]["kind"] == " "


@pytest.mark.parametrize("end", [b"", b"\n", b"\r"])
def test_a_blank_last_cell_is_missing_after_any_cell(end: bytes) -> None:
    """Arrow alone takes it for quoted where the file ends without a line end."""
    data = b'name,count\n"a",' + end
    schema = Schema((FOUR["name"], FOUR["count"]))
    assert read(data, schema) == ([{"name": "a", "count": None}], [0], [])


REJECTS = [
    (b"true,1,a", Reason.FIELD_COUNT, "row has 3 fields, 4 expected"),
    (b"true", Reason.FIELD_COUNT, "row has 1 field, 4 expected"),
    (b"true,1,a,1,", Reason.FIELD_COUNT, "row has 5 fields, 4 expected"),
    (b"true,7.5,a,1", Reason.NOT_AN_INTEGER, "column 'count' holds '7.5': not an int"),
    (b'true,"",a,1', Reason.NOT_AN_INTEGER, "column 'count' holds ''"),
    (b'true,"x\ny",a,1', Reason.NOT_AN_INTEGER, "column 'count' holds 'x\\ny'"),
    (b"true,9223372036854775808,a,1", Reason.OUT_OF_RANGE, "outside int64"),
    (b"true,1,a,1e39", Reason.OUT_OF_RANGE, "column 'score' holds '1e39': outside flo"),
    (b'true,1,a,"1,5"', Reason.NOT_A_NUMBER, "column 'score' holds '1,5'"),
    (b"yes,1,a,1", Reason.NOT_A_BOOL, "column 'flag' holds 'yes': not a bool"),
    (b"yes,x,a,y", Reason.NOT_A_BOOL, "column 'flag'"),
    (b"true,x,a,y", Reason.NOT_AN_INTEGER, "column 'count'"),
    (b"true,1,caf\xe9,1", Reason.INVALID_ENCODING, r"'name' holds 'caf\xe9': not val"),
    (b"true,\xff,a,y", Reason.INVALID_ENCODING, r"column 'count' holds '\xff'"),
]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(("record", "reason", "message"), REJECTS)
def test_a_row_that_does_not_fit_is_rejected(
    record: bytes, reason: Reason, message: str, end: bytes
) -> None:
    """Row, physical line, reason, the cell to blame and the record's digest."""
    good = end.join([b'true,1,"two', b'lines",0.5', b"", b""])
    data = HEADER + good + record + end + good + good + record
    for block_bytes in (1, 1 << 20):
        rows, numbers, bad = read(data, block_bytes=block_bytes)
        assert (len(rows), numbers) == (3, [0, 2, 3])
        first, last = bad
        assert (first.row, first.line) == (2, 5)
        inner = (record + end).count(b"\n" if end == b"\r" else end)
        inner += end == b"\r"
        inner += record.count(b"\n") if end == b"\r\n" else 0
        assert (last.row, last.line) == (5, 5 + inner + 6)
        for one in bad:
            assert (one.source, one.stage, one.reason) == ("f.csv", "read", reason)
            assert message in one.message
            assert one.sha256 == sha(record)
            assert json.loads(one.to_json())["reason"] == str(reason)


@pytest.mark.parametrize("column", ["name", "n" * 5000, "값" * 1700])
@pytest.mark.parametrize("cell", [b"caf\xe9", b"\xff" * 9000, "값".encode()[:2] * 3000])
def test_a_cell_that_is_no_text_makes_a_short_message(column: str, cell: bytes) -> None:
    """At most 1 KiB of valid UTF-8, however long the cell and its column's name."""
    schema = Schema((Feature(column, Kind.TEXT),))
    data = f"{column},b\n".encode() + cell + b",1\n"
    rows, _, (bad,) = read(data, schema)
    assert rows == []
    assert bad.reason is Reason.INVALID_ENCODING
    assert bad.raw == cell + b",1"
    for message in (bad.message, json.loads(bad.to_json())["message"]):
        assert "\\xe" in message or "\\xff" in message
        assert len(message.encode("utf-8", "strict")) <= MAX_MESSAGE_BYTES


def test_only_the_columns_of_the_schema_are_looked_at() -> None:
    """Other columns may hold anything; two features may use one column."""
    schema = Schema(
        (
            Feature("n", Kind.INT64, column="count"),
            Feature("as_text", Kind.TEXT, column="count"),
            Feature("height", Kind.INT64, derived="height"),
        )
    )
    rows, _, bad = read(HEADER + b"yes,1,caf\xe9,x\nyes,x,,\n", schema)
    assert rows == [{"n": 1, "as_text": "1"}]
    assert [one.row for one in bad] == [2]
    absent = Schema((Feature("weight", Kind.FLOAT),))
    with pytest.raises(SourceError, match=r"f.csv has no column 'weight'"):
        read(HEADER + b"true,1,a,1\n", absent)


def test_a_split_column_gives_each_row_its_split() -> None:
    """A blank cell or what cannot name a split is a rejection."""
    data = b"n,part\n1,train\n2,\n3,all\nx,\n4,a/b\n5,\xff\n6,test\n"
    schema = Schema((Feature("n", Kind.INT64),))
    dialect = CsvDialect()
    (block,) = iter_blocks(io.BytesIO(data), "f.csv", dialect, block_bytes=1 << 20)
    batch, bad = read_block(
        data[block.start :], block, dialect, ("n", "part"), schema, split_column="part"
    )
    assert batch.splits.to_pylist() == ["train", "test"]
    assert batch.numbers.tolist() == [0, 6]
    assert [(one.row, one.reason) for one in bad] == [
        (2, Reason.BAD_SPLIT),
        (3, Reason.BAD_SPLIT),
        (4, Reason.NOT_AN_INTEGER),
        (5, Reason.BAD_SPLIT),
        (6, Reason.INVALID_ENCODING),
    ]
    assert bad[0].message.startswith("column 'part' holds nothing")


@pytest.mark.parametrize(
    "encoding", ["cp949", "euc-kr", "gbk", "shift_jis", "latin-1", "cp1252", "utf-16"]
)
def test_other_encodings_are_transcoded(encoding: str) -> None:
    """Text arrives as UTF-8, digests are of the bytes in the file."""
    word = {"latin-1": "café", "cp1252": "naïve", "shift_jis": "表示", "gbk": "中文"}
    text = word.get(encoding, "한글")
    lines = [f'true,1,"{text}\n",1', f"true,x,{text},1", f"true,3,{text},1"]
    data = ("flag,count,name,score\n" + "\n".join(lines)).encode(encoding)
    rows, numbers, (bad,) = read(data, dialect=CsvDialect(encoding=encoding))
    assert [row["name"] for row in rows] == [text + "\n", text]
    assert numbers == [0, 2]
    assert (bad.row, bad.line) == (2, 4)
    bare = "utf-16-le" if encoding == "utf-16" else encoding
    assert bad.sha256 == sha(lines[1].encode(bare))


def test_a_delimiter_inside_characters_does_not_split_them() -> None:
    """In GBK the bar is the second byte of some characters: transcoded whole."""
    dialect = CsvDialect(delimiter="|", encoding="gbk")
    text = b"\x81\x7c".decode("gbk")
    data = f"a|b\n{text}|1\n".encode("gbk")
    schema = Schema((Feature("a", Kind.TEXT), Feature("b", Kind.INT64)))
    assert read(data, schema, dialect)[0] == [{"a": text, "b": 1}]


def test_bytes_invalid_in_their_encoding_reject_the_row() -> None:
    """Even where the bytes left over would be valid UTF-8."""
    dialect = CsvDialect(encoding="ascii")
    data = HEADER + "true,1,é,1\ntrue,2,e,1\n".encode()
    rows, _, (bad,) = read(data, dialect=dialect)
    assert [row["count"] for row in rows] == [2]
    assert bad.reason is Reason.INVALID_ENCODING
    assert r"'\xc3\xa9': not valid ascii" in bad.message


def test_a_byte_order_mark_inside_the_file_is_data_at_any_block_size() -> None:
    """Files joined by hand have one; it must not matter where blocks start."""
    data = b"a,b\n1,2\n\xef\xbb\xbf3,4\n"
    schema = Schema((Feature("a", Kind.TEXT),))
    whole = read(data, schema)
    assert whole == read(data, schema, block_bytes=1)
    assert whole[0][1]["a"] == "\ufeff3"


# What Python's csv module and Arrow read alike: well-formed files of 3 columns.
plain_cell = st.text(
    st.characters(exclude_characters="\x00", codec="utf-8"), max_size=5
)
grids = st.lists(st.tuples(plain_cell, plain_cell, plain_cell), max_size=12)


@given(
    grid=grids,
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    delimiter=st.sampled_from([",", "\t", ";"]),
    mark=st.booleans(),
    last=st.booleans(),
    block_bytes=st.integers(1, 60),
)
def test_what_pythons_csv_module_writes_is_read_back(
    grid: Any,
    end: Any,
    quoting: Any,
    delimiter: Any,
    mark: Any,
    last: Any,
    block_bytes: Any,
) -> None:
    """Any text in any cell, in blocks of any size; quoted empty is empty."""
    if quoting == csv.QUOTE_MINIMAL:
        # The module leaves line ends bare that are not its own.
        foreign = str.maketrans("", "", "".join({"\r", "\n"} - set(end)))
        grid = [tuple(cell.translate(foreign) for cell in record) for record in grid]
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerow(["x", "y", "z"])
    writer.writerows(grid)
    text = out.getvalue() if last else out.getvalue().removesuffix(end)
    data = text.encode("utf-8-sig" if mark else "utf-8")
    schema = Schema(tuple(Feature(name, Kind.TEXT) for name in "xyz"))
    rows, numbers, bad = read(
        data, schema, CsvDialect(delimiter=delimiter), block_bytes=block_bytes
    )
    blank = "" if quoting == csv.QUOTE_ALL else None
    assert [tuple(row.values()) for row in rows] == [
        tuple(cell or blank for cell in record) for record in grid
    ]
    assert (numbers, bad) == (list(range(len(grid))), [])


typed_cell = st.sampled_from(
    [
        "",
        "NA",
        '""',
        "1",
        "-2",
        "007",
        "x",
        "0.5",
        "1e39",
        "true",
        "nan",
        '"a\nb"',
        " 3",
    ]
)


@given(
    records=st.lists(st.lists(typed_cell, min_size=3, max_size=5), max_size=10),
    block_bytes=st.integers(1, 60),
)
def test_rows_and_rejections_do_not_depend_on_the_block_size(
    records: Any, block_bytes: Any
) -> None:
    """Fast and exact paths, alone and mixed, give one result; nothing is lost."""
    data = HEADER + "".join(",".join(r) + "\n" for r in records).encode()
    schema = Schema(
        (Feature("count", Kind.INT64), Feature("score", Kind.FLOAT), FOUR["flag"])
    )
    rows, numbers, bad = read(data, schema, block_bytes=block_bytes)
    whole = read(data, schema)
    assert repr(rows) == repr(whole[0])
    assert (numbers, bad) == whole[1:]
    assert sorted([*numbers, *(one.row - 1 for one in bad)]) == list(
        range(len(records))
    )
    starts = [b"".join(HEADER.splitlines(True))]
    for record in records:
        starts.append(starts[-1] + ",".join(record).encode() + b"\n")
    for one in bad:
        assert one.sha256 == sha(",".join(records[one.row - 1]).encode())
        assert one.line == starts[one.row - 1].count(b"\n") + 1
