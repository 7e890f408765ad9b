"""What the rows of a pipeline are to be, decided in the pipeline from their counts."""

import dataclasses
import datetime
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.version import __version__ as beam_version

from beam_pipeline.own_pipelines.given_schema import GivenSchema, schema_of
from beam_pipeline.own_pipelines.read_source import ReadSource
from beam_pipeline.planning.features.vocabularies import vocabularies_of
from beam_pipeline.planning.plan import shards_of
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core.model import PlaceFacts, ReadFacts, RejectLog
from transforms.core.placing.placement import Sharding, SplitRule, UInt64s, usual_order
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import Vocabulary
from transforms.core.schema import Kind, Schema
from transforms.errors import EncodingError, SpecError, nearest
from transforms.gather.bundle import GatheredBundle, GatherRule
from transforms.gather.merge_runs import Merging, plan_merging
from transforms.gather.refused_rows import merge_refusals
from transforms.gather.row_runs import BINS, Histogram, even_bounds
from transforms.gather.tally import Declared, infer, merge_tallies
from transforms.shards.write_shard import ShardLayout
from transforms.stages.commit import Publication
from transforms.stages.gather import ROWS_ORIGIN

__all__ = ["RowsPlan", "merge_bundles", "plan_rows"]

_NO_INPUTS = {"files": 0, "bytes": 0, "sha256": ""}
# Keys that one worker compares at a time.
_KEYS_COMPARED = 1 << 20
_BIN_BITS = 64 - (BINS.bit_length() - 1)


@dataclasses.dataclass(frozen=True)
class RowsPlan:
    """Everything that the stages after the rows need to know.

    Attributes:
      types: column -> types that its values join to; others are rejected.
      bounds: split -> the first hash of each of its shards.
      counts: rows of each shard, and the class names.
      publication: what is published, and how shards are laid out.
      facts: what was read and placed, for the account.
      attempts: of the bundles whose rows are counted.
      key_bounds: the first hash of each part in which keys are compared.
      merging: how runs are merged before they are cut; None for not at all.
    """

    types: Mapping[str, Sequence[pa.DataType]]
    bounds: Mapping[str, UInt64s]
    counts: ShardCounts
    publication: Publication
    facts: tuple[ReadFacts | PlaceFacts | RejectLog, ...]
    attempts: frozenset[str]
    key_bounds: UInt64s
    merging: Merging | None

    @property
    def layout(self) -> ShardLayout:
        """What decides the bytes of a shard."""
        return self.publication.layout


def merge_bundles(bundles: Iterable[GatheredBundle]) -> GatheredBundle:
    """Returns the counts of all bundles; their runs are left out."""
    tallies = []
    histograms: dict[str, Histogram] = {}
    labels: dict[str, list[pa.StringArray]] = {}
    attempts: set[str] = set()
    refusals = []
    runs = 0
    for bundle in bundles:
        refusals.append(bundle.refusals)
        attempts |= bundle.attempts
        runs += bundle.run_count
        tallies.append(bundle.tally)
        for name, found in bundle.histograms.items():
            known = histograms.get(name)
            histograms[name] = found if known is None else known.merge(found)
        for name, names in bundle.labels.items():
            labels.setdefault(name, []).append(names)
    distinct = {
        name: pa.chunked_array(parts, pa.string()).unique()
        for name, parts in labels.items()
    }
    return GatheredBundle(
        (),
        merge_tallies(tallies),
        histograms,
        distinct,
        attempts=frozenset(attempts),
        run_count=runs,
        refusals=merge_refusals(refusals),
    )


def plan_rows(
    gathered: GatheredBundle,
    spec: Spec,
    rule: GatherRule,
    *,
    given: GivenSchema | None,
    declared: Mapping[str, Declared],
    directory: str,
    seen: str,
    job: str,
    source: ReadSource | None = None,
) -> RowsPlan:
    """Returns what is made of all rows; a function of the rows and the spec alone.

    Args:
      gathered: counts of all rows.
      spec: of the job.
      rule: of the job.
      given: the whole schema, where one is given.
      declared: what is said of columns.
      directory: the target.
      seen: what is there now; see `transforms.publishing.target.state`.
      job: a word for the run.
      source: that the rows were read from, where that is known.

    Raises:
      EncodingError: values of one column are of kinds that do not join, or the same is
        wrong with every row.
      SpecError: the spec and the rows contradict each other.
    """
    _check_refusals(gathered)
    if gathered.tally.rows:
        _check_columns(spec, gathered.tally.columns)
        if given is None:
            declared = _of_found(declared, gathered.tally.columns)
    inferred = infer(gathered.tally, label=spec.label_column, declared=declared)
    types = {name: column.types for name, column in inferred.items()}
    schema = schema_of(inferred, spec, given, source)
    sizes = {name: _bytes_of(found) for name, found in gathered.histograms.items()}
    names = _split_names(rule.split, sizes)
    bounds: dict[str, UInt64s] = {}
    rows: dict[tuple[str, int], int] = {}
    for name in names:
        histogram = gathered.histograms.get(name)
        if histogram is None:
            continue
        bounds[name], counts = _cut(histogram, shards_of(spec, sizes[name]))
        rows |= {(name, shard): count for shard, count in enumerate(counts)}
    merging = plan_merging(gathered.run_count, len(rows), sum(sizes.values()))
    notes = []
    if merging is not None:
        notes.append(
            f"{gathered.run_count:,} sorted runs of rows were merged before they were "
            f"cut into {len(rows):,} shards, as each run has rows of each shard"
        )
    known = vocabularies_of(schema, spec)
    classes = {
        feature.name: known.get(feature.name, Vocabulary()).settled(
            gathered.labels.get(feature.source_column, pa.array([], pa.string()))
        )
        for feature in schema.of_kind(Kind.LABEL)
    }
    shards = {name: len(bounds[name]) for name in names if name in bounds}
    layout = ShardLayout(
        name=str(spec.name),
        schema=schema,
        sharding=Sharding(
            rule=dataclasses.replace(rule.split, names=tuple(names)),
            shards=shards,
            seed=spec.seed,
            keyed=bool(rule.key_column),
        ),
        compression=spec.compression,
        root=spec.images_root or (source.root if source is not None else ""),
        image_policy=spec.image_policy,
        fingerprints=bool(schema.of_kind(Kind.IMAGE)) and len(shards) > 1,
    )
    total = gathered.tally.rows
    publication = Publication(
        directory=directory,
        seen=seen,
        job=job,
        layout=layout,
        settings=_settings(spec, schema, shards),
        inputs=_NO_INPUTS,
        run={
            "spec": spec.to_json(),
            "started": datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
            "notes": notes,
            "versions": {
                "apache-beam": beam_version,
                "python": platform.python_version(),
                **deciding_versions(),
            },
        },
        expected_rows=gathered.received,
        max_reject_rate=spec.max_reject_rate,
        allow_empty=spec.allow_empty,
        verified=spec.verify,
        keeps_equal=True,
    )
    facts = (
        ReadFacts(ROWS_ORIGIN, start=0, rows=gathered.received),
        PlaceFacts(ROWS_ORIGIN, 0, rows, labels={}),
    )
    return RowsPlan(
        types,
        bounds,
        ShardCounts(rows, classes),
        publication,
        facts,
        frozenset(gathered.attempts),
        even_bounds(-(-total // _KEYS_COMPARED)),
        merging,
    )


def _check_refusals(gathered: GatheredBundle) -> None:
    """Raises EncodingError where one thing is wrong with every row.

    Then it is no row that is bad, but a step or a parameter.
    """
    for word, rows in gathered.refusals.rows.items():
        if rows == gathered.received:
            raise EncodingError(gathered.refusals.sentences[word])


def _check_columns(spec: Spec, columns: Iterable[str]) -> None:
    """Raises SpecError where no row has a column that a parameter names."""
    named = {"label": spec.label_column, "group_column": spec.group_column}
    for parameter, name in named.items():
        if name and name not in columns:
            raise SpecError(
                f"{parameter} must name a column of the rows; found {name!r}"
                f"{nearest(name, columns)}."
            )


def _of_found(
    declared: Mapping[str, Declared], columns: Collection[str]
) -> dict[str, Declared]:
    """Returns what is said of columns that rows have; `schema_of` refuses others.

    A column is there, too, as that of the mappings or lists which it is a part of.
    """
    out = {}
    for name, said in declared.items():
        parts = name.split("/")
        parents = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        if any(parent in columns for parent in parents):
            out[name] = said
    return out


def _bytes_of(histogram: Histogram) -> int:
    return int(histogram.bytes.sum())


def _split_names(rule: SplitRule, found: Mapping[str, int]) -> list[str]:
    """Returns the splits that the rule names, or those that the rows do."""
    if rule.is_closed:
        return [*rule.names]
    return usual_order(found)


def _cut(histogram: Histogram, wanted: int) -> tuple[UInt64s, Sequence[int]]:
    """Returns the first hash of each shard, and the rows of each; none is empty.

    Shards hold about equal bytes, as far as the parts of the histogram allow.
    """
    ends = np.cumsum(histogram.bytes)
    # The part in whose middle a shard would begin goes to one of its neighbours whole.
    targets = ends[-1] * np.arange(1, wanted, dtype=np.float64) / wanted
    firsts = np.unique(np.searchsorted(ends - histogram.bytes / 2, targets))
    firsts = firsts[(firsts > 0) & (firsts < len(ends))]
    places = np.concatenate(([0], firsts)).astype(np.int64)
    bounds = histogram.bins[places].astype(np.uint64) << np.uint64(_BIN_BITS)
    bounds[0] = 0
    rows = np.add.reduceat(histogram.rows, places)
    return bounds, rows.tolist()


def _settings(spec: Spec, schema: Schema, shards: Mapping[str, int]) -> dict[str, Any]:
    """Returns what decides bytes beside the rows, for the manifest."""
    given = spec.changed_json()
    decided = {
        key: given[key]
        for key in sorted(given)
        if SETTINGS[key].decides_bytes and key != "features"
    }
    return {
        **decided,
        "format": "rows",
        "schema": schema.to_json(),
        "shards": dict(shards),
    }
