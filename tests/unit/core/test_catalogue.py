"""The catalogue: its parts, columns and Parquet files."""

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transforms.core.catalogue import (
    catalogue_features,
    catalogue_schema,
    own_columns,
    part_ranges,
    write_part,
)
from transforms.core.schema import Feature, Kind
from transforms.errors import ExampleError

LABEL = Feature("label", Kind.LABEL)


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 20))
def test_parts_are_runs_of_all_shards(records: list[int], most: int) -> None:
    """Each shard is in one part; two neighbours would be too much for one."""
    ranges = part_ranges(records, most)
    assert [i for start, stop in ranges for i in range(start, stop)] == [
        *range(len(records))
    ]
    totals = [sum(records[start:stop]) for start, stop in ranges]
    for (start, stop), total in zip(ranges, totals, strict=True):
        assert total <= most or stop - start == 1
    for (_, stop), total in zip(ranges[:-1], totals[:-1], strict=True):
        assert total + records[stop] > most


def test_columns_are_features_of_one_value() -> None:
    """Texts only where wanted; a name of the catalogue's own is left out, and noted."""
    features = [
        Feature("id", Kind.INT64),
        Feature("list", Kind.FLOAT, shape=(3,)),
        Feature("note", Kind.TEXT),
        Feature("raw", Kind.BYTES),
        Feature("_row", Kind.INT64),
    ]
    kept, notes = catalogue_features(features)
    assert [each.name for each in kept] == ["id"]
    (note,) = notes
    assert "'_row'" in note
    kept, _ = catalogue_features(features, texts=True)
    assert [each.name for each in kept] == ["id", "note"]


def written(
    features: list[Feature],
    columns: dict[str, pa.Array],
    classes: dict[str, pa.StringArray] | None = None,
) -> pa.Table:
    """Returns rows as they come back from a part."""
    count = len(next(iter(columns.values())))
    longs = np.arange(count, dtype=np.int64)
    own = own_columns(0, longs, longs, longs.astype(np.uint32))
    sink = io.BytesIO()
    schema = catalogue_schema(features, classes or {})
    assert write_part(sink, [own | columns], schema, classes or {}) == count
    return pq.read_table(pa.BufferReader(sink.getvalue()))


def test_values_come_back() -> None:
    """NaN, infinities, the ends of int64, missing values, and class names."""
    features = [Feature("x", Kind.FLOAT), Feature("n", Kind.INT64), LABEL]
    columns = {
        "x": pa.array([float("nan"), float("-inf"), None], pa.float32()),
        "n": pa.array([-(2**63), 2**63 - 1, None]),
        "label": pa.array([2, None, 0]),
    }
    table = written(features, columns, {"label": pa.array(["고양이", "b", "c"])})
    for name in ("x", "n"):
        assert str(table[name].to_pylist()) == str(columns[name].to_pylist())
    assert table["label"].to_pylist() == ["c", None, "고양이"]
    assert table.schema.field("label").type == pa.dictionary(pa.int32(), pa.string())
    assert table["_crc32c"].type == pa.uint32()
    assert table["_size"].type == pa.int32()


def test_a_column_without_values_and_a_part_without_rows() -> None:
    """Both have their types."""
    table = written(
        [LABEL], {"label": pa.nulls(3, pa.int64())}, {"label": pa.array([])}
    )
    assert table["label"].null_count == 3
    table = written(
        [LABEL], {"label": pa.nulls(0, pa.int64())}, {"label": pa.array([])}
    )
    assert table.num_rows == 0
    assert "label" in table.schema.names


def test_every_column_has_its_type() -> None:
    """Those of the catalogue first; some of them only where there is such a thing."""
    units = ("s", "ms", "us", "ns")
    features = [
        *(Feature("n", Kind.INT64), Feature("x", Kind.FLOAT), Feature("b", Kind.BOOL)),
        *(LABEL, Feature("bare", Kind.LABEL), Feature("note", Kind.TEXT)),
        *(Feature(unit, Kind.TIMESTAMP, unit=unit) for unit in units),
    ]
    text = pa.dictionary(pa.int32(), pa.string())
    place = [("_shard", pa.int32()), ("_offset", pa.int64())]
    facts = [("_size", pa.int32()), ("_crc32c", pa.uint32())]
    others = [
        *(("n", pa.int64()), ("x", pa.float32()), ("b", pa.bool_())),
        *(("label", text), ("bare", pa.int64()), ("note", pa.string())),
        *((unit, pa.timestamp("ms" if unit == "s" else unit, "UTC")) for unit in units),
    ]
    classes = {"label": pa.array(["cat"])}
    assert catalogue_schema(features, classes) == pa.schema([*place, *facts, *others])
    assert catalogue_schema([], {}, origins=True, keys=True) == pa.schema(
        [
            *place,
            *facts,
            *(("_origin", text), ("_row", pa.int64()), ("_key", pa.string())),
        ]
    )


def test_seconds_are_milliseconds() -> None:
    """Those that do not fit are null, and stop nothing."""
    values = pa.array([0, -1, 2**62], pa.int64()).cast(pa.timestamp("s", "UTC"))
    feature = Feature("at", Kind.TIMESTAMP, unit="s")
    found = written([feature], {"at": values})["at"]
    assert found.type == pa.timestamp("ms", "UTC")
    assert found.cast(pa.int64()).to_pylist() == [0, -1000, None]


def test_a_row_group_holds_the_names_that_occur() -> None:
    """Of a million classes, none is written that no row has."""
    names = pa.array([f"class {i}" for i in range(1_000_000)])
    ids = pa.array([999_999, 5, 5])
    table = written([LABEL], {"label": ids}, {"label": names})
    assert table["label"].to_pylist() == ["class 999999", "class 5", "class 5"]
    assert table["label"].chunk(0).dictionary.to_pylist() == ["class 5", "class 999999"]


def test_an_id_without_a_name() -> None:
    """It is an error that names the feature."""
    with pytest.raises(ExampleError, match="'label' must be one of 1 class ids"):
        written([LABEL], {"label": pa.array([1])}, {"label": pa.array(["a"])})


def test_small_batches_become_one_row_group() -> None:
    """1,000 shards of one row each give one; equal rows give equal bytes."""

    def part(size: int) -> bytes:
        longs = np.arange(1_000, dtype=np.int64)
        crcs = longs.astype(np.uint32)
        sink = io.BytesIO()
        batches = (
            own_columns(0, longs[i : i + size], longs[i : i + size], crcs[i : i + size])
            for i in range(0, len(longs), size)
        )
        write_part(sink, batches, catalogue_schema([], {}), {})
        return sink.getvalue()

    alone = part(1)
    assert pq.ParquetFile(pa.BufferReader(alone)).num_row_groups == 1
    assert alone == part(300)
