"""`beam_pipeline.convert`: Python data of every shape to datasets."""

import collections
import dataclasses
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import PIL.Image
import pyarrow as pa
import pytest

import beam_pipeline
from beam_pipeline import api, open_dataset
from beam_pipeline.python_data import store_rows
from tests.support.outputs import features, payloads, rows
from tests.support.python_sources import pixels, w1
from tests.support.runs import done, python
from tests.support.sources import write_csv
from tests.support.stress import sizes
from transforms.core.example import messages
from transforms.errors import (
    BeamTFRecordError,
    DamageError,
    InputError,
    RejectLimitError,
    SourceError,
    SpecError,
    TargetError,
)
from transforms.formats.columnar.arrow_batches import ColumnarReader

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")


@pytest.fixture(autouse=True)
def spools(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    """A folder for temporary files, which every test must leave empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


class Stream:
    """What Polars, DuckDB and others look like from outside."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def shapes_of(columns: Mapping[str, np.ndarray], folder: Folder) -> dict[str, Any]:
    """Returns the same rows as every kind of source."""
    frame = pd.DataFrame(columns)
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    listed = {name: values.tolist() for name, values in columns.items()}
    count = len(frame)
    folder.mkdir(exist_ok=True)
    np.savez(folder / "rows.npz", allow_pickle=False, **columns)
    row = collections.namedtuple("row", columns)  # type: ignore[misc]
    record = dataclasses.make_dataclass("record", columns)
    return {
        "arrays": columns,
        "lists": listed,
        "series": {name: frame[name] for name in columns},
        "pandas": frame,
        "arrow": table,
        "batch": table.combine_chunks().to_batches()[0],
        "reader": table.to_reader(max_chunksize=997),
        "stream": Stream(table),
        "views": Stream(
            table.set_column(2, "feature2", table["feature2"].cast(pa.string_view()))
        ),
        "dicts": [{n: listed[n][i] for n in listed} for i in range(count)],
        "generator": ({n: columns[n][i] for n in columns} for i in range(count)),
        "tuples": [tuple(listed[n][i] for n in listed) for i in range(count)],
        "named": [row(*(listed[n][i] for n in listed)) for i in range(count)],
        "dataclasses": [record(*(listed[n][i] for n in listed)) for i in range(count)],
        "rows": [beam.Row(**{n: listed[n][i] for n in listed}) for i in range(count)],
        "npz": np.load(folder / "rows.npz"),
    }


def test_what_holds_the_rows_does_not_count(tmp_path: Folder) -> None:
    """One type, one file: the digest cannot hang on anything else."""
    stored = {}
    for name, source in shapes_of(w1(9_000), tmp_path / "s").items():
        store_rows(source, str(tmp_path / name), images=())
        stored[name] = (tmp_path / name).read_bytes()
    assert len(pa.ipc.open_file(stored["arrow"]).read_all()) == 9_000
    assert [n for n in stored if stored[n] != stored["arrow"]] == []


class TestTypes:
    def test_pandas_columns(self, tmp_path: Folder) -> None:
        """Categories, nullable numbers, object lists and zones, each as its kind."""
        frame = pd.DataFrame(
            {
                "category": pd.Categorical(["a", None, "a"]),
                "number": pd.array([1, None, 2**62], "Int64"),
                "flag": pd.array([True, None, False], "boolean"),
                "list": [np.arange(2), None, np.arange(3)],
                "time": pd.to_datetime(["1970-01-02", None, "1970-01-01"]).tz_localize(
                    "UTC"
                ),
                5: [1.5, np.nan, 2],
                "sparse": pd.arrays.SparseArray([0.5, np.nan, np.nan]),
            },
            index=[9, 9, 9],
        )
        beam_pipeline.convert(frame, tmp_path / "o", shuffle=False)
        kinds = {name: f["kind"] for name, f in features(tmp_path / "o").items()}
        assert kinds == {
            "category": "text",
            "number": "int64",
            "flag": "bool",
            "list": "int64",
            "time": "timestamp",
            "5": "float",
            "sparse": "float",
        }
        first, second, third = payloads(tmp_path / "o")
        assert second == b"" or not messages.Example.FromString(second).features.feature
        found = messages.Example.FromString(third).features.feature
        assert list(found["list"].int64_list.value) == [0, 1, 2]
        assert list(found["number"].int64_list.value) == [2**62]
        found = messages.Example.FromString(first).features.feature
        assert list(found["sparse"].float_list.value) == [0.5]
        unit = features(tmp_path / "o")["time"]["unit"]
        seconds = {"s": 1, "us": 10**6, "ns": 10**9}[unit]
        assert list(found["time"].int64_list.value) == [86_400 * seconds]


def late(after: Any, before: Any = 0, at: int = 5000) -> Iterator[dict[str, Any]]:
    """Yields 9,000 rows; the values change at one of them."""
    for index in range(9000):
        yield {"x": before if index < at else after}


class TestDrift:
    def test_later_rows_widen_a_feature(self, tmp_path: Folder) -> None:
        """A feature is what holds all rows, also those beyond the first thousands."""
        changes = {
            "late": (None, 7, "int64"),
            "gone": (0, None, "int64"),
            "half": (0, 0.5, "float"),
            "wide": (0.25, np.float32(0.5), "float"),
            "byte": (0, np.int8(3), "int64"),
            "text": ("a", b"\xff", "bytes"),
        }
        parts = (
            {name: change[index >= 5000] for name, change in changes.items()}
            for index in range(9000)
        )
        source = (row | ({"new": "z"} if row["late"] else {}) for row in parts)
        report = beam_pipeline.convert(source, tmp_path / "o", shuffle=False)
        assert report.records == 9000
        facts = features(tmp_path / "o")
        assert {n: facts[n]["kind"] for n in changes} == {
            name: kind for name, (_, _, kind) in changes.items()
        }
        assert facts["new"]["present"] == facts["late"]["present"] == 4000
        first, *_, last = rows(tmp_path / "o")
        assert first == {"gone": 0, "half": 0, "wide": 0.25, "byte": 0, "text": b"a"}
        assert last == {
            "late": 7,
            "half": 0.5,
            "wide": 0.5,
            "byte": 3,
            "text": b"\xff",
            "new": b"z",
        }

    def test_all_rows_decide_beyond_a_sample(
        self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One fraction among ids that a sample of the stored rows does not have."""
        monkeypatch.setattr(api, "SAMPLE_BYTES", 1 << 16)
        monkeypatch.setattr(ColumnarReader, "sample_bytes", 1 << 16)
        values = np.arange(2.0**24, 2.0**24 + 50_000)
        values[49_999] = 0.5
        found = []
        for source in (values[:-1], values):
            out = tmp_path / f"{len(source)}"
            beam_pipeline.convert({"x": source}, out, max_reject_rate=1)
            found.append(features(out)["x"]["kind"])
        assert found == ["int64", "float"]

    @pytest.mark.parametrize(
        ("source", "row"),
        [
            (late("s"), "5,001"),
            (late("s", at=5123), "5,124"),
            (late(2**63, at=5123), "5,124"),
            (late(True), "5,001"),
            (late(0.5, before=2**53 + 1, at=8192), "1"),
            (late(2**53 + 1, before=0.5, at=5123), "5,124"),
            (late({1}, at=3), "4"),
        ],
    )
    def test_what_does_not_fit_is_named(
        self, tmp_path: Folder, source: Any, row: str
    ) -> None:
        """Another kind is an error with row and feature; nothing is written."""
        with pytest.raises(SourceError, match=rf"'x'.* row {row}[, ]"):
            beam_pipeline.convert(source, tmp_path / "o")
        assert not (tmp_path / "o").exists()


class TestImages:
    def test_pillow_keeps_how_an_image_is_to_be_turned(self, tmp_path: Folder) -> None:
        """The EXIF orientation of an opened image stays for the policy to apply."""
        image = PIL.Image.fromarray(pixels(0))
        image.getexif()[0x0112] = 6
        beam_pipeline.convert([(image, 0)], tmp_path / "o", exif="apply")
        (row,) = rows(tmp_path / "o")
        assert (row["height"], row["width"]) == (7, 6)

    def test_sizes_may_differ_where_images_are_declared(self, tmp_path: Folder) -> None:
        """Arrays of several shapes are images, or an error that says the row."""
        source = [(np.zeros((3 + i, 4, 3), np.uint8), i) for i in range(3)]
        with pytest.raises(SourceError, match=r"'image'.*row 2.*\(4, 4, 3\)"):
            beam_pipeline.convert(source, tmp_path / "o")
        declared = {"image": {"kind": "image"}}
        beam_pipeline.convert(source, tmp_path / "o", features=declared)
        assert {row["height"] for row in rows(tmp_path / "o")} == {3, 4, 5}

    @pytest.mark.parametrize(
        "value",
        [
            PIL.Image.new("CMYK", (4, 4)),
            np.zeros((3, 40, 40), np.uint8),
            np.zeros((4, 4, 3), np.float32),
        ],
    )
    def test_what_is_no_image_is_refused(self, tmp_path: Folder, value: Any) -> None:
        """Colours, axes and types that PNG lacks are errors, not guesses."""
        declared = {"image": {"kind": "image"}}
        with pytest.raises(SourceError, match=r"'image'.*row 2"):
            beam_pipeline.convert(
                [(pixels(0), 0), (value, 1)], tmp_path / "o", features=declared
            )


class Odd:
    """Neither a table nor rows."""


class TestRefusals:
    @pytest.mark.parametrize(
        ("source", "found"),
        [
            (3, "int"),
            (b"rows.csv", "bytes"),
            (Odd(), "Odd"),
            (["a"], "row 1 is 'a'"),
            ([{"a": 1}, None], "row 2 is None"),
            ([{}], "row 1 has none"),
            ([{1: 1, "1": 2}], "differ"),
            ([{"": 1}], "found ''"),
            ([(1, 2, 3), (1, 2)], "row 2 has 2"),
            ({"a": [1], "b": [1, 2]}, "'b': 2"),
            ({"a": "abc"}, "not str"),
            ({"a": 3}, "not int"),
            ({1: [1], "1": [2, 3]}, "'1' occurs 2 times"),
            ({"a\0b": [1]}, "NUL"),
            (pa.table({"a\0b": [1]}), "NUL"),
            ({"\ud800": [1]}, "surrogate"),
            (np.zeros((2, 2)), "row 1"),
            (pa.table([[1], [2]], names=["a", "a"]), "'a' occurs 2 times"),
            (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' occurs 2 times"),
            (
                pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
                "one level",
            ),
            (pd.DataFrame({"x": [1, "a"]}), "'x'.*row 2"),
            (pd.DataFrame({"x": pd.period_range("2020", periods=2, freq="M")}), "'x'"),
            (pd.Series([1]), "Series"),
        ],
    )
    def test_odd_sources(self, tmp_path: Folder, source: Any, found: str) -> None:
        """Data that is no table is an error of at most 1 KiB that says so."""
        with pytest.raises(SourceError, match=found) as error:
            beam_pipeline.convert(source, tmp_path / "o")
        assert len(str(error.value).encode()) <= 1024
        assert not (tmp_path / "o").exists()

    @pytest.mark.parametrize("source", [{"a": np.zeros(0)}, []])
    def test_empty_sources(self, tmp_path: Folder, source: Any) -> None:
        """No rows are an error, unless an empty dataset is asked for."""
        with pytest.raises(SourceError, match="at least one record"):
            beam_pipeline.convert(source, tmp_path / "o")
        report = beam_pipeline.convert(source, tmp_path / "o", min_records=0)
        assert report.records == 0

    def test_settings_are_checked_first(self, tmp_path: Folder) -> None:
        """A misspelt setting is known before a row is asked for."""
        source = iter([{"a": 1}])
        with pytest.raises(SpecError, match="did you mean 'shards'"):
            beam_pipeline.convert(source, tmp_path / "o", shard=2)  # type: ignore[call-arg]
        assert next(source) == {"a": 1}

    @pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
    @pytest.mark.parametrize("kind", ["rows", "batches"])
    def test_what_the_source_raises_comes_through(
        self, tmp_path: Folder, kind: str, error: type[BaseException]
    ) -> None:
        """A source's own error is the caller's; nothing is left of the run."""

        def source() -> Iterator[Any]:
            rows = [{"a": n} for n in range(5000)]
            yield from rows if kind == "rows" else [pa.RecordBatch.from_pylist(rows)]
            raise error

        given: Any = source()
        if kind == "batches":
            schema = pa.schema([("a", pa.int64())])
            given = pa.RecordBatchReader.from_batches(schema, given)
        with pytest.raises(error):
            beam_pipeline.convert(given, tmp_path / "o")
        assert not (tmp_path / "o").exists()


class TestResult:
    def test_report_has_the_facts_of_the_command_line(self, tmp_path: Folder) -> None:
        """The same run by command and by call says the same of itself."""
        path = write_csv(tmp_path / "s" / "t.csv", "a,b", ["1,x", "2,y", "oops,z"])
        options = ["--infer", "sample", "--max-reject-rate", "1", "--shards", "2"]
        declared = {"a": {"kind": "int64"}}
        spec = tmp_path / "spec.yaml"
        spec.write_text(json.dumps({"features": declared}))
        done(
            "convert",
            path,
            tmp_path / "o",
            *options,
            "--spec",
            spec,
            "--report-json",
            tmp_path / "r.json",
        )
        told = json.loads((tmp_path / "r.json").read_bytes())
        report = beam_pipeline.convert(
            path, tmp_path / "p", features=declared, max_reject_rate=1, shards=2
        )
        found = dataclasses.asdict(report)
        own = {
            "exit_code": 0,
            "output": str(tmp_path / "o"),
            "seconds": told["seconds"],
        }
        assert found | own == told
        assert report.output == str(tmp_path / "p")
        assert (report.read, report.written) == (3, 2)
        assert report.rejected == {"not_an_integer": 1}

    def test_it_is_quiet_and_cleans_up(self, tmp_path: Folder, spools: Folder) -> None:
        """A process prints nothing, and leaves no temporary file behind."""
        code = (
            "import beam_pipeline, sys;"
            "beam_pipeline.convert({'a': [1, 2]}, sys.argv[1]); print('done')"
        )
        run = python(
            "-c",
            code,
            tmp_path / "o",
            env=os.environ | {"TMPDIR": str(spools)},
            check=True,
        )
        assert (run.stdout, run.stderr) == ("done\n", "")


@pytest.mark.parametrize("kind", sizes("Categorical", "Enum"))
def test_categories_of_polars_are_their_texts(tmp_path: Folder, kind: str) -> None:
    """From memory and from its files, alone and nested, and as the label."""
    polars = pytest.importorskip("polars")
    dtype = polars.Enum(["b", "a", "c"]) if kind == "Enum" else polars.Categorical()
    texts = ["b", "a", None, "b"]
    lists = [["a", "b"], [], ["b"], ["a"]]
    columns = {
        "y": polars.Series(texts, dtype=dtype),
        "l": polars.Series(lists, dtype=polars.List(dtype)),
        "a": polars.Series([["a", "b"]] * 4, dtype=polars.Array(dtype, 2)),
        "s": polars.Series(
            [{"t": "a", "u": ["b"]}] * 4,
            dtype=polars.Struct({"t": dtype, "u": polars.List(dtype)}),
        ),
    }
    frame = polars.DataFrame(columns)
    plain = {
        "y": texts,
        "l": lists,
        "a": pa.array([["a", "b"]] * 4, pa.list_(pa.string(), 2)),
        "s": [{"t": "a", "u": ["b"]}] * 4,
    }
    (tmp_path / "in").mkdir()
    frame.write_ipc(tmp_path / "in" / "a.arrow")
    frame.write_ipc_stream(tmp_path / "in" / "a.arrows")
    frame.write_parquet(tmp_path / "in" / "a.parquet")
    sources = [frame, columns, *sorted((tmp_path / "in").iterdir())]
    settings: list[dict[str, Any]] = [{}, {"label_column": "y"}]
    for options in settings:
        wanted = beam_pipeline.convert(plain, tmp_path / "wanted", name="x", **options)
        for index, source in enumerate(sources):
            out = tmp_path / f"{index}"
            # What a row's place in its file decides is its order.
            beam_pipeline.convert(source, out, name="x", shuffle=False, **options)
            assert sorted(payloads(out)) == sorted(payloads(tmp_path / "wanted"))
            shutil.rmtree(out)
        assert wanted.written == 4
        shutil.rmtree(tmp_path / "wanted")


def test_objects_of_polars_have_no_values(tmp_path: Folder) -> None:
    """What Polars exports of a column of objects are their addresses in memory."""
    polars = pytest.importorskip("polars")
    column = polars.Series("o", [object(), {"a": 1}], dtype=polars.Object)
    for source in (polars.DataFrame({"x": [1, 2], "o": column}), {"o": column}):
        with pytest.raises(InputError, match=r"'o' .* Object of Polars"):
            beam_pipeline.convert(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_categories_without_a_type_are_refused(tmp_path: Folder) -> None:
    """A categorical of periods is no column of integers either."""
    periods = pd.Categorical(pd.period_range("2020", periods=3, freq="M"))
    with pytest.raises(InputError, match="no type in Arrow"):
        beam_pipeline.convert(pd.DataFrame({"p": periods}), tmp_path / "out")


def test_class_names_of_hugging_face(tmp_path: Folder) -> None:
    """Those that a table of `datasets` states are labels, as in its Parquet files."""
    said = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}
    stated = {"info": {"features": said}, "fingerprint": "f7a1"}
    table = pa.table({"n": [1, 2, 3, 4], "label": [1, -1, 0, 1]})
    named = table.replace_schema_metadata({"huggingface": json.dumps(stated)})
    beam_pipeline.convert(named, tmp_path / "out", shuffle=False)
    read = open_dataset(tmp_path / "out", labels="names")["train"]
    assert [row["label"] for row in read] == ["dog", None, "cat", "dog"]


def test_tables_by_their_splits_are_refused(tmp_path: Folder) -> None:
    """Their columns would be put side by side, one row of each in a record."""
    for table in (pa.table({"a": [1]}), pd.DataFrame({"a": [1]})):
        with pytest.raises(InputError, match=r"'train'.* it is a table"):
            beam_pipeline.convert({"train": table, "test": table}, tmp_path / "out")


def test_errors_of_the_users_have_no_causes(tmp_path: Folder) -> None:
    """One traceback, not Beam's too; the cause of a step's own failure stays."""
    source = write_csv(tmp_path / "t.csv", "a", ["x"] * 9)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    for kind, said, call in (
        (
            RejectLimitError,
            # Every row was rejected for one reason: a column has changed.
            "is 'a' no longer int64",
            lambda: api.convert(source, tmp_path / "out", features={"a": "int64"}),
        ),
        (SpecError, "shards", lambda: api.convert(source, tmp_path / "o", shards=-1)),
        (DamageError, "manifest", lambda: beam_pipeline.open_dataset(broken)),
    ):
        with pytest.raises(kind, match=said) as caught:
            call()
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
    step = beam.Map(lambda batch: batch.no_such_name)
    with pytest.raises(BeamTFRecordError) as failed:
        api.convert(source, tmp_path / "out", between=step)
    assert failed.value.__cause__ is not None


def test_errors_say_how_options_are_written_in_python(tmp_path: Folder) -> None:
    """A message names the option; a note says that it is a keyword here."""
    source = write_csv(tmp_path / "t.csv", "n", ["1", "2"])
    beam_pipeline.convert(source, tmp_path / "out")
    with pytest.raises(TargetError, match="--overwrite") as caught:
        beam_pipeline.convert(source, tmp_path / "out", seed=1)
    assert ["keywords in Python" in note for note in caught.value.__notes__] == [True]
    with pytest.raises(SpecError) as other:
        beam_pipeline.convert(source, tmp_path / "x", shards=-1)
    assert not hasattr(other.value, "__notes__")
