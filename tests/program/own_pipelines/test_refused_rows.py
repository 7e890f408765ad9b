"""Bad rows and doubled keys of pipelines, whatever rows come with them."""

import collections
import json
import pathlib
import random
import re
from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from beam_pipeline.own_pipelines.read_rows import ReadRows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.support.gathered_rows import gather
from tests.support.outputs import dataset, rows
from tests.support.own_pipelines import bytes_of, run_steps, write_rows
from tests.support.python_sources import TAKEN
from tests.support.stress import sizes
from transforms.core.example import messages
from transforms.core.placing import hashes
from transforms.core.tfrecord.reader import TFRecordReader
from transforms.errors import EncodingError, InputError
from transforms.publishing import target

Folder = pathlib.Path


class Strange:
    """Its default text has an address, which no two runs have in common."""


def sound(count: int = 40) -> list[dict[str, Any]]:
    return [{"id": n, "x": n / 4, "part": "ab"[n % 2]} for n in range(count)]


UNION = pa.UnionArray.from_dense(
    pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]
)
NO_TEXT = pa.Array.from_buffers(
    pa.string(),
    1,
    [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")],
)
# What is wrong -> an element, settings, the reason, and words of the message.
BAD: dict[str, tuple[Any, dict[str, Any], str, str]] = {
    "no row": (7, {}, "malformed", "no row, but int: 7"),
    "stranger": (Strange(), {}, "malformed", "test_refused_rows.Strange object>"),
    "object": ({"id": 1, "x": Strange()}, {}, "wrong_type", "of type Strange"),
    "set": ({"id": 1, "x": {"b", "a"}}, {}, "wrong_type", "of type set"),
    "wide": ({"id": 2**63, "x": 1}, {}, "out_of_range", "is outside int64"),
    "surrogate": ({"id": 1, "part": "\ud800"}, {}, "wrong_type", "surrogates"),
    "name": ({"id": 1, 7: 1}, {}, "malformed", "found 7"),
    "no column": ({}, {}, "malformed", "must have a column at least"),
    "no key": ({"x": 1}, {"key": "id"}, "missing_value", "'id' holds nothing"),
    "NaN": ({"id": float("nan")}, {"key": "id"}, "missing_value", "holds nan"),
    "float key": ({"id": 2.5}, {"key": "id"}, "wrong_type", "holds 2.5"),
    "group": ({"part": 0.5}, {"group_column": "part"}, "wrong_type", "holds 0.5"),
    "split": (
        {"id": 1, "part": "a b"},
        {"splits": "column:part"},
        "bad_split",
        "'a b'",
    ),
    "no split": ({"id": 1}, {"splits": "column:part"}, "bad_split", "holds nothing"),
    "mapping": (
        {"id": 1, "x": {"raw": 12, "unit": "%"}},
        {"features": {"x": "float"}},
        "wrong_type",
        "'x' must be one that its feature holds; found a mapping",
    ),
    "mapping as label": (
        {"id": 1, "part": {"name": "a"}},
        {"label": "part"},
        "wrong_type",
        "found a mapping",
    ),
    "union": (
        pa.record_batch([UNION], names=["id"]),
        {},
        "wrong_type",
        "'id' is of dense_union",
    ),
    "encoding": (
        pa.record_batch([NO_TEXT], names=["part"]),
        {},
        "invalid_encoding",
        "and text in UTF-8; 'part'",
    ),
    "tables": (
        pa.record_batch([[1], [2]], names=["id", "id"]),
        {},
        "malformed",
        "'id' occurs 2 times",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_row_is_a_reject(fault: str) -> None:
    """It is refused alone, and says the same in any bundling and order."""
    element, settings, reason, words = BAD[fault]
    rows = [*sound(), element]
    wanted = gather([rows], **settings)
    (rejection,) = wanted.rejections
    assert str(rejection.reason) == reason
    assert words in rejection.message
    assert rejection.row is None
    assert rejection.source
    records = sum(map(len, wanted.records.values()))
    assert records == len(sound())
    assert wanted.plan.publication.expected_rows == len(rows)
    random.Random(fault).shuffle(rows)
    for cut in (1, 7, 20, 41):
        parts = [rows[start : start + cut] for start in range(0, len(rows), cut)]
        assert gather(parts, **settings).facts == wanted.facts


@pytest.mark.parametrize("fault", BAD)
def test_what_is_wrong_with_every_row_is_an_error(fault: str) -> None:
    """No row is bad then, but a step or a parameter; the message shows one."""
    element, settings, _, words = BAD[fault]
    with pytest.raises(EncodingError, match=re.escape(words)) as caught:
        gather([[element], [element] * 3], **settings)
    assert ".. " not in str(caught.value)


def test_rows_are_known_by_key_or_content() -> None:
    """Of rows without a key the values decide, not where in memory they are."""
    keyed = [*sound(), {"id": 7000, "x": Strange()}, {"id": "seven", "x": {1}}]
    found = gather([keyed], key="id", features={"id": "text"}).rejections
    assert sorted(each.source for each in found) == ["7000", "seven"]
    bare = [*sound(), {"x": Strange()}, {"x": Strange()}, {"x": {1}}]
    found = gather([bare]).rejections
    assert sorted(collections.Counter(r.source for r in found).values()) == [1, 2]


def test_a_table_of_ids_takes_no_other_keys(tmp_path: Folder) -> None:
    """As `convert`, which rejects rows that no split takes."""
    table = tmp_path / "ids.csv"
    table.write_text("id,split\n" + "".join(f"{n},train\n" for n in range(30)))
    found = gather([sound()], key="id", split_ids=str(table))
    assert {each.source for each in found.rejections} == {str(n) for n in range(30, 40)}
    assert {str(each.reason) for each in found.rejections} == {"bad_split"}
    with pytest.raises(EncodingError, match="no split in the table of ids"):
        gather([sound()[30:]], key="id", split_ids=str(table))


def bad_rows() -> list[Any]:
    return [
        {"id": 1, "x": Strange()},
        {"id": 1, "x": {3}},
        {"id": 2, "x": 2**64},
        {"x": 5},
        {"id": "k", "x": 1j, "n": np.zeros(3)},
        "text",
    ]


def written(parts: Sequence[Any], output: Folder, **settings: Any) -> dict[str, bytes]:
    write_rows(
        parts, output, name="rows", max_reject_rate=0.5, keep_rejected_bytes=True,
        **settings,
    )  # fmt: skip
    return bytes_of(output)


def test_rejects_are_in_every_account(tmp_path: Folder) -> None:
    """Lines and items are equal for any bundles; the sums hold in the manifest."""
    rows = [*sound(), *bad_rows()]
    settings: dict[str, Any] = {
        "key": "id",
        "duplicates": "keep",
        "features": {"id": "text"},
    }
    wanted = written(rows, tmp_path / "one", **settings)
    random.Random(3).shuffle(rows)
    assert written(rows, tmp_path / "many", bundles=3, **settings) == wanted
    lines = [json.loads(line) for line in wanted["rejects.jsonl"].splitlines()]
    assert len(lines) == 6
    assert {line["stage"] for line in lines} == {"gather"}
    assert [line["source"] for line in lines if len(line["source"]) < 3] == [
        *("1", "1", "2", "k")
    ]
    account = dataset(tmp_path / "one")["account"]
    assert account["read"] == 46
    assert account["written"] == 40
    assert sum(account["rejected"].values()) == 6
    items = [*TFRecordReader(str(tmp_path / "one/rejects.items"))]
    held = {
        bytes(
            messages.Example.FromString(i).features.feature["bytes"].bytes_list.value[0]
        )
        for i in items
    }
    assert b'{"id": 2, "x": 18446744073709551616}' in held


def test_the_committed_element_counts_rejects(tmp_path: Folder) -> None:
    """By reason, whether the bundle or the shard has refused the row."""
    rows = [*sound(300), {"id": 1, "x": {3}}, {"id": 1, "x": "text"}]
    seen: list[Any] = []
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        committed = pipeline | beam.Create(rows) | WriteDataset(tmp_path / "out")
        (
            committed
            | beam.Map(lambda done: (done.records, done.rejected))
            | beam.Map(lambda done: (tmp_path / "seen").write_text(json.dumps(done)))
        )
    seen = json.loads((tmp_path / "seen").read_text())
    assert seen == [{"train": 300}, {"not_a_number": 1, "wrong_type": 1}]


def test_rejects_behind_a_read_source(tmp_path: Folder) -> None:
    """A row that a step has spoilt was read, and no step has dropped it."""
    source = tmp_path / "table.csv"
    source.write_text("id,x\n" + "".join(f"{n},{n}\n" for n in range(50)))

    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"x": {1}} if row["id"] == 7 else row

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        read = pipeline | ReadRows(source)
        (
            read.rows
            | beam.Map(spoil).with_output_types(Any)
            | WriteDataset(
                tmp_path / "out", accounts=read.accounts, max_reject_rate=0.1
            )
        )
    account = dataset(tmp_path / "out")["account"]
    assert account["read"] == 50
    assert account["rejected"] == {"wrong_type": 1}
    assert not account.get("dropped_by_steps")


@pytest.mark.parametrize("case", TAKEN)
def test_values_of_other_libraries_are_taken(case: str) -> None:
    """In any bundling and order, and nothing is refused."""
    rows, kinds = TAKEN[case]
    found = gather([rows])
    assert {f.name: str(f.kind) for f in found.schema.features} == kinds
    assert not found.rejections
    assert gather([[row] for row in rows[::-1]]).facts == found.facts


def test_keys_of_mixed_types() -> None:
    """Text among integers is a reject up to 1 of 100, and else an error."""
    rows: list[Any] = [*sound(200), {"id": "seven", "x": 1}]
    found = gather([rows], key="id")
    assert [each.source for each in found.rejections] == ["seven"]
    assert gather([[row] for row in rows[::-1]], key="id").facts == found.facts
    mixed = [row | {"id": str(row["id"])} if row["x"] > 5 else row for row in sound()]
    with pytest.raises(EncodingError, match="Every value of 'id' must be of one kind"):
        gather([mixed], key="id")


def write(output: Folder, made: list[dict[str, Any]], **settings: Any) -> None:
    def steps(pipeline: beam.Pipeline) -> Any:
        # Every row is in a bundle of its own, or nearly.
        return pipeline | beam.Create(made) | beam.Reshuffle()

    run_steps(steps, output, key="id", **settings)


def some(count: int = 200) -> list[dict[str, Any]]:
    splits = ("train", "test", "validation")
    return [{"id": f"k{i}", "x": i, "part": splits[i % 3]} for i in range(count)]


@pytest.mark.parametrize("again", [1000, "seven"])
@pytest.mark.parametrize(
    "settings", [{"splits": {"train": 0.5, "test": 0.5}}, {"splits": "column:part"}, {}]
)
@pytest.mark.parametrize("collide", sizes(True, False))
def test_a_key_given_twice_is_named(
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    collide: bool,
    again: object,
) -> None:
    """Where all keys have one hash, too, and of rows that do not fit; others pass."""
    if collide:
        monkeypatch.setattr(hashes, "hash_texts", equal)
    assert not gather([some()], key="id", **settings).rejections
    bundles = [[row] for row in (*some(), {"id": "k7", "x": again, "part": "test"})]
    with pytest.raises(InputError, match="'k7' is given more than once"):
        gather(bundles, key="id", **settings)
    kept = gather(bundles, key="id", duplicates="keep", **settings)
    assert sum(map(len, kept.records.values())) + len(kept.rejections) == 201
    assert len(kept.rejections) == (again == "seven")


def equal(texts: Any, *_: Any, **_options: Any) -> Any:
    return np.zeros(len(texts), np.uint64)


@pytest.mark.parametrize("collide", sizes(True, False))
def test_a_key_in_two_splits_is_named(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, collide: bool
) -> None:
    """Where the rows say their splits; others pass."""
    if collide:
        monkeypatch.setattr(hashes, "hash_texts", equal)
    settings = {"splits": "column:part"}
    write(tmp_path / "sound", some(), **settings)
    assert len(rows(tmp_path / "sound")) == 200
    twice = [*some(), {"id": "k7", "x": 1000, "part": "train"}]
    with pytest.raises(InputError, match="'k7' is given more than once"):
        write(tmp_path / "out", twice, **settings)
    assert not (tmp_path / "out").exists()
    write(tmp_path / "kept", twice, duplicates="keep", **settings)
    assert sorted(row["x"] for row in rows(tmp_path / "kept")) == [*range(200), 1000]


@pytest.mark.parametrize("splits", [{"train": 1.0}, "column:part"])
def test_a_shard_whose_rows_are_all_rejected(tmp_path: Folder, splits: Any) -> None:
    """It has no keys to compare, and is an empty shard."""
    good = [] if splits != "column:part" else some()
    bad = [{"id": "z", "x": "seven", "part": "last"}]
    write(
        tmp_path / "out",
        [*good, *bad],
        splits=splits,
        features={"x": "int64"},
        max_reject_rate=1,
        min_records=0,
    )
    assert target.read_manifest(str(tmp_path / "out")).records == len(good)


@pytest.mark.parametrize("names", ["c", ["c", "a"]])
def test_a_class_that_only_rejected_rows_have(tmp_path: Folder, names: Any) -> None:
    """It is no class, and such a row is a reject like others."""
    good = {"id": 1, "x": 1, "kind": "a" if names == "c" else ["a"]}
    bad = {"id": 2, "x": "seven", "kind": names}
    kind = {"kind": "label", **({} if names == "c" else {"shape": [None]})}
    features = {"x": "int64", "kind": kind}
    write(tmp_path / "out", [good, bad], features=features, max_reject_rate=1)
    written = target.read_manifest(str(tmp_path / "out"))
    assert written.account.rejected == {"not_an_integer": 1}
    assert {f.feature.name: f.classes for f in written.features}["kind"] == ("a",)
