"""The stages `EncodeExamples` and `DecodeExamples`: rows <-> serialised Examples."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from transforms.codec.examples import decode_rows, decode_table, encode_rows
from transforms.codec.typed import Coding, SchemaLike, coding_of, encode_table
from transforms.errors import EncodingError, ExampleError, bounded
from transforms.rows.row_types import A_ROW, as_mapping, check_row_type, how_to_map
from transforms.rows.spool import MOST_WAITING, Waiting

# Elements of a bundle that are encoded or decoded together take about this much memory.
_BATCH_BYTES = 32 << 20

Row = Mapping[str, Any]


@dataclasses.dataclass
class EncodeExamples(beam.PTransform):
    """Encodes rows as serialised tf.train.Examples.

        rows | EncodeExamples({"id": "int64", "name": "text"}) | WriteTFRecords("out/x")

    Input: rows: dicts, `beam.Row`, named tuples, dataclasses; also Arrow record batches
    and tables, whose rows become one Example each. Output: bytes, one Example a row.

    Guarantees:
      - An Example is a function of its row and of the schema alone, as `encode_example`
        gives it: bundles, retries and other rows change no byte. Arrow batches say
        their types by themselves.
      - A row that does not fit fails the job with an error that names row, feature and
        value; no row is left out, and no value becomes another.
      - Rows in windows keep windows and timestamps. In the global window timestamps are
        not kept: put `beam.WindowInto` before this step where they matter. Within a
        bundle the order may change.

    A worker holds up to 4,096 rows of a bundle, or some 32 MiB of them, and their
    Examples. Counter: examples_encoded (namespace examples).

    Attributes:
      schema: as `encode_example` takes it; None: by the types of the values.

    Raises:
      SpecError: when made, if the schema is none; when applied, if the elements' type
        is none of these.
      EncodingError: when run, if an element is no row, or does not fit.
    """

    schema: SchemaLike | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self._coding = None if self.schema is None else coding_of(self.schema)

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[bytes]:
        """Encodes each bundle by itself.

        Raises:
          SpecError: no element of the collection's type is a row.
        """
        check_row_type(rows.element_type)
        encode = _EncodeRows if rows.windowing.is_default() else _EncodeInWindows
        return rows | "Encode" >> beam.ParDo(encode(self._coding)).with_output_types(
            bytes
        )


@dataclasses.dataclass
class DecodeExamples(beam.PTransform):
    """Decodes serialised tf.train.Examples; the inverse of `EncodeExamples`.

        ReadTFRecords("out/x*") | DecodeExamples({"id": "int64", "name": "text"})

    Input: bytes, one Example each. Output: a dict for each, as `decode_example` gives
    it; with `batches`, Arrow record batches of up to 4,096 rows.

    Guarantees:
      - A dict is a function of its Example and of the schema alone. Which Examples
        share a batch depends on the bundles; without a schema, so do the types of its
        columns, as `decode_examples` chooses them.
      - An Example that is none, or does not fit, fails the job; no Example is left out.
      - Examples in windows keep windows and timestamps; a batch holds Examples of one
        window, and has the timestamp of its end. In the global window timestamps are
        not kept. Within a bundle the order may change.

    A worker holds up to 4,096 Examples of a bundle, or 32 MiB of them, and their rows.
    Counter: examples_decoded (namespace examples).

    Attributes:
      schema: as `decode_example` takes it; None: by the types of the Examples.
      batches: give Arrow record batches.

    Raises:
      SpecError: when made, if the schema is none.
      ExampleError: when run, if an element is no Example, or does not fit.
    """

    schema: SchemaLike | None = None
    batches: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self._coding = None if self.schema is None else coding_of(self.schema)
        self.with_input_types(bytes)

    def expand(self, examples: beam.PCollection[bytes]) -> beam.PCollection[Any]:
        """Decodes each bundle by itself."""
        decode = _Decode if examples.windowing.is_default() else _DecodeInWindows
        return examples | "Decode" >> beam.ParDo(
            decode(self._coding, batches=self.batches)
        ).with_output_types(pa.RecordBatch if self.batches else dict[str, Any])


class _Gather(beam.DoFn):
    """Works on the elements of a bundle together; their windows are the global one."""

    def start_bundle(self) -> None:
        self.waiting = Waiting(_BATCH_BYTES)
        self.places: list[tuple[Any, Any]] = []

    def finish_bundle(self) -> Iterable[Any]:
        return self.work_on_all()

    def add(self, element: Any) -> Iterable[Any] | None:
        """Adds an element of the bundle; works on all once they make a batch."""
        waiting = self.waiting
        waiting.append(element)
        if len(waiting) >= waiting.next_look and waiting.is_enough():
            return self.work_on_all()
        return None

    def work_on_all(self) -> list[Any]:
        """Returns what becomes of the waiting elements, in their windows."""
        waiting, places = self.waiting.take(), self.places
        self.places = []
        return self.work_on(waiting, places) if waiting else []

    def work_on(self, elements: list[Any], places: list[tuple[Any, Any]]) -> list[Any]:
        """Returns what becomes of elements; without places, of the global window."""
        raise NotImplementedError


def _in_windows(results: Sequence[Any], places: Sequence[tuple[Any, Any]]) -> list[Any]:
    """Returns results in the windows of their elements, or in the global one."""
    if not places:
        # Others with its timestamp and window are made in a tenth of the time.
        first = GlobalWindows.windowed_value(None)
        return [first.with_value(result) for result in results]
    pairs = zip(results, places, strict=True)
    return [WindowedValue(result, at, (window,)) for result, (at, window) in pairs]


class _EncodeRows(_Gather):
    """Encodes rows up to a bundle at a time; Arrow batches and tables at once."""

    def __init__(self, coding: Coding | None) -> None:
        super().__init__()
        self.coding = coding
        self.examples_encoded = beam.metrics.Metrics.counter(
            "examples", "examples_encoded"
        )

    def start_bundle(self) -> None:
        super().start_bundle()
        self.kind: type[Any] | None = None
        self.convert: Callable[[Any], Row] = dict

    def process(self, element: Any) -> Iterable[Any] | None:
        if type(element) is not self.kind:
            if isinstance(element, pa.RecordBatch | pa.Table):
                # Outputs have the timestamp and window of the batch by themselves.
                return self._encode_table(element)
            self.convert = _row_converter(element)
            self.kind = type(element)
        return self.add(self.convert(element))

    def work_on(self, elements: list[Any], places: list[tuple[Any, Any]]) -> list[Any]:
        records = encode_rows(elements, self.coding)
        self.examples_encoded.inc(len(records))
        return _in_windows(records, places)

    def _encode_table(self, element: pa.RecordBatch | pa.Table) -> Iterator[bytes]:
        is_table = isinstance(element, pa.Table)
        for batch in element.to_batches() if is_table else [element]:
            # Those that take the memory of one step.
            within = batch.num_rows * _BATCH_BYTES // max(batch.nbytes, 1)
            batch_rows = max(1, min(MOST_WAITING, within))
            for start in range(0, batch.num_rows, batch_rows):
                records = encode_table(batch.slice(start, batch_rows), self.coding)
                self.examples_encoded.inc(len(records))
                yield from records


class _InWindows(_Gather):
    """Notes the windows and timestamps of elements, which their results keep."""

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> Iterable[Any] | None:
        if not isinstance(element, pa.RecordBatch | pa.Table):
            self.places.append((timestamp, window))
        return super().process(element)


class _EncodeInWindows(_InWindows, _EncodeRows):
    """Encodes rows, each in its window."""


class _Decode(_Gather):
    """Decodes Examples to rows, or those of one window to one Arrow batch."""

    def __init__(self, coding: Coding | None, *, batches: bool) -> None:
        super().__init__()
        self.coding = coding
        self.batches = batches
        self.examples_decoded = beam.metrics.Metrics.counter(
            "examples", "examples_decoded"
        )

    def process(self, element: bytes) -> Iterable[Any] | None:
        if not isinstance(element, bytes):
            raise ExampleError(
                bounded(
                    f"Every element must be a serialised tf.train.Example, which is "
                    f"bytes; found {type(element).__name__}: {element!r:.80}. Give the "
                    f"records as ReadTFRecords gives them."
                )
            )
        return self.add(element)

    def work_on(self, elements: list[Any], places: list[tuple[Any, Any]]) -> list[Any]:
        self.examples_decoded.inc(len(elements))
        if not self.batches:
            return _in_windows(decode_rows(elements, self.coding), places)
        windows = [window for _, window in places] or [GlobalWindow()] * len(elements)
        groups: dict[Any, list[bytes]] = {}
        for window, element in zip(windows, elements, strict=True):
            groups.setdefault(window, []).append(element)
        return [
            WindowedValue(
                decode_table(group, self.coding), window.max_timestamp(), (window,)
            )
            for window, group in groups.items()
        ]


class _DecodeInWindows(_InWindows, _Decode):
    """Decodes Examples, each in its window."""


def _row_converter(element: Any) -> Callable[[Any], Row]:
    """Returns what makes mappings of elements of a type; EncodingError for no row."""
    convert = as_mapping(type(element))
    if convert is None:
        raise EncodingError(
            bounded(
                f"Every element must be {A_ROW}, or an Arrow batch or table; found "
                f"{type(element).__name__}: {element!r:.80}. "
                f"{how_to_map(type(element))}"
            )
        )
    return convert
