"""Avro: fastavro reading whole files is the oracle; damage is one error by name."""

import base64
import bz2
import datetime
import decimal
import io
import json
import lzma
import pathlib
import uuid
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.support.table_reading import Read, listed, read_all, rows_of
from transforms.core.reasons import Reason
from transforms.errors import InputError, UsageError
from transforms.formats.columnar import avro
from transforms.formats.columnar.avro import AvroReader

Folder = pathlib.Path
UTC = datetime.UTC
SYNC = b"0123456789abcdef"


def record(name: str = "R", /, **kinds: Any) -> dict[str, Any]:
    """Returns the schema of a record with these fields."""
    fields = [{"name": field, "type": kind} for field, kind in kinds.items()]
    return {"type": "record", "name": name, "fields": fields}


SCHEMA = {
    "namespace": "a.b",
    **record(
        "Row",
        i="int",
        l=["null", "long"],
        f="float",
        d=["double", "null"],
        b="boolean",
        t=["null", "string"],
        raw="bytes",
        e={"type": "enum", "name": "E", "symbols": ["X", "Y"]},
        again=["null", "E"],
        x={"type": "fixed", "name": "F", "size": 3},
        list={"type": "array", "items": ["null", "long"]},
        map={"type": "map", "values": "int"},
        s=["null", record("S", a="int")],
        objects={"type": "array", "items": "S"},
    ),
}


LONGS = record(x="long")


def row(n: int) -> dict[str, Any]:
    return {
        "i": n,
        "l": None if n % 3 == 0 else -(2**40) * n,
        "f": n / 4,
        "d": n / 3 if n % 2 else None,
        "b": n % 2 == 0,
        "t": None if n % 5 == 0 else f"é{n}",
        "raw": bytes([n % 256]) * (n % 4),
        "e": "XY"[n % 2],
        "again": None if n % 2 else "X",
        "x": b"%03d" % (n % 1000),
        "list": [n, None][: n % 3],
        "map": {f"k{n}": n} if n % 2 else {},
        "s": {"a": n} if n % 4 else None,
        "objects": [{"a": n}] * (n % 3),
    }


def flat(given: dict[str, Any]) -> dict[str, Any]:
    """A row of `SCHEMA` in flat columns, by hand."""
    out = dict(given)
    struct, objects, pairs = out.pop("s"), out.pop("objects"), out.pop("map")
    out["s/a"] = None if struct is None else struct["a"]
    out["objects/a"] = [each["a"] for each in objects]
    out["map/key"], out["map/value"] = [*pairs], [*pairs.values()]
    return out


def write(
    path: Folder,
    rows: list[Any],
    schema: Any = SCHEMA,
    *,
    codec: str = "null",
    block: int = 2000,
) -> None:
    options: dict[str, Any] = {"sync_interval": block, "sync_marker": SYNC}
    with path.open("wb") as out:
        fastavro.writer(out, schema, rows, codec, **options)


def read(folder: Folder, *names: str, **options: Any) -> Read:
    return read_all(AvroReader(), folder, names or ["a.avro"], **options)


@pytest.mark.parametrize("block_bytes", [1, 5000, 1 << 24])
@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_rows_are_those_of_the_whole_file(
    tmp_path: Folder, codec: str, block_bytes: int
) -> None:
    """By runs of blocks, with every codec, values are those that were written."""
    rows = [row(n) for n in range(500)]
    write(tmp_path / "a.avro", rows, codec=codec)
    found = read(tmp_path, block_bytes=block_bytes)
    assert rows_of(found) == [
        {name: value[name] for name in found.columns} for value in map(flat, rows)
    ]
    assert found.planned.sample.total_rows == 500
    assert found.planned.sample.complete
    if block_bytes == 1:
        assert len(found.blocks) > 3


def snappy(data: bytes) -> bytes:
    packed: bytes = pa.Codec("snappy").compress(data, asbytes=True)
    return packed + zlib.crc32(data).to_bytes(4, "big")


def zstandard(data: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(data, asbytes=True)
    return packed


@pytest.mark.parametrize("pack", [snappy, zstandard])
def test_codecs_that_fastavro_has_no_library_for(
    tmp_path: Folder, pack: Callable[[bytes], bytes]
) -> None:
    """Arrow unpacks Snappy and Zstandard, so that no more is to be installed."""
    blocks = []
    for start in range(0, 300, 50):
        out = io.BytesIO()
        for n in range(start, start + 50):
            fastavro.schemaless_writer(out, SCHEMA, row(n))
        blocks.append(block_of(50, pack(out.getvalue())))
    whole = file_of(SCHEMA, *blocks, codec=pack.__name__.encode())
    (tmp_path / "a.avro").write_bytes(whole)
    found = read(tmp_path)
    assert found.columns["i"] == list(range(300))
    assert found.columns["t"] == [row(n)["t"] for n in range(300)]
    # A bit of the last block's packed bytes.
    data = bytearray(whole)
    data[-20] ^= 1
    (tmp_path / "a.avro").write_bytes(data)
    with pytest.raises(InputError, match="cannot be read as Avro"):
        read(tmp_path)


def logical(kind: str, meaning: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


AT = datetime.datetime(2026, 1, 2, 3, 4, 5)
MILLIS, MICROS = AT.replace(microsecond=6000), AT.replace(microsecond=6)
OLD = MICROS.replace(year=1912, tzinfo=UTC)
UUID = uuid.UUID("12345678123456781234567812345678")
FIXED = {"name": "D", "size": 6, "precision": 6, "scale": 2}
LOGICAL = {
    "date": (logical("int", "date"), datetime.date(2026, 11, 22)),
    "time_ms": (logical("int", "time-millis"), datetime.time(1, 2, 3, 4000)),
    "time_us": (logical("long", "time-micros"), datetime.time(1, 2, 3, 4)),
    "at_ms": (logical("long", "timestamp-millis"), MILLIS.replace(tzinfo=UTC)),
    "at_us": (logical("long", "timestamp-micros"), OLD),
    "local_ms": (logical("long", "local-timestamp-millis"), MILLIS),
    "local_us": (logical("long", "local-timestamp-micros"), MICROS),
    "dec": (
        logical("bytes", "decimal", precision=10, scale=3),
        decimal.Decimal("-12345.678"),
    ),
    "wide": (
        logical("bytes", "decimal", precision=60, scale=0),
        decimal.Decimal(10**59),
    ),
    "fixed_dec": (logical("fixed", "decimal", **FIXED), decimal.Decimal("3.50")),
    "uuid": (logical("string", "uuid"), UUID),
}


def test_logical_types_are_those_of_arrow(tmp_path: Folder) -> None:
    """Dates, times, instants with a zone and without, decimals, uuids; in lists too."""
    days = {"type": "array", "items": ["null", logical("int", "date")]}
    kinds = {name: kind for name, (kind, _) in LOGICAL.items()}
    schema = record(**kinds, days=days)
    values = {name: value for name, (_, value) in LOGICAL.items()}
    values["days"] = [datetime.date(1970, 1, 2), None]
    write(tmp_path / "a.avro", [values], schema)
    found = read(tmp_path)
    (seen,) = rows_of(found)
    assert seen == {**values, "uuid": str(values["uuid"])}
    types = {name: str(c.type) for name, c in found.planned.sample.columns.items()}
    assert types["at_us"] == "timestamp[us, tz=UTC]"
    assert types["local_ms"] == "timestamp[ms]"
    assert types["dec"] == "decimal128(38, 3)"
    assert types["wide"] == "decimal256(76, 0)"


def test_logical_types_that_are_not_known_are_passed_over(tmp_path: Folder) -> None:
    """As in the specification, the plain type is used."""
    kind = record(x=logical("long", "of-my-own"))
    write(tmp_path / "a.avro", [{"x": 7}], kind)
    assert read(tmp_path).columns == {"x": [7]}
    fixed = {"type": "fixed", "name": "U", "size": 16}
    given = uuid.uuid5(uuid.NAMESPACE_DNS, "a")
    write(tmp_path / "a.avro", [{"x": given.bytes}], record(x=fixed))
    data = (tmp_path / "a.avro").read_bytes()
    assert read(tmp_path).columns == {"x": [given.bytes]}
    schema = json.dumps(record(x={**fixed, "logicalType": "uuid"})).encode()
    (tmp_path / "a.avro").write_bytes(with_schema(data, schema))
    assert read(tmp_path).columns == {"x": [str(given)]}


def long(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def with_schema(data: bytes, schema: bytes, codec: bytes = b"null") -> bytes:
    """The blocks of a file behind a header of another schema or codec."""
    entries = {b"avro.schema": schema, b"avro.codec": codec}
    header = b"".join(
        long(len(part)) + part for pair in entries.items() for part in pair
    )
    start = b"Obj\x01" + long(len(entries)) + header + b"\0"
    return start + SYNC + data.split(SYNC, 1)[1]


def block_of(rows: int, data: bytes) -> bytes:
    return long(rows) + long(len(data)) + data + SYNC


def file_of(schema: Any, *blocks: bytes, codec: bytes = b"null") -> bytes:
    return with_schema(SYNC + b"".join(blocks), json.dumps(schema).encode(), codec)


@pytest.mark.parametrize(
    ("union", "values", "kind"),
    [
        (["int", "long"], [1, 2**40], "int64"),
        (["null", "float", "double"], [0.5, None], "double"),
        (["null"], [None, None], "null"),
        (["string"], ["a", "b"], "string"),
    ],
)
def test_unions(tmp_path: Folder, union: Any, values: list[Any], kind: str) -> None:
    """Of null and one type, or of numbers of two widths."""
    write(
        tmp_path / "a.avro",
        [{"x": v, "y": 1} for v in values],
        record(x=union, y="int"),
    )
    found = read(tmp_path)
    assert found.columns["x"] == values
    assert str(found.planned.sample.columns["x"].type) == kind


def test_rows_that_are_no_records_are_one_column(tmp_path: Folder) -> None:
    """As an array of NumPy is."""
    write(tmp_path / "a.avro", ["x", None], ["null", "string"])
    assert read(tmp_path).columns == {"value": ["x", None]}


def test_rows_with_text_that_is_not_utf8_are_rejected(tmp_path: Folder) -> None:
    """One by one; the rows around them are kept."""
    rows = [{"x": text, "y": n} for n, text in enumerate([b"a", b"\xff", b"c"])]
    write(tmp_path / "a.avro", rows, record(x="bytes", y="int"))
    data = with_schema(
        (tmp_path / "a.avro").read_bytes(),
        json.dumps(record(x="string", y="int")).encode(),
    )
    (tmp_path / "a.avro").write_bytes(data)
    (file,) = listed(tmp_path, ["a.avro"])
    (block,) = AvroReader().blocks(file, block_bytes=1, limit_rows=None)
    (raw,) = AvroReader().read(file, block, ["x", "y"])
    assert raw.columns["y"].to_pylist() == [0, 2]
    assert [(n, reason) for n, reason, _ in raw.refused] == [
        (1, Reason.INVALID_ENCODING)
    ]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"PAR1" * 9, "must start with 'Obj' and 1"),
        (b"Obj\x01", "its header is damaged"),
        (b"Obj\x01\x02" + long(2**40), "its header is damaged"),
        (b"Obj\x01" + b"\xff" * 20, "its header is damaged"),
        (file_of(LONGS)[:-5], "its header ends within"),
        (file_of(LONGS, codec=b"lz4"), "codec must be one of .*found 'lz4'"),
        (with_schema(SYNC, b"{"), "schema must be sound, .* but it is no JSON"),
        (with_schema(SYNC, b"[" * 100_000), "schema must be sound"),
        (file_of({"type": "nothing"}), "it names no type 'nothing'"),
        (file_of({"type": "record", "name": "R"}), "KeyError: 'fields'"),
        (
            file_of(record("Tree", child=["null", "Tree"])),
            "'Tree' holds values of its own type",
        ),
        (file_of(record(x=["int", "string"])), "a union must be of null and one other"),
        (file_of(record(x="null")), "its rows must take bytes"),
        (
            file_of(record(x={"type": "array", "items": "null"})),
            "arrays whose items take no bytes",
        ),
        (file_of(LONGS, block_of(2**50, b"\x02")), "cannot hold them"),
        (file_of(LONGS, block_of(-1, b"\x02")), "has -1 rows"),
        (file_of(LONGS, block_of(1, b"\x02\0")), "they end elsewhere"),
        (file_of(record(x="string"), block_of(1, long(9) + b"a")), "are not 1 rows"),
        (
            file_of(LONGS, long(1) + long(1) + b"\x02" + b"?" * 16),
            "does not end with the sync marker",
        ),
        (file_of(LONGS, long(1) + long(99)), "1 rows in 99 bytes"),
        (
            file_of(LONGS, block_of(1, b"?"), codec=b"xz"),
            "the block at byte .* is not xz",
        ),
        (
            file_of(
                record(x={"type": "enum", "name": "E", "symbols": ["A"]}),
                block_of(1, long(7)),
            ),
            "cannot be read as Avro",
        ),
    ],
)
def test_damage_is_one_error_that_says_what(
    tmp_path: Folder, data: bytes, says: str
) -> None:
    """With the file and the place; never a crash, never memory without bounds."""
    (tmp_path / "a.avro").write_bytes(data)
    with pytest.raises(InputError, match=says) as caught:
        read(tmp_path)
    assert "a.avro" in str(caught.value)
    assert len(str(caught.value).encode()) <= 1024


BIG = bytes(1 << 20)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        ("null", BIG),
        ("deflate", zlib.compress(BIG)[2:-4]),
        ("bzip2", bz2.compress(BIG)),
        ("xz", lzma.compress(BIG)),
        ("zstandard", zstandard(BIG)),
        ("snappy", snappy(BIG)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bombs_of_every_codec_are_refused(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, codec: str, data: bytes
) -> None:
    """By what a block unpacks to, of which no more is unpacked."""
    whole = file_of(LONGS, block_of(1, data), codec=codec.encode())
    (tmp_path / "a.avro").write_bytes(whole)
    monkeypatch.setattr(avro, "MAX_BLOCK_BYTES", len(BIG) - 1)
    with pytest.raises(InputError, match="taken for a bomb"):
        read(tmp_path)


def test_named_types_that_multiply_are_refused(tmp_path: Folder) -> None:
    """Thirty types of two fields each would be a billion columns."""
    kind: Any = "long"
    for level in range(30):
        kind = record(f"T{level}", a=kind, b=f"T{level - 1}" if level else "long")
    (tmp_path / "a.avro").write_bytes(file_of(kind))
    with pytest.raises(InputError, match="over 10,000 types"):
        read(tmp_path)


# weather-snappy.avro of Apache Avro's test files, written by its Java library.
WEATHER = """
T2JqAQQUYXZyby5jb2RlYwxzbmFwcHkWYXZyby5zY2hlbWHyAnsidHlwZSI6InJlY29yZCIsIm5h
bWUiOiJXZWF0aGVyIiwibmFtZXNwYWNlIjoidGVzdCIsImRvYyI6IkEgd2VhdGhlciByZWFkaW5n
LiIsImZpZWxkcyI6W3sibmFtZSI6InN0YXRpb24iLCJ0eXBlIjoic3RyaW5nIn0seyJuYW1lIjoi
dGltZSIsInR5cGUiOiJsb25nIn0seyJuYW1lIjoidGVtcCIsInR5cGUiOiJpbnQifV19AGyPKb9o
x8ksrnvJcSizymEKkAFmIBgwMTE5OTAtOQEBGP+jkOiHJAA2FAAUgfvWhyQsNhQALKWuwockFRgw
MTI2NRE8GLeii5Qm3gE2FQAY29X2kyacAVBYyhFsjym/aMfJLK57yXEos8ph
"""


def test_a_file_of_the_java_library(tmp_path: Folder) -> None:
    """Snappy with its checksum, a namespace, documentation in the schema."""
    (tmp_path / "a.avro").write_bytes(base64.b64decode(WEATHER))
    assert read(tmp_path).columns == {
        "station": ["011990-99999"] * 3 + ["012650-99999"] * 2,
        "time": [
            *(-619524000000, -619506000000, -619484400000),
            *(-655531200000, -655509600000),
        ],
        "temp": [0, 22, -11, 111, 78],
    }


def test_a_library_that_is_missing_is_named(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the extra that brings it."""
    write(tmp_path / "a.avro", [{"x": 1}], LONGS)
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(UsageError, match=r"beam-tfrecord\[avro\]"):
        read(tmp_path)
