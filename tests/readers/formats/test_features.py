"""Declared features, as TensorFlow and TFDS read their records."""

import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.declared_features import (
    facts,
    lines,
    rejects,
    table,
    with_features,
    with_spec,
)
from tests.support.outputs import dataset, payloads, records

Folder = pathlib.Path
Row = dict[str, Any]


def tf() -> Any:
    return pytest.importorskip("tensorflow")


def test_single_values_of_every_kind(tmp_path: Folder) -> None:
    """Each kind of one value, declared over CSV, is what TensorFlow parses."""
    source = table(
        tmp_path / "rows.csv",
        ["i", "f", "t", "b", "r", "when", "kind"],
        [-5, "1e-3", "글 ", "true", "é", "2024-05-01T13:30:00.250+02:00", "dog"],
        [7, "2", "NA", "FALSE", "x", "1970-01-01", "cat"],
    )
    out = with_features(
        source,
        tmp_path / "out",
        i={"kind": "float"},
        f={"kind": "float"},
        t={"kind": "text"},
        b={"kind": "bool"},
        r={"kind": "bytes"},
        when={"kind": "timestamp", "unit": "ms"},
        kind={"kind": "label", "label": True},
    )
    flow = tf()
    shapes = {
        key: flow.io.FixedLenFeature([], kind)
        for key, kind in {
            "i": flow.float32,
            "f": flow.float32,
            "t": flow.string,
            "b": flow.int64,
            "r": flow.string,
            "when": flow.int64,
            "kind": flow.int64,
        }.items()
    }
    found = [flow.io.parse_single_example(p, shapes) for p in payloads(out)]
    plain = [{key: value.numpy() for key, value in row.items()} for row in found]
    instant = 1_714_563_000_250
    assert plain[0] == {
        "i": np.float32(-5),
        "f": np.float32(1e-3),
        "t": "글 ".encode(),
        "b": 1,
        "r": "é".encode(),
        "when": instant,
        "kind": 1,
    }
    assert plain[1]["t"] == b"NA"
    assert (plain[1]["b"], plain[1]["when"], plain[1]["kind"]) == (0, 0, 0)


ROWS = [[[1, 2], [3]], [], [[], [4, 5, 6]]]


def test_lists_and_ragged_lists(tmp_path: Folder) -> None:
    """Lists of CSV, JSON lines and Parquet are those that TensorFlow reads."""
    flow = tf()
    texts = [json.dumps(row) for row in ROWS]
    flat = [[v for part in row for v in part] for row in ROWS]
    spaced = ["|".join(map(str, row)) for row in flat]
    sources = {
        "csv": table(
            tmp_path / "a.csv",
            ["r", "l"],
            *zip(texts, map(json.dumps, flat), strict=True),
        ),
        "sep": table(tmp_path / "s.csv", ["r", "l"], *zip(texts, spaced, strict=True)),
        "jsonl": lines(
            tmp_path / "a.jsonl",
            *[{"r": r, "l": f} for r, f in zip(ROWS, flat, strict=True)],
        ),
        "parquet": tmp_path / "a.parquet",
    }
    pq.write_table(pa.table({"r": ROWS, "l": flat}), sources["parquet"])
    ragged = flow.io.RaggedFeature(
        dtype=flow.int64,
        value_key="r/ragged_flat_values",
        partitions=[flow.io.RaggedFeature.RowLengths("r/ragged_row_lengths_0")],
    )
    for name, source in sources.items():
        said: Row = {
            "r": {"kind": "int64", "shape": [None, None]},
            "l": {"kind": "int64", "shape": [None]},
        }
        if name == "sep":
            said["l"] = {"kind": "int64", "separator": "|"}
        out = with_features(source, tmp_path / name, **said)
        for number, payload in enumerate(payloads(out)):
            parsed = flow.io.parse_single_example(
                payload, {"r": ragged, "l": flow.io.RaggedFeature(flow.int64)}
            )
            assert parsed["r"].to_list() == ROWS[number], name
            assert parsed["l"].numpy().tolist() == flat[number], name


def test_tensors_in_each_encoding(tmp_path: Folder) -> None:
    """Raw values, a TensorProto and a flattened list hold the same array."""
    flow = tf()
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3) + i / 4 for i in range(3)]
    source = lines(
        tmp_path / "a.jsonl",
        *[{"a": a.tolist(), "b": a.tolist(), "c": a.tolist()} for a in arrays],
    )
    out = with_features(
        source,
        tmp_path / "out",
        a={"kind": "tensor", "shape": [2, 3], "dtype": "float32"},
        b={"kind": "tensor", "encoding": "proto", "shape": [None, None]},
        c={"kind": "float", "shape": [2, 3]},
    )
    assert facts(out, "b")["dtype"] == "float64"
    shapes = {
        "a": flow.io.FixedLenFeature([], flow.string),
        "b": flow.io.FixedLenFeature([], flow.string),
        "c": flow.io.FixedLenFeature([2, 3], flow.float32),
    }
    for payload, array in zip(payloads(out), arrays, strict=True):
        row = flow.io.parse_single_example(payload, shapes)
        raw = flow.io.decode_raw(row["a"], flow.float32).numpy().reshape(2, 3)
        proto = flow.io.parse_tensor(row["b"], flow.float64).numpy()
        assert (raw == array).all()
        assert (proto == array).all()
        assert (row["c"].numpy() == array).all()


def test_fault_106_missing_values_by_policy(tmp_path: Folder) -> None:
    """Left out, filled, or the row rejected; the manifest and TFDS say which."""
    source = table(
        tmp_path / "a.csv", ["a", "b", "c", "d"], [1, "", "x", 1], ["", 2, "", 2]
    )
    out = with_features(
        source, tmp_path / "out", b={"fill": -1}, c={"missing": "fill", "fill": "none"}
    )
    flow = tf()
    shapes = {
        "a": flow.io.FixedLenFeature([], flow.int64, -9),
        "b": flow.io.FixedLenFeature([], flow.int64),
        "c": flow.io.FixedLenFeature([], flow.string),
    }
    found = [flow.io.parse_single_example(p, shapes) for p in payloads(out)]
    assert [int(row["a"]) for row in found] == [1, -9]
    assert [int(row["b"]) for row in found] == [-1, 2]
    assert [row["c"].numpy() for row in found] == [b"x", b"none"]
    assert "a" not in records(out)[1]
    always = {f["name"]: f["always_present"] for f in dataset(out)["features"]}
    assert always == {"a": False, "b": True, "c": True, "d": True}
    out = with_spec(
        source,
        tmp_path / "strict",
        "--max-reject-rate",
        1,
        features={"a": {"missing": "reject"}},
    )
    assert len(records(out)) == 1
    (reject,) = rejects(out)
    assert (reject["row"], reject["reason"]) == (2, "missing_value")
    assert "'a'" in reject["message"]


def test_several_labels_in_a_column(tmp_path: Folder) -> None:
    """Lists of class names are lists of ids, for TFDS a sequence of class labels."""
    source = table(tmp_path / "a.csv", ["tags", "n"], ["x|z", 1], ["y", 2], ["x", 3])
    out = with_features(
        source, tmp_path / "out", tags={"kind": "label", "separator": "|"}
    )
    assert facts(out, "tags")["classes"] == ["x", "y", "z"]
    assert [row["tags"] for row in records(out)] == [[0, 2], [1], [0]]
    tfds = pytest.importorskip("tensorflow_datasets")
    builder = tfds.builder_from_directory(str(out))
    assert builder.info.features["tags"].feature.names == ["x", "y", "z"]
    data = builder.as_dataset(split="train")
    assert [list(map(int, row["tags"])) for row in data] == [[0, 2], [1], [0]]
