"""Rows through the functions beneath `WriteDataset`, without a runner or a disk."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_pipeline.own_pipelines.rows_plan import merge_bundles, plan_rows
from beam_pipeline.own_pipelines.rows_schema import types_of_rows
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.model import Reading
from transforms.core.reasons import Rejection
from transforms.core.rows.record_columns import (
    number_labels,
    record_columns,
    record_schema,
)
from transforms.core.schema import Kind, Schema
from transforms.core.segment import Segment, in_source_order
from transforms.core.vocabulary import load_classes
from transforms.publishing.target import Seen
from transforms.rows.spool import Spool, SpooledBundle
from transforms.rows.typed_rows import read_piece
from transforms.shards.shard_job import load_segments
from transforms.stages.job_plan import JobPlan
from transforms.stages.place import (
    FACTS,
    CutByShard,
    count_shards,
    counts_of,
    merged_sums,
)
from transforms.storage.files import sizes_of
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What became of some rows.

    Attributes:
      plan: of the rows.
      counts: how many rows each shard has, with those that are rejected there.
      records: of each shard, in its order; images as they are in the rows.
      rejections: of all shards.
      classes: label feature -> its class names.
    """

    plan: JobPlan
    counts: Mapping[tuple[str, int], int]
    records: Mapping[tuple[str, int], Sequence[bytes]]
    rejections: Sequence[Rejection]
    classes: Mapping[str, Sequence[str]]

    @property
    def schema(self) -> Schema:
        """The features of the rows."""
        return self.plan.layout.schema

    @property
    def facts(self) -> tuple[Any, ...]:
        """All that may not depend on bundles and order."""
        refused = sorted(each.to_json() for each in self.rejections)
        return self.schema, self.records, refused, self.classes, self.counts


@dataclasses.dataclass
class _Run:
    """Takes the place of a run: rows stay in descriptors, tables are in a folder."""

    folder: str
    directory: str = "out/rows"

    def open_plan(self, _plan: str) -> Store:
        store = Store(self.folder, inline=True, unordered=True)
        os.mkdir(store.attempts)
        return store


def gather(
    bundles: Sequence[Sequence[Any]], *, element_type: Any = Any, **settings: Any
) -> Gathered:
    """Returns what becomes of bundles of rows under settings of `WriteDataset`."""
    with tempfile.TemporaryDirectory() as folder:
        return _gather(bundles, element_type, settings, _Run(folder))


def _gather(
    bundles: Sequence[Sequence[Any]],
    element_type: Any,
    settings: Mapping[str, Any],
    run: _Run,
) -> Gathered:
    write = WriteDataset("out/rows", **settings)
    given = dataclasses.replace(
        write._given,
        declared={**types_of_rows(element_type), **write._given.declared},
    )
    rule = given.row_rule()
    held: dict[str, bytes] = {}

    def store(name: str, pieces: Sequence[pa.Buffer]) -> str:
        held[name] = b"".join(piece.to_pybytes() for piece in pieces)
        return name

    made: list[SpooledBundle] = []
    rejections: list[Rejection] = []
    for number, rows in enumerate(bundles):
        spool = Spool(f"{number}", rule, store, sizes_of, rejections.extend)
        for row in rows:
            spool.add(row)
        bundle = spool.finish()
        if bundle is not None:
            made.append(bundle)
    plan = plan_rows(
        merge_bundles(made),
        given,
        rule,
        seen=Seen("", ""),
        run=run,  # type: ignore[arg-type]
    )
    place, sums = CutByShard(), []
    segments: dict[tuple[str, int], list[bytes]] = {}
    for piece in (piece for bundle in made for piece in bundle.pieces):
        reading = _read(piece, held, plan)
        rejections += reading.rejections
        for output in place.process(reading.batch, plan):
            if not isinstance(output, beam.pvalue.TaggedOutput):
                segments.setdefault(output[0], []).append(output[1])
            elif output.tag == FACTS:
                sums.append(counts_of(output.value))
    counts = count_shards(merged_sums(sums), plan)
    classes = load_classes(counts.classes, plan.store.get)
    records = {}
    for key in sorted(segments):
        source = in_source_order(segments[key])
        loaded, _ = load_segments([source], layout=plan.layout, store=plan.store)
        records[key] = _records(loaded, plan, classes)
    names = {name: found.to_pylist() for name, found in classes.items()}
    return Gathered(plan, counts.rows, records, rejections, names)


def _read(piece: Segment, held: Mapping[str, bytes], plan: JobPlan) -> Reading:
    message = pa.py_buffer(held[piece.file] if piece.file else piece.payload)
    assert plan.spooled is not None
    layout = plan.layout
    return read_piece(piece, message, plan.spooled, layout.schema, layout.sharding.seed)


def _records(
    rows: Any, plan: JobPlan, classes: Mapping[str, pa.StringArray]
) -> Sequence[bytes]:
    schema = plan.layout.schema
    # Files of images are not read here.
    features = tuple(
        f for f in schema.features if f.kind is not Kind.IMAGE and not f.derived
    )
    table = number_labels(rows.table.take(rows.order), features, classes)
    columns = record_columns(table, features)
    fields = record_schema(Schema(features))
    batch = pa.record_batch([columns[name] for name in fields.names], fields)
    out: list[bytes] = ExampleEncoder(fields).encode(batch).to_pylist()
    return out
