"""Conditions and streams of a dataset give the same with its catalogue and without."""

import logging
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import beam_tfrecord
from tests.support.runs import convert
from tests.support.sources import write_csv
from transforms.errors import DamageError, SourceError
from transforms.reading.folder import warn_once
from transforms.reading.records import Records
from transforms.reading.view import View

Folder = pathlib.Path

ROWS = 400
SPEC = """
features:
  n: int64
  ratio: float
  flag: bool
  kind: label
  name: text
  seen: {kind: timestamp, unit: s}
  made: {kind: timestamp, unit: us}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A dataset of 400 rows in three shards, values missing now and then."""
    place = tmp_path_factory.mktemp("reading")
    lines = [
        ",".join(
            (
                str(n - 200) if n % 9 else "",
                f"{n / 16}" if n % 7 else "",
                ("true", "false", "")[n % 3],
                ("ant", "bee", "고양이")[n % 3] if n % 5 else "",
                f"name {n % 4}" if n % 6 else "",
                f"19{60 + n % 40}-01-02T03:04:05Z" if n % 8 else "",
                f"2024-01-02T03:04:05.{n:06}Z" if n % 4 else "",
            )
        )
        for n in range(ROWS)
    ]
    source = write_csv(place / "t.csv", "n,ratio,flag,kind,name,seen,made", lines)
    (place / "spec.yaml").write_text(SPEC)
    options = ("--spec", place / "spec.yaml", "--catalogue", "--shards", 3)
    convert(source, place / "set", *options)
    return place / "set"


def views(folder: Folder, **options: Any) -> tuple[View, View]:
    """Returns all rows, with the catalogue and without."""
    with_it, without = (
        beam_tfrecord.open_dataset(folder, **options)["train"] for _ in range(2)
    )
    assert with_it._split.catalogue is not None
    without._split.catalogue = None
    return with_it, without


TERMS = st.sampled_from(
    [
        *(
            "n > 3",
            "n == -7",
            "n is None",
            "-5 <= n < 90",
            "ratio >= 7.0625",
            "n in (1, 2)",
        ),
        *("flag", "not flag", "flag is None", "kind == 'bee'", "kind != '고양이'"),
        *("kind in ('ant', 'bee')", "kind is None", "kind == 1", "name == 'name 3'"),
        *("seen < '1970-01-01T00:00:00Z'", "made >= '2024-01-02T03:04:05.000100Z'"),
        *("made is not None", "ratio is None", "seen is None"),
    ]
)
CONDITIONS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        inner.map(lambda text: f"not ({text})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=4,
)


@given(condition=CONDITIONS, part=st.sampled_from(["all", "slice", "list", "shuffled"]))
def test_both_find_the_same_rows(folder: Folder, condition: str, part: str) -> None:
    """Of any view, in its order."""
    found = []
    for view in views(folder):
        chosen = {
            "all": view,
            "slice": view[300:20:-7],
            "list": view[[5, 399, 5, 0]],
            "shuffled": view.shuffled(seed=2)[:90],
        }[part]
        found.append(chosen.where(condition).positions.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("labels", ["ids", "names"])
def test_both_give_the_same_columns(folder: Folder, labels: str) -> None:
    """Streams of any view, in its order; labels in one dictionary for all batches."""
    streams = []
    for view in views(folder, labels=labels):
        chosen = view.select(["kind", "made", "seen", "n", "ratio", "flag", "name"])
        parts = [chosen, chosen[7:390:3], chosen[::-1], chosen.shuffled(seed=1)[9:]]
        parts += [
            chosen[[3, 3, 1]],
            chosen[:0],
            chosen.where("n > 10").select(["kind"]),
        ]
        streams.append([pa.table(part) for part in parts])
    for one, other in zip(*streams, strict=True):
        assert one.schema == other.schema
        assert one.to_pylist() == other.to_pylist()


def test_no_shard_is_opened(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a condition nor for a stream; with an image, each record is."""

    def opened(*_: object) -> None:
        raise AssertionError("a shard was read")

    monkeypatch.setattr(Records, "_read", opened)
    monkeypatch.setattr(Records, "batches", opened)
    view = beam_tfrecord.open_dataset(folder)["train"]
    assert 0 < len(view.where("ratio > 10 and kind == 'ant'")) < ROWS
    assert pa.table(view.select(["n", "kind"])).num_rows == ROWS
    with pytest.raises(AssertionError, match="a shard was read"):
        view.where("name is None")


def test_a_condition_says_that_it_reads_all_records(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for a dataset, and only where no catalogue answers."""
    with_it, without = views(folder)
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        with_it.where("n > 3")
        assert not caplog.messages
        without.where("n > 3")
        without.where("n > 4")
    (message,) = caplog.messages
    assert "index DIR --catalogue" in message


def test_a_catalogue_that_is_replaced_gives_no_row(
    folder: Folder, tmp_path: Folder
) -> None:
    """Nor does one with other rows, or one that is damaged."""
    out = tmp_path / "out"
    source, spec = folder.parent / "t.csv", folder.parent / "spec.yaml"
    options = ("--spec", spec, "--catalogue")
    convert(source, out, *options)
    view = beam_tfrecord.open_dataset(out)["train"]
    convert(source, out, *options, "--overwrite", "--seed", 9)
    with pytest.raises(DamageError, match="replaced while open"):
        view.where("n > 3")
    part = out / "catalogue" / "train-00000-of-00001.pq"
    whole = part.read_bytes()
    pq.write_table(pq.ParquetFile(part).read().slice(1), part)
    with pytest.raises(DamageError, match="399"):
        beam_tfrecord.open_dataset(out)["train"].where("n > 3")
    part.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamageError, match="Make the catalogue again"):
        beam_tfrecord.open_dataset(out)["train"].where("n > 3")


def test_views_without_a_column_keep_their_rows(folder: Folder) -> None:
    """Of a stream, too."""
    view = beam_tfrecord.open_dataset(folder)["train"].select([])
    assert pa.RecordBatchReader.from_stream(view).read_all().num_rows == ROWS
    assert list(view[:2]) == [{}, {}]


def test_an_index_that_cannot_be_read_is_no_missing_one(
    folder: Folder, tmp_path: Folder
) -> None:
    """The headers of records are read where there is none alone."""
    out = tmp_path / "out"
    convert(folder.parent / "t.csv", out)
    for index in (out / "index").iterdir():
        index.unlink()
        index.mkdir()
    with pytest.raises(SourceError, match=r"\.u64"):
        beam_tfrecord.open_dataset(out)["train"][0]
