"""Fixed-length records: layouts against struct, PNG against decoders, and faults."""

import io
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
from transforms.core.schema import Feature, Kind
from transforms.errors import EncodingError
from transforms.formats.binary.columns import column_of, features_of
from transforms.formats.binary.layout import DTYPES, BinaryField, Layout
from transforms.formats.binary.record_rows import sample_places
from transforms.formats.table import InputFile, RawRows

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
