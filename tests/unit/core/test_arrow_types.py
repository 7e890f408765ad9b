"""One lattice of Arrow types, with a policy for each way into the pipeline."""

import pyarrow as pa
import pytest

from transforms.core.rows.common_type import FILES, PYTHON, plain_type, wider_type


@pytest.mark.parametrize(
    ("a", "b", "files", "python"),
    [
        (pa.int8(), pa.int64(), pa.int64(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint64(), pa.uint64()),
        (pa.int8(), pa.uint64(), None, pa.int64()),
        (pa.int64(), pa.float32(), None, pa.float64()),
        (pa.float16(), pa.float32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.decimal128(5, 2), None, pa.decimal256(22, 2)),
        (pa.null(), pa.date32(), pa.date32(), pa.date32()),
        (pa.string(), pa.binary(), None, pa.binary()),
        (pa.timestamp("s"), pa.timestamp("us"), None, pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC"), None, None),
        (pa.date32(), pa.timestamp("us"), None, None),
        (pa.bool_(), pa.int64(), None, None),
        (pa.int64(), pa.string(), None, None),
        (
            pa.decimal128(5, 2),
            pa.decimal128(9, 4),
            pa.decimal256(9, 4),
            pa.decimal256(9, 4),
        ),
        (
            pa.list_(pa.int64(), 2),
            pa.list_(pa.int64(), 3),
            pa.large_list(pa.int64()),
            pa.list_(pa.int64()),
        ),
        (
            pa.list_(pa.null()),
            pa.list_(pa.int64()),
            pa.large_list(pa.int64()),
            pa.list_(pa.int64()),
        ),
        (
            pa.list_(pa.int8(), 2),
            pa.list_(pa.int16(), 2),
            pa.large_list(pa.int64()),
            pa.list_(pa.int64(), 2),
        ),
        (
            pa.struct([("a", pa.int8())]),
            pa.struct([("b", pa.int8())]),
            None,
            pa.struct([("a", pa.int8()), ("b", pa.int8())]),
        ),
    ],
)
def test_the_wider_type_depends_on_the_door(
    a: pa.DataType,
    b: pa.DataType,
    files: pa.DataType | None,
    python: pa.DataType | None,
) -> None:
    """Files of one source must agree in kind; Python values are checked one by one."""
    assert wider_type(a, b, FILES) == wider_type(b, a, FILES) == files
    assert wider_type(a, b, PYTHON) == python
    if a.id != pa.struct([]).id:
        assert wider_type(b, a, PYTHON) == python


@pytest.mark.parametrize(
    ("kind", "files", "python"),
    [
        (pa.large_binary(), pa.large_binary(), pa.binary()),
        (
            pa.large_list(pa.large_string()),
            pa.large_list(pa.string()),
            pa.list_(pa.string()),
        ),
        (pa.run_end_encoded(pa.int32(), pa.int8()), pa.int8(), pa.int8()),
        (
            pa.timestamp("s", "Asia/Seoul"),
            pa.timestamp("s", "Asia/Seoul"),
            pa.timestamp("s", "UTC"),
        ),
    ],
)
def test_the_plain_type_depends_on_the_door(
    kind: pa.DataType, files: pa.DataType, python: pa.DataType
) -> None:
    """Files keep offsets of 64 bits and zones; equal Python values get one type."""
    assert plain_type(kind, FILES) == files
    assert plain_type(kind, PYTHON) == python
