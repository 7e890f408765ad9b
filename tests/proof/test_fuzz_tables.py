"""Damaged tables of text: rows, rejections or one typed error, and no row is lost."""

import functools
import gzip
import json
import pathlib
from collections.abc import Sequence

import pytest

from tests.conftest import Headline
from tests.support.fuzzing import OUTCOMES, Subject, corpus, fuzzed, mutated, replayed
from tests.support.stress import CASES

Folder = pathlib.Path

WORDS = (
    *('"', '""', ",", ";", "\t", "\\", "'", '"\n', '\n"', ',"', '",', ",,,,"),
    *("\n", "\r", "\r\n", "\n\n\n", "\0", "\x1a", "\ufeff", "\u2028", "#"),
    *("-", "+1", "1e999", "1e-999", "nan", "0x1", "007", "1_000", "true", "NA"),
    *("9223372036854775808", "-9223372036854775809", "9007199254740993", "null"),
    *("2024-01-01", "0001-01-01T00:00:00Z", "[1,2]", '{"a":1}', "a" * 300),
    *("TRAIN", "DISCARD", "i,f,b,t,c\n", "{", "}", "[", "]", ":", '"i":'),
)
NO_TEXT = (b"\xff", b"\xef\xbb\xbf", b"\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")
TOKENS = (*(word.encode() for word in WORDS), *NO_TEXT)

ROWS = "".join(
    f'{i},{i}.5,{"true" if i % 2 else "false"},"name, {i}",{"abc"[i % 3]}\n'
    for i in range(20)
)
QUOTED = (
    '\ufeffid;text;when\r\n1;"a ""q"" b";2024-01-02\r\n2;고양이;\r\n3;"x\r\ny";\r\n'
)
CSV = (
    Subject("a.csv", b"i,f,b,t,c\n" + ROWS.encode()),
    Subject("b.csv", QUOTED.encode(), {"delimiter": ";"}),
    Subject("c.tsv", b"x\ty\n1\t2\n-3\t4e5\n9223372036854775807\tnan\n"),
    Subject("d.csv", b"a,b\n1,2\n3,4\n", {"splits": {"x": 0.5, "y": 0.5}}),
    Subject("e.csv", "a,b\n1,é\n2,ü\n".encode("latin-1"), {"encoding": "latin-1"}),
    Subject("f.csv", "a,b\n1,é\n2,글\n".encode("utf-16"), {"encoding": "utf-16"}),
    Subject("g.csv", "가,나\n하나,둘\n".encode("cp949"), {"encoding": "cp949"}),
    Subject("h.csv", b"a|b\\|c|'d|e'\n" * 5, {"delimiter": "|", "quote": "'"}),
    Subject("i.csv", b"1,2,3\n4,5,6\n", {"header": False, "escape": "\\"}),
    Subject("j.csv", b"split,n,k\n" + b"TRAIN,1,a\nTEST,2,b\nUNASSIGNED,3,c\n" * 3),
    Subject("k.csv", b"n,k\n" + b"1,a\n2,b\n3,c\n" * 3, {"key_column": "k"}),
    Subject("l.csv.gz", gzip.compress(b"i,f,b,t,c\n" + ROWS.encode(), mtime=0)),
)
JSON_ROWS = [
    {"i": i, "f": i / 2, "t": f"글 {i}", "b": i % 2 == 0, "l": [i, i + 1], "n": None}
    for i in range(12)
]
NESTED = [{"o": {"p": [{"q": 1}], "r": "x"}, "m": [[1, 2], [3]]}, {"o": {"r": None}}]


def json_lines(rows: Sequence[object]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


JSON = (
    Subject("a.jsonl", json_lines(JSON_ROWS)),
    Subject("b.jsonl", json_lines(NESTED)),
    Subject("c.jsonl", b'{"a":9007199254740993}\r\n\r\n{"a":"\\ud83d\\ude00"}\n'),
    Subject("d.jsonl.gz", gzip.compress(json_lines(JSON_ROWS), mtime=0)),
)
with_tokens = functools.partial(mutated, tokens=TOKENS)


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_csv(cases: range, tmp_path: Folder, headline: Headline) -> None:
    """Any damage to a CSV gives rows, rejections or one typed error, soon."""
    outcomes = fuzzed(tmp_path, CSV, cases, change=with_tokens)
    assert min(outcomes[kind] for kind in OUTCOMES) > len(cases) // 20, outcomes
    headline("H5", "{} damaged CSV files: no crash, hang or loss", len(cases))


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_damaged_json_lines(cases: range, tmp_path: Folder, headline: Headline) -> None:
    """Any damage to JSON lines gives rows, rejections or one typed error, soon."""
    outcomes = fuzzed(tmp_path, JSON, cases, change=with_tokens)
    assert min(outcomes[kind] for kind in OUTCOMES) > len(cases) // 50, outcomes
    headline("H5", "{} damaged JSON lines files: no crash, hang or loss", len(cases))


@pytest.mark.parametrize("path", corpus("tables"), ids=lambda path: path.name)
def test_what_once_failed(path: Folder, tmp_path: Folder) -> None:
    """Every table that once made the program fail is read or refused."""
    assert replayed(path, tmp_path).kind in OUTCOMES
