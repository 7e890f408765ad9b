"""Rows through the functions beneath `WriteDataset`, without a runner or a disk."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_pipeline.own_pipelines.given_schema import types_of_rows
from beam_pipeline.own_pipelines.known_rows import gather_rule_of
from beam_pipeline.own_pipelines.rows_plan import (
    RowsPlan,
    draft_rows,
    merge_bundles,
    plan_rows,
)
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from transforms import files
from transforms.core.example.encoder import ExampleEncoder
from transforms.core.model import Rejection, Segment
from transforms.core.placing.name_lists import load_classes
from transforms.core.rows.record_columns import (
    number_labels,
    record_columns,
    record_schema,
)
from transforms.core.schema import Kind, Schema
from transforms.gather.bundle import BundleRows, GatheredBundle
from transforms.gather.cuts import Bounds
from transforms.gather.exact_cuts import find_cuts
from transforms.gather.row_runs import RowRange, RowRun, cut_run
from transforms.gather.shard_of_runs import gather_shard
from transforms.publishing.shared_run import Seen


@dataclasses.dataclass(frozen=True)
class Gathered:
    """What became of some rows.

    Attributes:
      plan: of the rows.
      records: of each shard, in its order; images as they are in the rows.
      rejections: of all shards.
      classes: label feature -> its class names.
    """

    plan: RowsPlan
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
        return self.schema, self.records, refused, self.classes, self.plan.counts.rows


class _Stored:
    """Files in memory."""

    def __init__(self) -> None:
        self._files: list[bytes] = []

    def put_pieces(self, pieces: Sequence[pa.Buffer]) -> str:
        self._files.append(b"".join(bytes(memoryview(piece)) for piece in pieces))
        return str(len(self._files))

    def fetch(self, path: str, start: int, stop: int) -> bytes:
        return self._files[int(path) - 1][start:stop]

    def get(self, part: Segment) -> pa.Buffer:
        found = self.fetch(part.path, 0, part.size) if part.path else part.payload
        return pa.py_buffer(found)


def gather(
    bundles: Sequence[Sequence[Any]], *, element_type: Any = Any, **settings: Any
) -> Gathered:
    """Returns what becomes of bundles of rows under settings of `WriteDataset`."""
    write = WriteDataset("out/rows", **settings)
    declared = types_of_rows(element_type) | write._declared
    rule = gather_rule_of(
        write._spec,
        declared,
        write._given,
        write._before,
        None,
        unique=write._unique,
    )
    stored = _Stored()
    fetch = stored.fetch

    found: list[GatheredBundle] = []
    rejections: list[Rejection] = []
    for rows in bundles:
        bundle = BundleRows(rule, stored.put_pieces, files.sizes_of, rejections.extend)
        for row in rows:
            bundle.add(row)
        made = bundle.finish()
        if made is not None:
            found.append(made)
    runs = [run for each in found for run in each.runs]
    counts = merge_bundles(found, stored)
    draft = draft_rows(
        counts,
        write._spec,
        rule,
        given=write._given.whole(),
        declared=declared,
        seen=Seen("", ""),
    )
    large = {name: each.large_bounds for name, each in draft.cuttings.items()}
    cuts = [
        (
            split,
            find_cuts(
                draft.cuttings[split].large[number],
                parts,
                draft.schema,
                draft.types,
                fetch,
                unique=write._unique,
            ),
        )
        for (split, number), parts in _by_shard(runs, large).items()
    ]
    plan = plan_rows(
        draft,
        cuts,
        write._spec,
        rule,
        names=write._before.locked_names(),
        directory="out/rows",
        store=stored,
    )
    classes = load_classes(plan.counts.classes, stored.get)
    ranges = _by_shard(runs, plan.bounds)
    records: dict[tuple[str, int], Sequence[bytes]] = {}
    for key in sorted(ranges):
        gathered, refused = gather_shard(
            ranges[key],
            plan.layout.schema,
            plan.types,
            fetch,
            unique=write._unique,
            around=plan.bounds[key[0]].around(key[1]),
        )
        rejections += refused
        records[key] = _records(gathered, plan, classes)
    names = {name: found.to_pylist() for name, found in classes.items()}
    return Gathered(plan, records, rejections, names)


def _by_shard(
    runs: Sequence[RowRun], bounds: Mapping[str, Bounds]
) -> dict[tuple[str, int], list[RowRange]]:
    out: dict[tuple[str, int], list[RowRange]] = {}
    for run in runs:
        for key, part in cut_run(run, bounds):
            out.setdefault(key, []).append(part)
    return out


def _records(
    rows: Any, plan: RowsPlan, classes: Mapping[str, pa.StringArray]
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
