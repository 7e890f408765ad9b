"""Views: immutable sequences of the rows, or records, of a split."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
import pyarrow as pa

from transforms.core.arrays import regrouped
from transforms.core.schema import Feature
from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, SpecError, nearest, shortened
from transforms.reading.condition import Condition, parse_condition
from transforms.reading.folder import warn_once
from transforms.reading.positions import (
    Longs,
    RunPermutation,
    Selection,
    Shuffled,
    place_of,
    places_of,
)
from transforms.reading.records import Split, located
from transforms.reading.rows import Columns, RowDecoder
from transforms.storage.files import read_ahead

_Item = TypeVar("_Item")
_Decoded = TypeVar("_Decoded")
# The most rows, and about the most bytes, that are read and decoded together.
_TOGETHER = 4_096
_BYTES_TOGETHER = 1 << 24
# How many rows show what a row has.
_FIRST_ROWS = 64
# Rows among which a limited search looks at a time.
_LIMITED_ROWS = 16_384


class _Sequence(Generic[_Item]):
    """What views of rows and of records have in common."""

    def __init__(self, split: Split, chosen: Selection | None = None) -> None:
        self._split = split
        self._chosen = chosen

    @functools.cached_property
    def _selection(self) -> Selection:
        """The selection; counts the records at its first use."""
        if self._chosen is not None:
            return self._chosen
        return Selection.whole(range(len(self._split.records)))

    def __len__(self) -> int:
        return len(self._selection)

    def __repr__(self) -> str:
        split = self._split
        title = f"{split.path}, {split.name!r}" if split.name else split.path
        return f"<{len(self):,} {self._what} of {title}>"

    _what = "items"

    def _with(self, selection: Selection) -> Self:
        return type(self)(self._split, selection)

    def _item(self, record: bytes) -> _Item:
        raise NotImplementedError

    def _items(self, payloads: PayloadBatch) -> Iterable[_Item]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> _Item: ...

    @overload
    def __getitem__(self, index: "slice | Sequence[int] | Longs") -> Self: ...

    def __getitem__(self, index: Any) -> Any:
        """Returns a row or a record, or a view of several.

        Raises:
          IndexError: there is no such row.
          TypeError: the index is no whole number, slice or list.
          TFRecordError: the record is damaged.
          ExampleError: it does not hold what the features must.
        """
        if type(index) is int:
            # Without the checks below, which cost as much as reading a small record.
            try:
                position = self._selection.at(index)
            except IndexError:
                raise IndexError(
                    f"index {index} is out of range of {len(self):,} {self._what}"
                ) from None
            record = self._split.records[position]
            try:
                return self._item(record)
            except ExampleError as error:
                raise located(error, self._split.records, position) from error
        if isinstance(index, slice):
            return self._with(self._selection[index])
        if isinstance(index, list | tuple | np.ndarray) and np.ndim(index) > 0:
            places = places_of(index, len(self))
            return self._with(Selection.whole(self._selection.many(places)))
        return self[place_of(index)]

    def __getitems__(self, indices: Iterable[int]) -> list[_Item]:
        """Returns several items at once, as PyTorch asks for a batch of them."""
        positions = self._selection.many(places_of(indices, len(self)))
        payloads = PayloadBatch.of(self._split.records.many(positions))
        try:
            return [*self._items(payloads)] if len(payloads) else []
        except ExampleError as error:
            raise self._found(error, payloads, positions) from error

    def __iter__(self) -> Iterator[_Item]:
        return self._decoded(self._items)

    def _decoded(
        self, decode: Callable[[PayloadBatch], Iterable[_Decoded]]
    ) -> Iterator[_Decoded]:
        """Yields what is made of the records; errors name the record."""
        for position, payloads in self._payloads():
            try:
                yield from decode(payloads)
            except ExampleError as error:
                positions = self._selection.span(position, position + len(payloads))
                raise self._found(error, payloads, positions) from error

    def _found(
        self, error: ExampleError, payloads: PayloadBatch, positions: Longs
    ) -> ExampleError:
        """Returns the error of the first record that does not have the features."""
        for index, position in enumerate(positions.tolist()):
            try:
                self._item(payloads.payload(index))
            except ExampleError as first:
                return located(first, self._split.records, position)
        # Each can be decoded by itself.
        return error

    def _payloads(self) -> Iterator[tuple[int, PayloadBatch]]:
        """Yields the place of a record, and the records from there, some at a time."""
        position = 0
        in_order = self._in_order()
        if in_order is not None:
            for batch in in_order:
                for start in range(0, len(batch), _TOGETHER):
                    piece = batch.part(start, start + _TOGETHER)
                    yield position, piece
                    position += len(piece)
            return
        for records in self._gathered():
            for some in _in_pieces(records):
                yield position, PayloadBatch.of(some)
                position += len(some)

    def _in_order(self) -> Iterator[PayloadBatch] | None:
        """Returns the records in the order of the files; None for another order.

        Views that leave records out read those, too, where shards are compressed.
        """
        selection, records = self._selection, self._split.records
        if selection.follows_files:
            return records.batches(selection.places.start, selection.places.stop)
        if not records.in_order_only or isinstance(selection.base, Shuffled):
            return None
        positions = selection.span(0, len(selection))
        return records.ascending(positions) if np.all(np.diff(positions) > 0) else None

    def _gathered(self) -> Iterator[list[bytes]]:
        """Yields the records of views in any order, some at a time."""
        selection, records = self._selection, self._split.records
        base = selection.base
        if isinstance(base, Shuffled) and isinstance(base.order, RunPermutation):
            # What is mixed is read together, a range of neighbours for each run. From
            # a store, one window more is read meanwhile.
            yield from read_ahead(
                lambda span: records.many(selection.span(*span)),
                base.order.windows(selection.places),
                far=records.is_remote,
                threads=2,
            )
            return
        start, together = 0, _FIRST_ROWS
        while start < len(selection):
            stop = min(start + together, len(selection))
            gathered = records.many(selection.span(start, stop))
            yield gathered
            mean = sum(map(len, gathered)) // len(gathered) + 1
            start, together = stop, max(min(_TOGETHER, _BYTES_TOGETHER // mean), 1)

    def shuffled(self, seed: int = 0, epoch: int = 0, *, run: int = 0) -> Self:
        """Returns the same items in another order, the same one everywhere.

            train.shuffled(seed=1, epoch=3)[12_000:]        # go on in an epoch

        The order is a permutation by a formula: it takes no memory, and any part of it
        can be had without the others.

        Args:
          seed: of the order.
          epoch: each has an order of its own.
          run: for buckets and cold disks: runs of this many neighbours are shuffled,
            and 16 runs at a time are mixed, so that each read gives a run of records.
            0 shuffles records one by one.

        Raises:
          SpecError: `run` is below 0.
          TypeError: a number is no whole one.
        """
        neighbours = _whole_number("run", run)
        if neighbours < 0:
            raise SpecError(f"run must be a number of records, or 0; found {run}.")
        seed, epoch = _whole_number("seed", seed), _whole_number("epoch", epoch)
        order = Shuffled.of(self._selection, seed=seed, epoch=epoch, run=neighbours)
        return self._with(Selection.whole(order))


def _whole_number(name: str, value: Any) -> int:
    """Returns an argument of a view that must be a whole number. Raises TypeError."""
    try:
        return place_of(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a whole number; found {shortened(repr(value))}"
        ) from None


def _in_pieces(records: list[bytes]) -> Iterator[list[bytes]]:
    """Yields records some at a time: at least one, and not many more bytes."""
    start = size = 0
    for stop, record in enumerate(records, 1):
        size += len(record)
        is_full = stop - start == _TOGETHER or size >= _BYTES_TOGETHER
        if is_full or stop == len(records):
            yield records[start:stop]
            start, size = stop, 0


class View(_Sequence[dict[str, Any]]):
    """An immutable sequence of rows; a slice or a list of it is one again.

        train = open_dataset("out/photos")["train"]
        len(train), train[7]["label"]
        train[:100], train[[3, 1, 2]], train.select(["label"]).shuffled(seed=1)

    A row is a dict with a key for each feature; see `transforms.reading.rows`.
    """

    _what = "rows"

    def __init__(
        self,
        split: Split,
        chosen: Selection | None = None,
        names: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(split, chosen)
        self._names = names

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._split, self._chosen, self._names)

    @property
    def features(self) -> Mapping[str, Feature]:
        """The features of the rows, by name."""
        features = self._split.features
        if self._names is None:
            return features
        return {name: features[name] for name in self._names}

    def origins(self) -> Iterator[tuple[str, int]]:
        """Yields the shard's path and the record's number there, of each row."""
        for index in range(len(self)):
            yield self._split.records.origin(self._selection.at(index))

    @property
    def positions(self) -> Longs:
        """The number of each row's record in its split, from 0; an int64 array."""
        return self._selection.span(0, len(self))

    @property
    def records(self) -> "RecordView":
        """The same items as serialised tf.train.Examples."""
        return RecordView(self._split, self._chosen)

    def select(self, names: Sequence[str]) -> "View":
        """Returns the same rows with some of their features only.

        Raises:
          SpecError: there is no such feature.
        """
        if isinstance(names, str):
            raise SpecError(f"select takes a list of names, as in [{names!r}].")
        for name in names:
            if name not in self.features:
                raise SpecError(
                    f"select must name features of the rows; there is no {name!r}"
                    f"{nearest(str(name), self.features)}."
                )
        return View(self._split, self._chosen, tuple(dict.fromkeys(names)))

    def where(self, condition: str, *, limit: int | None = None) -> "View":
        """Returns the rows that a condition holds for, in their order.

            train.where("label == 'dog' and height > 400 and caption is not None")

        The features that it names are read from the catalogue if that has them, else
        from every record of the view; then a message says so.

        Args:
          condition: over features of the dataset, selected or not; see
            `transforms.reading.condition`. A comparison with a missing value is
            neither true nor false, and such rows are left out.
          limit: at most this many rows; those behind them are not read, unless shards
            are compressed.

        Raises:
          SpecError: it is no condition; quotes what is wrong, and says what to write.
          TFRecordError: a record is damaged.
        """
        split, features = self._split, [*self._split.features.values()]
        classes = {feature.name: feature.vocabulary or () for feature in features}
        parsed = parse_condition(condition, features, classes)
        if split.catalogue is None or not split.catalogue.has(parsed.columns):
            warn_once(
                f"{split.path}: a condition reads every record of a split, for no "
                f"catalogue has its features; 'beam-tfrecord index DIR --catalogue' "
                f"makes one; of a dataset of parts, DIR is each part"
            )
        step = max(len(self), 1)
        if limit is not None and not split.records.in_order_only:
            step = _LIMITED_ROWS
        chosen = np.empty(0, np.int64)
        for start in range(0, len(self), step):
            more = self[start : start + step]._matching(parsed)
            chosen = np.concatenate((chosen, more))[:limit]
            if len(chosen) == limit:
                break
        return self._with(Selection.whole(chosen))

    def _matching(self, condition: Condition) -> Longs:
        """Returns the positions of rows that meet a condition, reading each once."""
        selection, positions = self._selection, self.positions
        places: Any = slice(None)
        if not selection.follows_files:
            distinct, places = np.unique(positions, return_inverse=True)
            selection = Selection.whole(distinct)
        rows = View(self._split, selection, condition.columns)
        columns = Columns([*rows.features.values()], named=False)
        masks = [condition.certain(batch) for batch in rows._batches(columns)]
        holds = np.concatenate([np.empty(0, np.bool_), *masks])
        return np.asarray(positions[holds[places]])

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yields the rows as Arrow batches of `rows` rows; the last may have fewer.

        Labels are ids; with `labels="names"` they are names, in one dictionary for all
        batches. See `transforms.reading.rows`.

        Raises as `[i]` does; SpecError where `rows` is below 1.
        """
        if _whole_number("rows", rows) < 1:
            raise SpecError(f"batches must have 1 row or more; found {rows}.")
        return regrouped(self._batches(self._columns), rows)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Gives the rows to whatever reads Arrow streams: Polars, DuckDB, pandas.

        Making a stream reads nothing. `select` says which columns it has; if the
        catalogue has them all, no shard is opened.

        Args:
          requested_schema: a schema of the same columns, to which they are cast.

        What `[i]` would raise is an error of the consumer's. Its text begins with the
        same message; pyarrow adds the traceback behind it.
        """
        batches = self._batches(self._columns)
        reader = pa.RecordBatchReader.from_batches(self.arrow_schema, batches)
        return reader.__arrow_c_stream__(requested_schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The schema of its batches; nothing is read for it."""
        return self._columns.schema

    def _batches(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Yields the rows as batches: of the catalogue, if that has all columns."""
        selection = self._selection
        catalogue, features = self._split.catalogue, [*self.features.values()]
        if catalogue is None or not catalogue.has(self.features):
            yield from self._decoded(lambda payloads: [columns.batch(payloads)])
            return
        if selection.follows_files:
            places = selection.places
            batches = catalogue.batches(features, places.start, places.stop)
        else:
            batches = catalogue.at(features, selection.span(0, len(selection)))
        for batch in batches:
            yield columns.of_rows(batch)

    @property
    def _columns(self) -> Columns:
        named = self._split.looks.labels == "names"
        return Columns([*self.features.values()], named=named)

    def _with(self, selection: Selection) -> "View":
        return View(self._split, selection, self._names)

    def _item(self, record: bytes) -> dict[str, Any]:
        return self._decoder.one(record)

    def _items(self, payloads: PayloadBatch) -> Iterable[dict[str, Any]]:
        return self._decoder.rows(payloads)

    @functools.cached_property
    def _decoder(self) -> RowDecoder:
        return RowDecoder([*self.features.values()], self._split.looks)


class RecordView(_Sequence[bytes]):
    """An immutable sequence of serialised tf.train.Examples.

    train.records[7]
    """

    _what = "records"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._split, self._chosen)

    def __iter__(self) -> Iterator[bytes]:
        if self._in_order() is not None:
            yield from super().__iter__()
            return
        for gathered in self._gathered():
            yield from gathered

    def _item(self, record: bytes) -> bytes:
        return record

    def _items(self, payloads: PayloadBatch) -> Iterable[bytes]:
        return payloads.to_list()
