"""Columns parsed as float32, against the rules for columns of text."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.stress import sizes
from transforms.core.model import Block
from transforms.core.rows.conform import conform
from transforms.core.rows.rounding import roundings_of
from transforms.core.schema import Feature, InexactIntegers, Kind, Missing, Schema
from transforms.formats.csv.dialect import CsvDialect
from transforms.formats.csv.read import read_raw
from transforms.formats.csv.records import parse_floats
from transforms.formats.csv.scan import Scan

NAMES = ("a", "b", "1", "c")
FLOATS = ("a", "b", "1")
SCHEMA = Schema(
    (
        Feature("a", Kind.FLOAT),
        Feature("b", Kind.FLOAT, missing=Missing.REJECT),
        Feature("1", Kind.FLOAT, inexact_integers=InexactIntegers.REJECT),
        Feature("c", Kind.TEXT),
    )
)
PLAIN = ["1", "-2.5", "0.25", "3.0e2", "1e-07", "0", "-0.0", "10.05", "100", "2E+03"]
ODD = [
    *("", " ", " 1", "2\t", '"3"', '""', '"4,5"', '"7\n8"', "+1", "1.", ".5", "-.5"),
    *("007", "-01", "+00.5", "0x1f", "00", "0e0", "1e05", "0 ", "1_0", "1,5", "٣"),
    *("nan", "NaN", "nan(1)", "inf", "-Infinity", "1e39", "-1e400", "NA", "null"),
    *("1e-46", "1e-40", "0.000e-99", "0." + "0" * 50 + "1", "0." + "0" * 50),
    *("16777216", "16777217", "33554433.5", "9" * 30, "x", "a", "\x1a", "\u00a01"),
    *("3.4028235e38", "3.4028236e38", "1.17549435e-38", "0.1", "16777215.9"),
]


def facts(data: bytes, typed: bool, dialect: CsvDialect) -> list[Any]:
    """Returns the rows of some records, and all that is said of them."""
    scan = Scan(dialect)
    starts, _ = scan.advance(data)
    block = Block("f.csv", 0, len(data), rows=starts.count())
    names = FLOATS if typed else ()
    raw = read_raw(data, block, dialect, NAMES, NAMES, (), names)
    count = len(raw.numbers)
    rows, misfits = conform(raw.columns, SCHEMA, count, "f.csv", texts_checked=True)
    keep = np.ones(count, np.bool_)
    for misfit in misfits:
        keep &= ~misfit.bad
    lost = roundings_of(raw.columns, rows, SCHEMA, keep, "{} {}".format)
    kept = rows.filter(pa.array(keep))
    return [
        [column.to_pylist() for column in kept.columns[3:]],
        # As bits, in which NaNs and zeros differ.
        [
            [None if x is None else np.float32(x).tobytes() for x in column.to_pylist()]
            for column in kept.columns[:3]
        ],
        raw.numbers.tolist(),
        raw.refused,
        raw.skipped,
        [
            (misfit.feature, place, misfit.complaint(place))
            for misfit in misfits
            for place in np.flatnonzero(misfit.bad).tolist()
        ],
        lost,
    ]


@pytest.mark.parametrize("seeds", sizes(range(3), range(200)), ids=str)
def test_rows_are_those_of_texts(seeds: range) -> None:
    """Rows, rejects and counts of rounded values are equal, whatever the cells are."""
    typed = 0
    for seed in range(seeds.start, 40 * seeds.stop):
        rng = random.Random(seed)
        oddness = rng.choice([0, 0, 0.02, 0.3])
        lines = []
        for _ in range(rng.randint(1, 6)):
            record = [
                rng.choice(ODD) if rng.random() < oddness else rng.choice(PLAIN)
                for _ in NAMES
            ]
            if rng.random() < oddness / 4:
                record = list(rng.choice([NAMES, NAMES[1:], ("\x1a",), ("",)]))
            lines.append(",".join(record))
        data = rng.choice(["\n", "\r\n"]).join(lines).encode()
        data += rng.choice([b"", b"\n"])
        dialect = CsvDialect(quote=rng.choice(['"', '"', ""]))
        scan = Scan(dialect)
        scan.advance(data)
        if scan.inside or not data.strip():
            continue
        assert facts(data, True, dialect) == facts(data, False, dialect), data
        names = FLOATS
        found = parse_floats(data, NAMES, NAMES, names, dialect)
        typed += found is not None
    assert typed


@pytest.mark.parametrize("cell", [*PLAIN, ""])
def test_plain_numbers_are_parsed(cell: str) -> None:
    """No text is made of them."""
    data = f"1.5,{cell},3,x\n".encode()
    found = parse_floats(data, NAMES, NAMES, FLOATS, CsvDialect())
    if "e" in cell.lower() or cell not in ("0", "-0.0"):
        assert found is not None
        assert [str(column.type) for column in found.columns] == [
            *["float"] * 3,
            "string",
        ]


@pytest.mark.parametrize(
    "cell", ["007", "-01", "nan", "inf", "16777217", "1e-46", "x", "1e39", "0e1"]
)
def test_what_a_rule_must_look_at_stays_text(cell: str) -> None:
    """The block is read by the rules for texts."""
    data = f"1.5,{cell},3,x\n".encode()
    assert parse_floats(data, NAMES, NAMES, FLOATS, CsvDialect()) is None


def test_names_that_are_numbers() -> None:
    """A repeated header of numbers is no row, so texts are compared."""
    names = ("1", "2")
    assert parse_floats(b"1,2\n", names, names, names, CsvDialect()) is None
