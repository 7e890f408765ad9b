"""Fixed-length records: layouts against struct, PNG against decoders, and faults."""

import dataclasses
import hashlib
import io
import os
import pathlib
import struct
import zlib
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.support.idx import noise
from transforms.core.image.png_encode import encode_png
from transforms.core.model import Reason
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import EncodingError, SourceError, SpecError
from transforms.formats.binary.class_names import read_names
from transforms.formats.binary.columns import column_of, features_of
from transforms.formats.binary.fixed_length import FixedLengthReader
from transforms.formats.binary.layout import DTYPES, BinaryField, Layout
from transforms.formats.binary.record_rows import sample_places
from transforms.formats.input_files import InputFiles
from transforms.formats.table import InputFile, RawRows
from transforms.formats.table_source import TableSource

CODES = dict(zip(DTYPES, "BbHhIiQqefd", strict=True))


def listed(path: pathlib.Path, origin: str = "") -> InputFile:
    return InputFile(origin or path.name, str(path), path.stat().st_size)


def read_all(
    reader: Any, file: InputFile, columns: list[str], block_bytes: int = 1 << 20
) -> list[RawRows]:
    return [
        raw
        for block in reader.blocks(file, block_bytes=block_bytes, limit_rows=None)
        for raw in reader.read(file, block, columns)
    ]


def rows_of(raws: list[RawRows], name: str) -> list[Any]:
    return [value for raw in raws for value in raw.columns[name].to_pylist()]


numbers = {
    code: st.integers(-(2 ** (8 * struct.calcsize(code) - 1)) * (code.islower()), top)
    for code, top in (
        (code, 2 ** (8 * struct.calcsize(code) - code.islower()) - 1)
        for code in "BbHhIiQq"
    )
} | {
    "e": st.floats(width=16, allow_nan=False),
    "f": st.floats(width=32, allow_nan=False),
    "d": st.floats(width=64, allow_nan=False),
}


@given(st.data())
def test_decoding_agrees_with_struct(data: st.DataObject) -> None:
    """Any layout gives the numbers that struct packed, record by record."""
    fields: list[BinaryField] = [
        BinaryField(
            f"field {i}",
            data.draw(st.sampled_from(DTYPES)),
            data.draw(st.sampled_from([(), (3,), (2, 2)])),
            endianness=data.draw(st.sampled_from(["little", "big"])),
            skip=data.draw(st.integers(0, 3)),
            store="list",
        )
        for i in range(data.draw(st.integers(1, 4)))
    ]
    layout = Layout(tuple(fields), header_bytes=3)
    records, expected = [], []
    for _ in range(data.draw(st.integers(0, 5))):
        record, row = b"", []
        for field in fields:
            code = CODES[field.dtype]
            count = int(np.prod(field.shape, dtype=int))
            values = [data.draw(numbers[code]) for _ in range(count)]
            sign = "<" if field.endianness == "little" else ">"
            record += b"\xee" * field.skip + struct.pack(
                f"{sign}{count}{code}", *values
            )
            row.append(values if field.shape else values[0])
        records.append(record)
        expected.append(row)
        assert len(record) == layout.size
    views = layout.views(b"".join(records))
    for i, field in enumerate(fields):
        found = column_of(field, views[field.name])
        assert found.to_pylist() == [row[i] for row in expected]


@pytest.mark.parametrize(
    ("order", "shape", "axes"),
    [
        ("C", (2, 3, 4), (0, 1, 2)),
        ("F", (2, 3, 4), (2, 1, 0)),
        ("CHW", (3, 4, 5), (1, 2, 0)),
        ("CWH", (3, 4, 5), (2, 1, 0)),
        ("WH", (4, 5), (1, 0)),
        ("TCHW->THWC", (2, 3, 4, 5), (0, 2, 3, 1)),
    ],
)
@pytest.mark.parametrize("endianness", ["little", "big"])
def test_order_turns_axes(
    order: str,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    endianness: Literal["little", "big"],
) -> None:
    """Tensors are little-endian bytes, row by row, of the axes that the order says."""
    stored = np.arange(2 * np.prod(shape), dtype=np.uint16).reshape(2, *shape)
    field = BinaryField("x", "uint16", shape, order, endianness)
    data = stored.astype(stored.dtype.newbyteorder(endianness)).tobytes()
    found = column_of(field, Layout((field,)).views(data)["x"])
    assert found.type == pa.binary()
    wanted = [np.transpose(one, axes) for one in stored]
    assert found.to_pylist() == [one.astype("<u2").tobytes() for one in wanted]
    assert field.result_shape == wanted[0].shape


def test_offsets_and_padding() -> None:
    """Fields are at their offsets and may overlap; records may continue after them."""
    layout = Layout(
        (
            BinaryField("whole", "uint32", offset=4),
            BinaryField("low", "uint8", offset=4),
            BinaryField("next", "uint8", skip=1),
        ),
        record_bytes=10,
    )
    assert (layout.offsets, layout.size) == ((4, 4, 6), 10)
    record = bytes([9, 9, 9, 9, 1, 2, 3, 4, 9, 9])
    views = layout.views(record * 2)
    assert views["whole"].tolist() == [0x04030201] * 2
    assert (views["low"].tolist(), views["next"].tolist()) == ([1, 1], [3, 3])


MAPPING = {
    "header_bytes": 16,
    "endianness": "big",
    "fields": [
        {"name": "label", "dtype": "uint8", "label": True, "classes": "names.txt"},
        {"name": "image", "dtype": "uint8", "shape": [3, 4, 5], "order": "CHW"},
        {"name": "when", "dtype": "int64", "offset": 70},
    ],
}


def test_layout_from_mapping() -> None:
    """A YAML mapping makes a layout."""
    layout = Layout.from_mapping(MAPPING)
    assert layout.fields[1].result_shape == (4, 5, 3)
    assert (layout.header_bytes, layout.size) == (16, 78)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"header_byte": 1}, "header_bytes"),
        ({"header_bytes": "16"}, "header_bytes"),
        ({"header_bytes": -1}, "header_bytes"),
        ({"header_bytes": True}, "header_bytes"),
        ({"endianness": "middle"}, "endianness"),
        ({"fields": []}, "fields"),
        ({"fields": "label"}, "fields"),
        ({"fields": ["label"]}, "fields[0]"),
        ({"fields": [{"name": "x"}]}, "dtype"),
        ({"fields": [{"name": "x", "dtype": "uint7"}]}, "uint7"),
        ({"fields": [{"name": "x", "dtype": "object"}]}, "object"),
        ({"fields": [{"name": "", "dtype": "int8"}]}, "name"),
        ({"fields": [{"name": "x", "dtype": "int8"}] * 2}, "once"),
        ({"fields": [{"name": "x", "dtype": "int8", "shape": [0]}]}, "shape"),
        ({"fields": [{"name": "x", "dtype": "int8", "shape": ["3"]}]}, "shape"),
        ({"fields": [{"name": "x", "dtype": "int8", "shape": [1 << 31]}]}, "record"),
        ({"fields": [{"name": "x", "dtype": "int8", "order": "HW"}]}, "order"),
        (
            {
                "fields": [
                    {"name": "x", "dtype": "int8", "shape": [1, 2], "order": "TS"}
                ]
            },
            "order",
        ),
        ({"fields": [{"name": "x", "dtype": "int8", "offset": -1}]}, "offset"),
        ({"fields": [{"name": "x", "dtype": "int8", "store": "jpeg"}]}, "store"),
        (
            {"fields": [{"name": "x", "dtype": "int8", "shape": [4], "store": "png"}]},
            "png",
        ),
        (
            {"fields": [{"name": "x", "dtype": "int8", "shape": [4], "label": True}]},
            "label",
        ),
        ({"fields": [{"name": "x", "dtype": "float32", "classes": "a"}]}, "classes"),
        ({"record_bytes": 5}, "record_bytes"),
    ],
)
def test_wrong_layout_names_the_key(change: dict[str, Any], word: str) -> None:
    """A layout that makes no sense is refused before anything is read."""
    with pytest.raises(SpecError, match=word.replace("[", r"\[")):
        Layout.from_mapping({**MAPPING, **change})


# --- PNG --------------------------------------------------------------------------


def test_png_decodes_with_pillow() -> None:
    """Pillow gives back every pixel of every mode that it has."""
    for mode, channels in (("L", 1), ("LA", 2), ("RGB", 3), ("RGBA", 4)):
        pixels = noise((9, 20, 30, channels), "uint8", smooth=True)
        for data, wanted in zip(encode_png(pixels).to_pylist(), pixels, strict=True):
            with Image.open(io.BytesIO(data)) as image:
                assert image.mode == mode
                assert np.array_equal(np.array(image).reshape(wanted.shape), wanted)


def test_png_bytes() -> None:
    """One gray pixel of 7: signature, IHDR, the deflated `04 07`, IEND."""
    (data,) = encode_png(np.array([[[7]]], np.uint8)).to_pylist()
    assert data[:33] == bytes.fromhex(
        "89504e470d0a1a0a 0000000d 49484452 00000001 00000001 08 00 00 00 00 3a7e9b55"
    )
    assert zlib.decompress(data[41:-16]) == b"\x04\x07"
    assert data[-12:] == bytes.fromhex("00000000 49454e44 ae426082")


def test_png_of_a_batch_is_that_of_each() -> None:
    """How many images are encoded at once makes no difference to their bytes."""
    pixels = noise((70, 32, 32, 3), "uint8", smooth=True)
    one_by_one = [encode_png(pixels[i : i + 1])[0].as_py() for i in range(70)]
    assert encode_png(pixels).to_pylist() == one_by_one
    assert encode_png(pixels[::-1]).to_pylist() == one_by_one[::-1]
    assert encode_png(pixels[:0]).to_pylist() == []


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1, 4), "uint8"),
        ((1, 4, 4, 5), "uint8"),
        ((1, 4, 4), "int16"),
        ((1, 0, 4), "u1"),
    ],
)
def test_png_refuses_what_is_no_image(shape: tuple[int, ...], dtype: str) -> None:
    """Other shapes and types have no PNG."""
    with pytest.raises(EncodingError, match="PNG"):
        encode_png(np.zeros(shape, dtype))


# --- files ------------------------------------------------------------------------

LABELLED = Layout(
    (
        BinaryField("label", "uint8", label=True, classes="names.txt"),
        BinaryField("x", "float32", (2, 3), endianness="big"),
        BinaryField("n", "int16"),
    ),
    header_bytes=5,
)
NAMES = ("고양이", "dog", "goat")


def write_labelled(path: pathlib.Path, labels: list[int]) -> list[bytes]:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.with_name("names.txt").write_text("\n".join(NAMES) + "\n\n", "utf-8")
    records = [
        struct.pack(">B6f", label, *(i + j / 8 for j in range(6)))
        + struct.pack("<h", -i)
        for i, label in enumerate(labels)
    ]
    path.write_bytes(b"HEAD\n" + b"".join(records))
    return records


@pytest.mark.parametrize("block_bytes", [1, 27, 28, 100, 1 << 20])
def test_blocks_hold_all_records(tmp_path: pathlib.Path, block_bytes: int) -> None:
    """However a file is cut, its rows are those of its records, in order."""
    path = tmp_path / "data.bin"
    write_labelled(path, [i % 3 for i in range(40)])
    reader = FixedLengthReader(LABELLED)
    raws = read_all(reader, listed(path), ["n", "label", "x"], block_bytes)
    assert rows_of(raws, "label") == [NAMES[i % 3] for i in range(40)]
    assert rows_of(raws, "n") == [-i for i in range(40)]
    assert rows_of(raws, "x") == [
        struct.pack("<6f", *(i + j / 8 for j in range(6))) for i in range(40)
    ]
    assert np.concatenate([raw.numbers for raw in raws]).tolist() == list(range(40))
    assert len({(raw.block.origin, raw.block.start) for raw in raws}) == len(raws)
    if block_bytes > 1:
        least = block_bytes
        assert all(r.block.stop - r.block.start >= least for r in raws[:-1])


def test_limit_reads_the_first_rows(tmp_path: pathlib.Path) -> None:
    """A limit ends the blocks after this many rows."""
    path = tmp_path / "data.bin"
    write_labelled(path, [0] * 40)
    reader = FixedLengthReader(LABELLED)
    file = InputFile("data.bin", str(path), path.stat().st_size, position=1000)
    blocks = list(reader.blocks(file, block_bytes=81, limit_rows=7))
    assert [(b.first_row, b.rows) for b in blocks] == [(0, 3), (3, 3), (6, 1)]
    assert [b.start for b in blocks] == [5, 86, 167]
    assert [b.position for b in blocks] == [1005, 1086, 1167]


def test_sample_and_features(tmp_path: pathlib.Path) -> None:
    """The sample holds the columns as read, and their features."""
    files = []
    for name, count in (("a.bin", 900), ("b.bin", 0), ("c.bin", 2100)):
        write_labelled(tmp_path / name, [i % 3 for i in range(count)])
        files.append(listed(tmp_path / name))
    reader = FixedLengthReader(LABELLED)
    planned = reader.plan(files)
    sample = planned.sample
    assert (sample.rows, sample.total_rows, sample.complete) == (1024, 3000, False)
    assert set(sample.columns["label"].to_pylist()) == set(NAMES)
    assert planned.features == (
        Feature("label", Kind.LABEL, is_label=True, vocabulary=NAMES),
        Feature("x", Kind.TENSOR, shape=(2, 3), dtype="float32", encoding="raw"),
        Feature("n", Kind.INT64),
    )
    small = reader.plan(files[:2]).sample
    assert (small.rows, small.complete) == (900, True)
    assert reader.plan(files[1:2]).sample.rows == 0


def test_places_are_even() -> None:
    """Sampled records are ascending, inside their files and spread over all files."""
    places = sample_places([10, 0, 5000, 3], 8)
    assert [len(p) > 0 for p in places] == [True, False, True, False]
    assert sum(map(len, places)) == 1024
    assert all((np.diff(p) > 0).all() for p in places)
    assert places[2].max() < 5000
    assert places[0][0] == 0
    assert [p.tolist() for p in sample_places([2, 1], 8)] == [[0, 1], [0]]
    assert sum(map(len, sample_places([100], 1 << 30))) == 1


def test_features_of_images_and_numbers() -> None:
    """Images bring height, width and depth; lists their shape; floats are floats."""
    fields = (
        BinaryField("height", "uint8"),
        BinaryField("image", "uint8", (4, 4), store="png"),
        BinaryField("box", "float64", (4,), store="list"),
        BinaryField("label", "uint16", label=True),
    )
    assert features_of(fields, {}) == (
        Feature("height", Kind.INT64),
        Feature("image", Kind.IMAGE, inline=True),
        Feature("image/height", Kind.INT64, derived="height", derived_from="image"),
        Feature("width", Kind.INT64, derived="width", derived_from="image"),
        Feature("depth", Kind.INT64, derived="depth", derived_from="image"),
        Feature("box", Kind.FLOAT, shape=(4,)),
        Feature("label", Kind.INT64, is_label=True),
    )


def test_fault_132_label_outside_the_classes_is_a_reject(
    tmp_path: pathlib.Path,
) -> None:
    """A record whose label has no name is rejected; the others are kept."""
    path = tmp_path / "data.bin"
    records = write_labelled(path, [0, 3, 2, 255, 1])
    reader = FixedLengthReader(LABELLED)
    (raw,) = read_all(reader, listed(path), ["label", "n"])
    assert raw.columns["label"].to_pylist() == [NAMES[0], NAMES[2], NAMES[1]]
    assert raw.numbers.tolist() == [0, 2, 4]
    assert [(n, reason) for n, reason, _ in raw.refused] == [
        (1, Reason.OUT_OF_RANGE),
        (3, Reason.OUT_OF_RANGE),
    ]
    assert raw.reject is not None
    first, second = raw.reject(raw.refused)
    assert (first.row, second.row) == (2, 4)
    assert first.sha256 == hashlib.sha256(records[1]).hexdigest()
    assert "label" in second.message
    assert "255" in second.message
    assert "0 to 2" in second.message
    sample = reader.plan([listed(path)]).sample
    assert (sample.rows, sample.unread, sample.complete) == (3, 2, True)


def test_rejects_and_rows_through_a_source(tmp_path: pathlib.Path) -> None:
    """A TableSource over the reader accounts for every record."""
    path = tmp_path / "root" / "data.bin"
    write_labelled(path, [0, 1, 7, 2])
    reader = FixedLengthReader(LABELLED)
    file = listed(path)
    listing = tmp_path / "listing.arrow"
    table = InputFiles.of([file], root=str(tmp_path)).table
    with pa.ipc.new_file(str(listing), table.schema) as writer:
        writer.write_table(table)
    schema = Schema(reader.plan([file]).features)
    source = TableSource(reader, str(path.parent), str(listing), schema, block_bytes=1)
    readings = [r for b in source.blocks(0) for r in source.read(b)]
    rows = [row for r in readings for row in r.batch.rows.to_pylist()]
    assert [row["label"] for row in rows] == list(NAMES)
    assert [row["n"] for row in rows] == [0, -1, -3]
    (rejection,) = [r for reading in readings for r in reading.rejections]
    assert (rejection.row, rejection.reason) == (3, Reason.OUT_OF_RANGE)


@pytest.mark.parametrize("extra", [-6, -1, 1, 26])
def test_fault_133_size_must_be_that_of_whole_records(
    tmp_path: pathlib.Path, extra: int
) -> None:
    """A file that is not the header and whole records is an error with the sizes."""
    path = tmp_path / "data.bin"
    write_labelled(path, [0, 1])
    data = path.read_bytes()
    path.write_bytes(data[:extra] if extra < 0 else data + bytes(extra))
    reader = FixedLengthReader(LABELLED)
    size = str(path.stat().st_size)
    with pytest.raises(SourceError, match="records of 27 bytes") as found:
        reader.plan([listed(path)])
    assert size in str(found.value)
    assert "data.bin" in str(found.value)
    with pytest.raises(SourceError, match=size):
        list(reader.blocks(listed(path), block_bytes=100, limit_rows=None))


def test_fault_133_shorter_than_the_header(tmp_path: pathlib.Path) -> None:
    """A file that ends within the header is an error too."""
    path = tmp_path / "data.bin"
    path.write_bytes(b"HEA")
    with pytest.raises(SourceError, match="shorter than the header"):
        FixedLengthReader(LABELLED).plan([listed(path)])


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"a\n\nb\n", "line 2 is blank"),
        (b"a\nb\na\n", "twice"),
        (b"a\n\xff\n", "byte 2"),
        (b"", "line 1 is blank"),
        (None, "No such file"),
    ],
)
def test_names_must_match_ids(
    tmp_path: pathlib.Path, data: bytes | None, word: str
) -> None:
    """A file of names that does not determine the ids is an error."""
    path = tmp_path / "data.bin"
    write_labelled(path, [0])
    names = tmp_path / "names.txt"
    if data is None:
        names.unlink()
    else:
        names.write_bytes(data)
    with pytest.raises(SourceError, match=word):
        FixedLengthReader(LABELLED).plan([listed(path)])


def test_names_of_any_line_end(tmp_path: pathlib.Path) -> None:
    """A byte order mark, CRLF and blank lines at the end are no part of the names."""
    path = tmp_path / "names.txt"
    path.write_bytes("\ufeff고양이\r\nbig dog \r\n\r\n\r\n".encode())
    assert read_names(str(path)) == ("고양이", "big dog")


def test_names_must_be_the_same_in_all_folders(tmp_path: pathlib.Path) -> None:
    """Ids that mean one thing here and another there are an error."""
    for folder in ("a", "b"):
        write_labelled(tmp_path / folder / "data.bin", [0, 1])
    files = [listed(tmp_path / f / "data.bin", f"{f}/data.bin") for f in ("a", "b")]
    reader = FixedLengthReader(LABELLED)
    assert reader.plan(files).sample.rows == 4
    (tmp_path / "b" / "names.txt").write_text("dog\n고양이\ngoat\n", "utf-8")
    with pytest.raises(SourceError, match="same order"):
        reader.plan(files)


def test_reader_needs_a_layout_and_known_fields(tmp_path: pathlib.Path) -> None:
    """Without a layout nothing is read, and neither is a field that is not in it."""
    path = tmp_path / "data.bin"
    write_labelled(path, [0])
    with pytest.raises(SpecError, match="description"):
        FixedLengthReader().plan([listed(path)])
    with pytest.raises(SourceError, match="no column 'y'"):
        read_all(FixedLengthReader(LABELLED), listed(path), ["y"])


def test_file_that_changed_is_not_read(tmp_path: pathlib.Path) -> None:
    """A file with another stamp than it was listed with is an OSError."""
    path = tmp_path / "data.bin"
    write_labelled(path, [0, 1])
    file = InputFile("data.bin", str(path), path.stat().st_size, stamp=12345)
    reader = FixedLengthReader(LABELLED)
    (block,) = reader.blocks(file, block_bytes=1000, limit_rows=None)
    with pytest.raises(OSError, match="changed"):
        list(reader.read(file, block, ["n"]))
    os.truncate(path, 10)
    with pytest.raises(SourceError, match="changed"):
        reader.plan([file])
    with pytest.raises(SourceError, match="shorter"):
        reader.plan([dataclasses.replace(file, stamp=0)])
