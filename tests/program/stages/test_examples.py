"""EncodeExamples and DecodeExamples: rows of every form, bundles, windows, types."""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window

from tests.support.tfrecord_pipelines import payloads, pipeline
from transforms.codec.examples import encode_example
from transforms.errors import SpecError
from transforms.rows import spool
from transforms.stages.examples import DecodeExamples, EncodeExamples
from transforms.tfrecord.read import ReadTFRecords
from transforms.tfrecord.write import WriteTFRecords

Folder = pathlib.Path


class Tupled(NamedTuple):
    """A row."""

    id: int
    name: str | None


@dataclasses.dataclass
class Classed:
    """A row."""

    id: int
    name: str | None


FORMS: list[list[Any]] = [
    [{"id": 1, "name": "a"}, {"name": None, "id": 2}],
    [beam.Row(id=1, name="a"), beam.Row(id=2, name=None)],
    [Tupled(1, "a"), Tupled(2, None)],
    [Classed(1, "a"), Classed(2, None)],
    [pa.record_batch({"id": [1, 2], "name": ["a", None]})],
    [pa.table({"id": [1, 2], "name": ["a", None]})],
]
SCHEMA = {"id": "int64", "name": "text"}


@pytest.mark.parametrize("first", [1, 1.0])
def test_rows_of_every_form(first: float) -> None:
    """Equal rows give equal Examples, by their values and by a schema of floats."""
    schema = {"id": "float", "name": "text"} if isinstance(first, float) else None
    with pipeline() as p:
        elements = [element for form in FORMS for element in form]
        rows = p | beam.Create([0]) | beam.FlatMap(lambda _: elements)
        found = rows | EncodeExamples(schema)
        assert found.element_type is bytes
        wanted: list[dict[str, Any]] = [{"id": first, "name": "a"}, {"id": first * 2}]
        assert_that(found, equal_to([*map(encode_example, wanted)] * len(FORMS)))


def test_to_files_and_back(tmp_path: Folder) -> None:
    """The steps compose by their types, and whole rows come back."""
    rows = [{"id": n, "name": f"n{n}" if n % 3 else None} for n in range(1000)]
    with pipeline() as p:
        p | beam.Create(rows) | EncodeExamples() | WriteTFRecords(str(tmp_path / "x"))
    assert payloads(*tmp_path.iterdir()) == sorted(map(encode_example, rows))
    with pipeline() as p:
        found = p | ReadTFRecords(str(tmp_path / "x*")) | DecodeExamples(SCHEMA)
        assert_that(found, equal_to(rows))


def test_bundles_change_no_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of several types, encoded a few at a time, are as each by itself."""
    monkeypatch.setattr(spool, "MOST_WAITING", 7)
    rows: list[dict[str, Any]] = [
        {"x": n if n % 2 else n / 2, "y": [n] * (n % 3), "z": np.zeros(n % 2)}
        for n in range(50)
    ]
    with pipeline("--direct_runner_bundle_repeat=1") as p:
        found = p | beam.Create(rows) | EncodeExamples()
        assert_that(found, equal_to(list(map(encode_example, rows))))


def in_windows(values: list[Any]) -> list[Any]:
    return [window.TimestampedValue(v, 10 * n) for n, v in enumerate(values)]


def placed(
    element: Any,
    at: Any = beam.DoFn.TimestampParam,
    where: Any = beam.DoFn.WindowParam,
) -> tuple[Any, int, int]:
    """Returns an element with its timestamp and the start of its window."""
    return element, int(at), int(where.start)


def test_windows_and_timestamps_are_kept() -> None:
    """Those of each row; a batch is of one window."""
    rows = [{"id": n} for n in range(4)]
    with pipeline() as p:
        encoded = (
            p
            | beam.Create(in_windows(rows))
            | beam.Map(lambda x: x)
            | beam.WindowInto(window.FixedWindows(20))
            | EncodeExamples()
        )
        places = [(0, 0), (10, 0), (20, 20), (30, 20)]
        found = encoded | "Where" >> beam.Map(placed)
        wanted = [(encode_example(r), *at) for r, at in zip(rows, places, strict=True)]
        assert_that(found, equal_to(wanted), "encoded", reify_windows=False)
        back = encoded | DecodeExamples() | "Where back" >> beam.Map(placed)
        both = [(r, *at) for r, at in zip(rows, places, strict=True)]
        assert_that(back, equal_to(both), "decoded")
        batches = (
            encoded
            | "Batches" >> DecodeExamples({"id": "int64"}, batches=True)
            | beam.Map(lambda batch: sorted(batch.column("id").to_pylist()))
            | "Where batches" >> beam.Map(placed)
        )
        assert_that(batches, equal_to([([0, 1], 19, 0), ([2, 3], 39, 20)]), "batches")


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_batches_hold_all_rows(schema: Any) -> None:
    """Arrow batches of the schema's columns, and Examples of them again."""
    rows = [{"id": n, "name": f"n{n}"} for n in range(5000)]
    records = list(map(encode_example, rows[:100])) * 50
    with pipeline() as p:
        batches = p | beam.Create(records) | DecodeExamples(schema, batches=True)
        assert batches.element_type is pa.RecordBatch
        counts = batches | beam.Map(lambda b: b.num_rows) | beam.CombineGlobally(sum)
        assert_that(counts, equal_to([5000]), "rows")
        back = batches | EncodeExamples() | beam.combiners.Count.PerElement()
        wanted = [(record, 50) for record in records[:100]]
        assert_that(back, equal_to(wanted), "back")


def test_counters() -> None:
    """How many Examples were encoded and decoded."""
    p = pipeline()
    rows = p | beam.Create([{"id": n} for n in range(30)] + [{}])
    rows | EncodeExamples() | DecodeExamples() | beam.combiners.Count.Globally()
    result = p.run()
    result.wait_until_finish()
    found = result.metrics().query(beam.metrics.MetricsFilter())["counters"]
    ours = {c.key.metric.name: c.committed for c in found}
    assert (ours["examples_encoded"], ours["examples_decoded"]) == (31, 31)


@pytest.mark.parametrize(
    ("elements", "schema", "why"),
    [
        ([{"id": 1}, {"id": 1.5}], SCHEMA, "row 2.*'id'.*1.5.*an integer is needed"),
        ([{"id": 1}, 5], None, "Every element must be a row.*found int: 5"),
        ([{"id": 1}, b"x"], None, "Every element must be a row.*found bytes"),
    ],
)
def test_rows_that_do_not_fit_fail_the_job(
    elements: list[Any], schema: Any, why: str
) -> None:
    """By an error that names row, feature and value."""
    with pytest.raises(Exception, match=why), pipeline() as p:
        p | beam.Create([0]) | beam.FlatMap(lambda _: elements) | EncodeExamples(schema)


def test_records_that_do_not_fit_fail_the_job() -> None:
    """No Example is left out in silence."""
    for elements, why in (
        ([b"", b"no example"], "example 1: "),
        (["text"], "must be a serialised tf.train.Example.*found str"),
    ):
        with pytest.raises(Exception, match=why), pipeline() as p:
            (
                p
                | beam.Create([0])
                | beam.FlatMap(lambda _, e=elements: e).with_output_types(Any)
                | DecodeExamples()
            )


def test_schemas_are_checked_when_made() -> None:
    """Before a pipeline runs."""
    with pytest.raises(SpecError, match="'int32'"):
        EncodeExamples({"x": "int32"})
    with pytest.raises(SpecError, match="kind must be said"):
        DecodeExamples({"x": {}})
