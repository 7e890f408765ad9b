"""JSON lines: Python's json module is the oracle, value by value and line by line."""

import codecs
import gzip
import hashlib
import io
import json
import math
import pathlib
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.archives import zstd
from tests.support.table_reading import listed, read_all, read_later, rows_of
from transforms.core.reasons import Reason, Rejection
from transforms.errors import SourceError
from transforms.formats.json_lines import reader as json_lines
from transforms.formats.json_lines.cut import cut, item_lines, lines_of
from transforms.formats.json_lines.reader import JsonLinesReader

SIZES = [1, 7, 100, 4096, 1 << 20]


def write(path: pathlib.Path, lines: list[str], end: str = "\n") -> None:
    path.write_bytes("".join(line + end for line in lines).encode())


def sampled(count: int) -> list[dict[str, Any]]:
    """Flat rows of every type, as expected back."""
    rows = [
        {
            "i": i - 3,
            "big": 2**53 + 1 + i,
            "f": i / 7,
            "t": f'x{i}\n"é',
            "b": i % 2 == 0,
            "o": {"p": i, "q": {"r": "s"}},
            "l": [i, None, 2],
            "objs": [{"id": i, "name": "n"}, {"id": None, "name": "m"}],
        }
        for i in range(count)
    ]
    return rows


def flat(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "i": row["i"],
        "big": row["big"],
        "f": row["f"],
        "t": row["t"],
        "b": row["b"],
        "o/p": row["o"]["p"],
        "o/q/r": row["o"]["q"]["r"],
        "l": row["l"],
        "objs/id": [each["id"] for each in row["objs"]],
        "objs/name": [each["name"] for each in row["objs"]],
    }


@pytest.mark.parametrize("block_bytes", SIZES)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\n \t\n"])
def test_rows_are_those_of_the_json_module(
    tmp_path: pathlib.Path, block_bytes: int, end: str
) -> None:
    """Cut anywhere, with any line ends and blank lines, the rows are the same."""
    rows = sampled(60)
    write(tmp_path / "a.jsonl", [json.dumps(row) for row in rows], end)
    read = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"], block_bytes=block_bytes)
    assert rows_of(read) == [flat(row) for row in rows]
    assert read.sample.total_rows == 60
    assert read.sample.complete
    assert not read.rejections


json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False),
        st.text(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    ),
    max_leaves=6,
)
lines_soup = st.one_of(
    st.dictionaries(st.sampled_from("abc"), json_values, max_size=3).map(json.dumps),
    st.sampled_from(
        [
            "",
            " ",
            "{}",
            "[1]",
            "3",
            '{"a":1,"a":2}',
            '{"a":1}{"a":2}',
            '{"a":',
            "1}",
            '{"a":01}',
            '{"a":NaN}',
            '{"a":Inf}',
            '{"a":-0}',
            '{"a":1e400}',
            '{"a":1E2}',
            '{"a":"\\ud800"}',
            '{"a":"\\u0000"}',
            "\x00",
            ' {"a":1} ',
            '{"b":{"a":1}}}',
        ]
    ),
)


@example(lines=["[1]", '{"a":Inf}', '{"b": null}'])
@example(lines=['{"a": [null, null]}'])
@given(st.lists(lines_soup, min_size=1, max_size=8))
def test_a_line_is_read_the_same_beside_any_others(
    tmp_path_factory: Any, lines: Any
) -> None:
    """Values, refusals and row numbers do not depend on where blocks are cut."""
    folder = tmp_path_factory.mktemp("soup")
    write(folder / "a.jsonl", lines)
    try:
        whole = read_all(JsonLinesReader(), folder, ["a.jsonl"])
    except SourceError:
        return
    single = read_all(JsonLinesReader(), folder, ["a.jsonl"], block_bytes=1)
    assert repr(whole.columns) == repr(single.columns)
    assert whole.numbers == single.numbers
    assert whole.rejections == single.rejections


def test_fault_102_integers_beyond_int64_are_refused(tmp_path: pathlib.Path) -> None:
    """2^63 in a column of integers is a reject; it never becomes a double."""
    lines = [json.dumps({"a": i}) for i in range(70_000)]
    reader = planned(tmp_path, lines)
    rejections, numbers = reread(
        tmp_path, reader, [*lines, '{"a": 9223372036854775808}']
    )
    (rejection,) = rejections
    assert rejection.reason == Reason.OUT_OF_RANGE
    assert "column 'a' holds 9223372036854775808" in rejection.message
    assert rejection.row == 70_001
    assert len(numbers) == 70_000


def planned(tmp_path: pathlib.Path, lines: list[str]) -> Any:
    """Returns a reader that has seen these lines and no others."""
    write(tmp_path / "seen.jsonl", lines)
    files = listed(tmp_path, ["seen.jsonl"])
    reader = JsonLinesReader()
    return reader.plan(files).reader


def reread(
    tmp_path: pathlib.Path, reader: JsonLinesReader, lines: list[str]
) -> tuple[list[Rejection], list[tuple[Any, ...]]]:
    """Returns what a planned reader refuses of other lines, and the rows it gives."""
    write(tmp_path / "later.jsonl", lines)
    names = [*reader.kind.columns("")]
    rejections, rows = read_later(reader, tmp_path, "later.jsonl", names)
    return rejections, [tuple(row.values()) for row in rows]


WORDS = ["NA", "None", "null", "nan", "N/A", ""]
FLOATS = [1.5, math.nan, math.inf, -math.inf, -0.0, None]
MIXED = ["1", "1.50", "true", "[1, 2.0]", '{"k": 1e5}']


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["9007199254740993", "null", "1"], [2**53 + 1, None, 1]),
        (["9223372036854775808"], ["9223372036854775808"]),
        # Beside decimals both are kept as they are written.
        (["9007199254740993", "0.10"], ["9007199254740993", "0.10"]),
        ([*map(json.dumps, WORDS), "null"], [*WORDS, None]),
        ([*map(json.dumps, FLOATS)], FLOATS),
        (['"2020-01-02"', '"2020-01-03T04:05"'], ["2020-01-02", "2020-01-03T04:05"]),
        (['"x"', *MIXED, "null"], ["x", *MIXED, None]),
    ],
    ids="exact beyond_int64 decimals words nan_and_infinities dates mixed".split(),
)
def test_fault_103_105_106_110_values_stay_what_they_are(
    tmp_path: pathlib.Path, cells: list[str], values: list[Any]
) -> None:
    """Digits, words, signs and dates; of several types, texts stay, others are JSON."""
    write(tmp_path / "a.jsonl", [f'{{"a": {cell}}}' for cell in cells] + ["{}"])
    found = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"]).columns["a"]
    assert repr(found) == repr([*values, None])


@pytest.mark.parametrize(
    ("seen", "later", "rows", "refused"),
    [
        # No double holds 2^53 + 1.
        (
            ['{"a": 0.5}', '{"a": 1}'],
            ['{"a": 9007199254740993}', '{"a": 9007199254740994}', '{"a": 1e300}'],
            [(9007199254740994.0,), (1e300,)],
            [(1, Reason.OUT_OF_RANGE)],
        ),
        (
            ['{"a": 0.5}'],
            ['{"a": 1e400}', '{"a": Infinity}'],
            [(math.inf,)],
            [(1, Reason.OUT_OF_RANGE)],
        ),
        # Python's decimals end at exponents of 18 digits.
        (
            ['{"a": 0.5}', '{"a": 1e9999999999999999999}'],
            ['{"a": 1e9999999999999999999}', '{"a": 0e9999999999999999999}'],
            [(0.0,)],
            [(1, Reason.OUT_OF_RANGE)],
        ),
        # ZIP codes in quotes keep their zeros.
        (
            ['{"a": "00501"}'],
            ['{"a": "007"}', '{"a": 7}'],
            [("007",)],
            [(2, Reason.WRONG_TYPE)],
        ),
        (
            ['{"a": 1}'],
            ['{"a": 1}', "\x00", '{"a": 2}\x00'],
            [(1,)],
            [(2, Reason.MALFORMED), (3, Reason.MALFORMED)],
        ),
        # Arrow's parser would take as many objects as lines, cut elsewhere.
        (
            ['{"a": 1, "b": 1}'],
            ['{"a":1}{"b":', "2}"],
            [],
            [(1, Reason.MALFORMED), (2, Reason.MALFORMED)],
        ),
    ],
    ids="large_integer beyond_double exponent digits nul two_objects".split(),
)
def test_fault_98_104_107_what_does_not_fit_is_refused_by_row(
    tmp_path: pathlib.Path,
    seen: list[str],
    later: list[str],
    rows: list[tuple[Any, ...]],
    refused: list[tuple[int, Reason]],
) -> None:
    """By the types of the sample; the other rows are kept."""
    rejections, found = reread(tmp_path, planned(tmp_path, seen), later)
    assert found == rows
    assert [(r.row, r.reason) for r in rejections] == refused


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('"12"', Reason.NOT_AN_INTEGER),
        ("1.5", Reason.NOT_AN_INTEGER),
        ("1e-3", Reason.NOT_AN_INTEGER),
        ("1e30", Reason.OUT_OF_RANGE),
        ("true", Reason.NOT_AN_INTEGER),
        ("[1]", Reason.NOT_AN_INTEGER),
        ('{"x": 1}', Reason.NOT_AN_INTEGER),
    ],
)
def test_fault_109_a_type_seen_late_is_a_reject(
    tmp_path: pathlib.Path, value: str, reason: Reason
) -> None:
    """After integers anything else is refused by row, and all other rows are kept."""
    lines = [json.dumps({"a": i}) for i in range(5000)]
    reader = planned(tmp_path, lines)
    later = [*lines, f'{{"a": {value}}}', *lines]
    rejections, rows = reread(tmp_path, reader, later)
    assert [row for (row,) in rows] == [*range(5000), *range(5000)]
    (rejection,) = rejections
    assert (rejection.row, rejection.line, rejection.reason) == (5001, 5001, reason)
    assert "column 'a' holds " in rejection.message


def test_malformed_lines_are_refused_alone(tmp_path: pathlib.Path) -> None:
    """Each names its row, its physical line and the sha256 of its bytes."""
    bad = {
        2: (b'{"a": 1', Reason.MALFORMED),
        4: (b'{"a": 1}{"a": 2}', Reason.MALFORMED),
        6: (b"[1]", Reason.MALFORMED),
        8: (b'{"a": 1, "a": 2}', Reason.MALFORMED),
        10: (b'{"a": "\xff"}', Reason.INVALID_ENCODING),
        12: (b'{"a": 1,}', Reason.MALFORMED),
    }
    lines = []
    for number in range(14):
        lines += [b"", bad[number][0] if number in bad else b'{"a": %d}' % number]
    (tmp_path / "a.jsonl").write_bytes(b"\r\n".join(lines))
    for block_bytes in SIZES:
        read = read_all(
            JsonLinesReader(), tmp_path, ["a.jsonl"], block_bytes=block_bytes
        )
        assert read.columns["a"] == [n for n in range(14) if n not in bad]
        assert [(r.row, r.line, r.reason, r.sha256) for r in read.rejections] == [
            (number + 1, 2 * number + 2, reason, hashlib.sha256(line).hexdigest())
            for number, (line, reason) in bad.items()
        ]


# JSON whose texts and spaces look like structure.
_VALUES = st.recursive(
    st.text(alphabet='ab,[]{}"\\\n\té', max_size=6) | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a,]"), inner),
    max_leaves=8,
)


@example([{"a": '\\"],['}, [{"b": 1}], 5, {"a": "}"}], 1, None, b"")
@given(
    st.lists(_VALUES | st.dictionaries(st.text("k{,"), _VALUES), min_size=1),
    st.integers(1, 40),
    st.sampled_from([None, 1]),
    st.sampled_from([b"", b"\xef\xbb\xbf", b" \r\n"]),
)
def test_the_items_of_an_array_are_lines(
    items: list[Any], block_bytes: int, indent: int | None, before: bytes
) -> None:
    """Cut anywhere, and read again from the file by the block, they are the same."""
    text = before + json.dumps(items, indent=indent, ensure_ascii=False).encode()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(size if self.tell() == 0 else block_bytes)

    with mock.patch("transforms.formats.json_lines.cut.HEAD_BYTES", 8):
        pieces = list(cut(Slow(text), "a.json", block_bytes))
    data = b"".join(piece for piece, _ in pieces)
    assert [json.loads(line) for line in data.splitlines()] == items
    assert [block.first_line for _, block in pieces] == [
        block.first_row + 1 for _, block in pieces
    ]
    for piece, block in pieces:
        stored = text[block.start : block.stop]
        assert b"".join(item_lines([stored], "a", block.start, level=1)) == piece


@pytest.mark.parametrize("layout", ["plain", "indented", "gz", "several"])
def test_an_array_has_the_rows_of_its_lines(
    tmp_path: pathlib.Path, layout: str
) -> None:
    """Values, numbers of rows and rejects are those of the same objects on lines."""
    rows = [json.dumps(row) for row in sampled(60)]
    rows[7], rows[40] = "[1, 2]", '{"i": "a"}'
    text = f"[{', '.join(rows)}]"
    if layout == "indented":
        text = json.dumps(json.loads(text), indent=2).replace("\n", "\r\n")
    names = ["a.json", "b.json"] if layout == "several" else [f"a.json.{layout}"]
    for name in names:
        data = text.encode()
        data = gzip.compress(data) if layout == "gz" else data
        (tmp_path / name).write_bytes(data)
        write(tmp_path / f"{name}.lines", rows)
    lines = [f"{name}.lines" for name in names]
    expected = read_all(JsonLinesReader(), tmp_path, lines)
    for size in SIZES:
        read = read_all(JsonLinesReader(), tmp_path, names, block_bytes=size)
        assert rows_of(read) == rows_of(expected)
        assert [(r.row, r.line, r.reason) for r in read.rejections] == [
            (r.row, r.line, r.reason) for r in expected.rejections
        ]


def test_doubled_members_elsewhere_do_not_matter(tmp_path: pathlib.Path) -> None:
    """A duplicate member is a fault only if it affects a wanted column."""
    lines = ['{"a": 1, "b": {"c": 1, "c": 2}}', '{"a": 2, "b": {"c": 3}}']
    write(tmp_path / "a.jsonl", lines)
    both = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"])
    only = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"], wanted=["a"])
    assert both.columns == {"a": [2], "b/c": [3]}
    assert only.columns == {"a": [1, 2]}


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_fault_91_a_byte_order_mark_is_no_part_of_the_first_row(
    tmp_path: pathlib.Path, mark: bytes
) -> None:
    """With or without it the rows are the same, whatever the blocks."""
    (tmp_path / "a.jsonl").write_bytes(mark + b'{"a": 1}\n{"a": 2}')
    for size in SIZES:
        read = read_all(JsonLinesReader(), tmp_path, ["a.jsonl"], block_bytes=size)
        assert read.columns == {"a": [1, 2]}


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_are_one_block_in_pieces(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """Pieces have the rows, lines and order of the plain file; positions ascend."""
    rows = sampled(3000)
    data = "".join(json.dumps(row) + "\n\n" for row in rows).encode()
    packed = zstd(data) if suffix == ".zst" else gzip.compress(data)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(packed)
    # Bound as a default when the module was read.
    monkeypatch.setattr(json_lines._pieces, "__defaults__", (10_000,))
    read = read_all(JsonLinesReader(), tmp_path, [f"a.jsonl{suffix}"])
    assert len(read.blocks) == 1
    assert len(read.pieces) > 30
    assert rows_of(read) == [flat(row) for row in rows]
    assert [p.first_line for p in read.pieces] == [
        1 + 2 * p.first_row for p in read.pieces
    ]


def test_drift_of_types_between_files_is_an_error(tmp_path: pathlib.Path) -> None:
    """It names both files and the column; 1 beside 1.5 is no drift."""
    write(tmp_path / "a.jsonl", ['{"x": 1, "y": "t"}'])
    write(tmp_path / "b.jsonl", ['{"x": 1.5, "y": "t"}'])
    write(tmp_path / "c.jsonl", ['{"x": 1, "y": 7}'])
    read = read_all(JsonLinesReader(), tmp_path, ["a.jsonl", "b.jsonl"])
    assert read.columns["x"] == [1.0, 1.5]
    with pytest.raises(SourceError, match=r"'y' is text in a\.jsonl and int64 in c"):
        JsonLinesReader().plan(listed(tmp_path, ["a.jsonl", "b.jsonl", "c.jsonl"]))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"", "holds none"),
        (b"\n \n", "holds none"),
        (b"{}", "holds none"),
        (b'{"a": {}}\n{"a": {"b": {}}}\n', "holds none"),
        (b"{}\n{\n", "1 of 2 sampled lines are not"),
        (b"[\n {},\n {}\n]\n", "holds none"),
        (b"[1, 2]", "2 of 2 sampled lines are not"),
        (b"[]", "holds none"),
        (b'{"a/b": 1, "a": {"b": 2}}\n', "'a/b' occurs twice"),
        (b'{"": 1}\n', "one has none"),
        (b"id,name\n1,x\n", "2 of 2 sampled lines"),
        (codecs.BOM_UTF16_LE + b'{"a": 1}\n', r"a\.jsonl is UTF-16 or UTF-32"),
        (codecs.BOM_UTF32_BE + b'{"a": 1}\n', r"a\.jsonl is UTF-16 or UTF-32"),
        (b'[{"a": 1} {"a": 2}]', r"a\.jsonl, byte 10: a comma must"),
        (b'[{"a": 1}] 2', r"a\.jsonl, byte 11: nothing must"),
        (b'[{"a": 1}]\n[{"a": 2}]', r"a\.jsonl, byte 11: nothing must"),
        (b'[{"a": 1}, {"a":', r"a\.jsonl, byte 16: '\]' must"),
        (b'[{"a": 1}, {"a": 2}', r"a\.jsonl, byte 19: '\]' must"),
        (b'[{"a": 1}}', r"a\.jsonl, byte 9: '\]' must"),
    ],
)
def test_fault_92_what_is_no_table_is_an_error(
    tmp_path: pathlib.Path, text: bytes, match: str
) -> None:
    """Empty files, cut arrays, ambiguous names and other formats have own errors."""
    (tmp_path / "a.jsonl").write_bytes(text)
    with pytest.raises(SourceError, match=match):
        JsonLinesReader().plan(listed(tmp_path, ["a.jsonl"]))


@pytest.mark.parametrize("count", [65, 200])
def test_small_files_are_all_sampled(count: int, tmp_path: pathlib.Path) -> None:
    """A key that one file alone has is a column, however many files there are."""
    for number in range(count):
        more = ', "b": 1' if number == count - 2 else ""
        write(tmp_path / f"{number:03d}.jsonl", [f'{{"a": {number}{more}}}'])
    names = [f"{number:03d}.jsonl" for number in range(count)]
    sample = JsonLinesReader().plan(listed(tmp_path, names)).sample
    assert sample.complete
    assert not sample.notes
    assert sample.columns["b"].null_count == count - 1


def test_a_note_says_that_other_lines_may_have_more(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more files than are looked into; not if all lines are looked at."""
    monkeypatch.setattr(json_lines, "_MOST_FILES", 8)
    for number in range(9):
        write(tmp_path / f"{number}.jsonl", ['{"a": 1}'])
    files = listed(tmp_path, [f"{number}.jsonl" for number in range(9)])
    (note,) = JsonLinesReader().plan(files).sample.notes
    assert note.startswith("the columns are the keys of 8 sampled lines; ")
    assert not JsonLinesReader(full=True).plan(files).sample.notes


def test_nesting_is_counted_in_the_memory_of_the_text() -> None:
    """And not of an integer for each of its bytes: it is on top of each sample."""
    line = b'{"a": [%s0]}\n' % (b"0, " * 300)
    lines = lines_of(line * 4000)
    tracemalloc.start()
    _, indices, _ = json_lines.columns_of(lines, json_lines.learned(lines.data))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(indices) == 4000
    assert most < 3 * len(lines.data)


def test_a_line_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is one endless line is named with the line, in bounded memory."""
    monkeypatch.setattr("transforms.formats.json_lines.cut.MAX_LINE_BYTES", 1 << 20)

    class Endless(io.BufferedIOBase):
        def read(self, size: int | None = -1, /) -> bytes:
            return b"x" * (size or 0)

    with pytest.raises(SourceError, match="line 1: the line that starts here"):
        list(cut(Endless(), "a.jsonl", 1 << 10))


def test_fault_109_a_full_pass_finds_a_late_type(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `full`, what the sample has not seen is a column, and of the right type."""
    monkeypatch.setattr(json_lines, "SAMPLE_BYTES", 1 << 16)
    lines = [json.dumps({"a": i}) for i in range(12_000)]
    lines[5_001] = '{"a": 9007199254740993.5, "late": "x"}'
    lines[5_002] = '{"a": 9007199254740993}'
    write(tmp_path / "a.jsonl", lines)
    read = read_all(JsonLinesReader(full=True), tmp_path, ["a.jsonl"])
    assert len(read.numbers) == 12_000
    assert read.columns["a"][5_000:5_003] == [
        "5000",
        "9007199254740993.5",
        "9007199254740993",
    ]
    assert read.columns["late"][5_001] == "x"
