"""Small committed datasets of every kind of feature, written as the stages write."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tests.support.datasets import write_manifest, write_records
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.files import ShardName
from transforms.core.manifest import (
    Account,
    FeatureFacts,
    Manifest,
    SplitFacts,
)
from transforms.core.rows.record_columns import number_labels, record_columns
from transforms.core.schema import Feature, Kind, record_fields, record_type, row_type
from transforms.core.statistics import summarize_feature

Row = Mapping[str, Any]


EVERY_KIND = (
    Feature("vector", Kind.FLOAT, shape=(2, 2)),
    Feature("words", Kind.TEXT, shape=(None,)),
    Feature("tags", Kind.LABEL, shape=(None,)),
    Feature("ragged", Kind.INT64, shape=(None, None)),
    Feature("when", Kind.TIMESTAMP, unit="ms"),
    Feature("pixels", Kind.TENSOR, shape=(None, 2), dtype="uint8", encoding="raw"),
    Feature("proto", Kind.TENSOR, shape=(None,), dtype="float32", encoding="proto"),
    Feature("box", Kind.BOX),
    Feature("image", Kind.IMAGE),
    Feature("image/format", Kind.TEXT, derived="format", derived_from="image"),
)


def row_of_every_kind() -> Row:
    """Returns a row with a list, a tensor, boxes and an instant."""
    return {
        "vector": [0.5, 1.0, 1.5, 2.0],
        "words": ["a", "글"],
        "tags": ["dog"],
        "ragged": [[1], [], [2, 3]],
        "when": 1_709_210_096_000,
        "pixels": bytes(range(6)),
        "proto": b"\x08\x01",
        "box": [[0.0, 0.25, 0.5, 1.0], [0.1, 0.2, 0.3, 0.4]],
        "image": b"BM",
        "image/format": "bmp",
    }


def write_kinds(
    directory: pathlib.Path,
    rows: Sequence[Row],
    features: Sequence[Feature],
    *,
    account: Account | None = None,
) -> Manifest:
    """Writes one shard, TFDS's files and the manifest into a new directory.

    Args:
      directory: made here.
      rows: feature -> value as rows have it (labels by name, boxes as lists of four
        sides, images as bytes); absent ones are left out.
      features: of the rows.
      account: of the source; by default everything that was read is written.
    """
    directory.mkdir()
    classes = {
        feature.name: feature.vocabulary
        or tuple(sorted({n for row in rows for n in _names(row.get(feature.name))}))
        for feature in features
        if feature.kind is Kind.LABEL
    }
    columns = _columns(rows, features, classes)
    schema = pa.schema([field for f in features for field in record_fields(f)])
    records = pa.record_batch([columns[key] for key in schema.names], schema)
    payloads = ExampleEncoder(schema).encode(records).to_pylist()
    shard = write_records(
        directory / str(ShardName("kinds", "train", 0, 1, "none")), payloads
    )
    facts = []
    for feature in features:
        statistics = summarize_feature(feature, columns)
        always = statistics.present == len(rows)
        names = classes.get(feature.name, ())
        facts.append(FeatureFacts(feature, statistics, names, always))
    counts = {
        name: {n: _count(rows, name, n) for n in names}
        for name, names in classes.items()
    }
    manifest = Manifest(
        name="kinds",
        compression="none",
        features=tuple(facts),
        splits=(SplitFacts("train", (shard,), counts),),
        files=(),
        account=account or Account(read=len(rows), written=len(rows)),
        inputs={"files": 1, "bytes": 1, "sha256": "0" * 64},
        settings={},
    )
    return write_manifest(directory, manifest)


def _columns(
    rows: Sequence[Row],
    features: Sequence[Feature],
    classes: Mapping[str, tuple[str, ...]],
) -> dict[str, pa.Array]:
    """Returns the columns of records, by their keys."""
    columns = {}
    loaded = {}
    for feature in features:
        values = [row.get(feature.name) for row in rows]
        if feature.kind is Kind.IMAGE or feature.derived:
            loaded[feature.name] = pa.array(values, record_type(feature))
        else:
            columns[feature.name] = pa.array(values, row_type(feature))
    names = {name: pa.array(each, pa.string()) for name, each in classes.items()}
    rows = number_labels(pa.table(columns), features, names)
    return record_columns(rows, features) | loaded


def _names(value: Any) -> Iterator[str]:
    """Yields the class names in a label, a list of labels, or a list of lists."""
    if isinstance(value, str):
        yield value
    for item in value or () if not isinstance(value, str) else ():
        yield from _names(item)


def _count(rows: Sequence[Row], feature: str, name: str) -> int:
    return sum(list(_names(row.get(feature))).count(name) for row in rows)


# The instant that stands for none in TFDS.
NO_INSTANT = -(2**63)
LISTS: list[tuple[Feature, list[Any], list[Any], Any, Any]] = [
    # Feature, values of rows, what is read of them if that differs; and what is read of
    # an absent one by the printed program (None: NaN), and by TFDS.
    (Feature("x", Kind.INT64, shape=(None,)), [[1, -(2**63)], []], [], [], []),
    (Feature("x", Kind.INT64, shape=(2,)), [[1, -2], [3, 4]], [], [-3, -3], []),
    (
        Feature("x", Kind.FLOAT, shape=(2, 3)),
        [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [9.0] * 6],
        [[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], [[9.0] * 3] * 2],
        *(None, []),
    ),
    (
        Feature("x", Kind.INT64, shape=(None, 2)),
        [[1, 2, 3, 4], []],
        [[[1, 2], [3, 4]], []],
        *([], []),
    ),
    (Feature("x", Kind.BOOL, shape=(None,)), [[True, False], []], [], [], []),
    (
        Feature("x", Kind.TEXT, shape=(None,)),
        [["글", ""], []],
        [["글".encode(), b""], []],
        *([], []),
    ),
    (
        Feature("x", Kind.TEXT, shape=(2,)),
        [["a", "b"], ["c", ""]],
        [[b"a", b"b"], [b"c", b""]],
        *([b"", b""], []),
    ),
    (Feature("x", Kind.BYTES, shape=(None,)), [[b"\xff", b""], []], [], [], []),
    (Feature("x", Kind.TIMESTAMP, unit="ms"), [-1, 5], [], -2, NO_INSTANT),
    (
        Feature("x", Kind.FLOAT, shape=(None, None)),
        [[[0.5], [], [1.0, 2.0]], [], [[]]],
        *([], [], []),
    ),
    (
        Feature("x", Kind.LABEL, shape=(None,)),
        [["b", "a"], [], ["c"]],
        [[1, 0], [], [2]],
        *([], []),
    ),
    (
        Feature("x", Kind.LABEL, shape=(None, None)),
        [[["b"], []], [["a", "c"]]],
        [[[1], []], [[0, 2]]],
        *([], []),
    ),
]
