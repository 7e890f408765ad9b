"""What the rows of a pipeline are to be, decided in the pipeline from their counts."""

import dataclasses
import datetime
import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from apache_beam.version import __version__ as beam_version

from beam_pipeline.own_pipelines.given_schema import GivenSchema, schema_of
from beam_pipeline.own_pipelines.read_source import ReadSource
from beam_pipeline.planning.derived import derived_settings
from beam_pipeline.planning.features.vocabularies import vocabularies_of
from beam_pipeline.planning.sizes import shards_of
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core import this_worker
from transforms.core.model import PlaceFacts, ReadFacts, RejectLog, Segment
from transforms.core.placing.name_lists import (
    NameStore,
    add_names,
    distinct_names,
    put_classes,
)
from transforms.core.placing.placement import Sharding, SplitRule, usual_order
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import Vocabulary
from transforms.core.schema import Kind, Schema
from transforms.errors import EncodingError, SpecError, nearest
from transforms.gather.bundle import GatheredBundle, GatherRule
from transforms.gather.cuts import (
    Bounds,
    Cut,
    Cutting,
    Histogram,
    even_bounds,
    plan_cuts,
)
from transforms.gather.merge_runs import Merging, plan_merging
from transforms.gather.refused_rows import merge_refusals
from transforms.gather.tally import Declared, infer, merge_tallies
from transforms.publishing.shared_run import Seen
from transforms.shards.shard_job import ShardLayout
from transforms.stages.commit import Publication
from transforms.stages.gather import ROWS_ORIGIN
from transforms.work.worker_check import VersionRules

_NO_INPUTS = {"files": 0, "bytes": 0, "sha256": ""}
# Keys that one worker compares at a time.
_KEYS_COMPARED = 1 << 20


@dataclasses.dataclass(frozen=True)
class RowsDraft:
    """What is decided before cuts are found in large parts of the hashes.

    Attributes:
      gathered: counts of all rows.
      seen: what the submission saw at the target when it started.
      types: column -> types that its values join to; others are rejected.
      schema: of the rows.
      cuttings: split -> how it is cut; of splits that have rows, in their order.
      splits: names of all splits.
    """

    gathered: GatheredBundle
    seen: Seen
    types: Mapping[str, Sequence[pa.DataType]]
    schema: Schema
    cuttings: Mapping[str, Cutting]
    splits: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RowsPlan:
    """Everything that the stages after the rows need to know.

    Attributes:
      types: column -> types that its values join to; others are rejected.
      bounds: split -> its shards.
      counts: rows of each shard, and the class names.
      publication: what is published, and how shards are laid out.
      facts: what was read and placed, for the account.
      attempts: of the bundles whose rows are counted.
      workers: stamps of the workers that have gathered them, and of this one.
      key_bounds: the parts of the hashes in which keys are compared.
      merging: how runs are merged before they are cut; None for not at all.
      reading: versions that the workers that have read a source must have; None where
        there is none.
    """

    types: Mapping[str, Sequence[pa.DataType]]
    bounds: Mapping[str, Bounds]
    counts: ShardCounts
    publication: Publication
    facts: tuple[ReadFacts | PlaceFacts | RejectLog, ...]
    attempts: frozenset[str]
    workers: frozenset[str]
    key_bounds: Bounds
    merging: Merging | None
    reading: VersionRules | None = None

    @property
    def layout(self) -> ShardLayout:
        """What decides the bytes of a shard."""
        return self.publication.layout


def merge_bundles(
    bundles: Iterable[GatheredBundle], store: NameStore
) -> GatheredBundle:
    """Returns the counts of all bundles; their runs are left out.

    Args:
      bundles: of one run.
      store: where long lists of names are.
    """
    tallies = []
    histograms: dict[str, Histogram] = {}
    labels: dict[str, list[Segment]] = {}
    attempts: set[str] = set()
    workers = {this_worker.stamp()}
    refusals = []
    runs = 0
    for bundle in bundles:
        refusals.append(bundle.refusals)
        attempts |= bundle.attempts
        # A bundle of a version without the field lacks it when it is unpickled.
        workers |= getattr(bundle, "workers", {""})
        runs += bundle.run_count
        tallies.append(bundle.tally)
        for name, found in bundle.histograms.items():
            known = histograms.get(name)
            histograms[name] = found if known is None else known.merge(found)
        for name, names in bundle.labels.items():
            add_names(labels.setdefault(name, []), names, store)
    return GatheredBundle(
        (),
        merge_tallies(tallies),
        histograms,
        labels,
        attempts=frozenset(attempts),
        run_count=runs,
        refusals=merge_refusals(refusals),
        workers=frozenset(workers),
    )


def draft_rows(
    gathered: GatheredBundle,
    spec: Spec,
    rule: GatherRule,
    *,
    given: GivenSchema | None,
    declared: Mapping[str, Declared],
    seen: Seen,
    source: ReadSource | None = None,
) -> RowsDraft:
    """Returns what the counts of all rows decide; a function of them and the spec.

    Args:
      gathered: counts of all rows.
      spec: of the job.
      rule: of the job.
      given: the whole schema, where one is given.
      declared: what is said of columns.
      seen: what the submission saw at the target when it started.
      source: that the rows were read from, where that is known.

    Raises:
      EncodingError: values of one column are of kinds that do not join, or the same is
        wrong with every row.
      SpecError: the spec and the rows contradict each other.
    """
    _check_refusals(gathered)
    if gathered.tally.rows:
        if not gathered.tally.columns:
            raise EncodingError(
                f"Every row must have a column at least beside {rule.split_column!r}, "
                f"which names its split and is not stored; found none. Add a column."
            )
        _check_columns(spec, gathered.tally.columns, given)
        if given is None:
            declared = _of_found(declared, gathered.tally.columns)
    inferred = infer(gathered.tally, label=spec.label_column, declared=declared)
    sizes = {name: _bytes_of(found) for name, found in gathered.histograms.items()}
    names = _split_names(rule.split, sizes)
    return RowsDraft(
        gathered,
        seen,
        types={name: column.types for name, column in inferred.items()},
        schema=schema_of(inferred, spec, given, source),
        cuttings={
            name: plan_cuts(gathered.histograms[name], shards_of(spec, sizes[name]))
            for name in names
            if name in gathered.histograms
        },
        splits=tuple(names),
    )


def plan_rows(
    draft: RowsDraft,
    found: Iterable[tuple[str, Sequence[Cut]]],
    spec: Spec,
    rule: GatherRule,
    *,
    names: tuple[str, ...] | None,
    directory: str,
    store: NameStore,
    source: ReadSource | None = None,
) -> RowsPlan:
    """Returns what is made of all rows; a function of the rows and the spec alone.

    Args:
      draft: of all rows.
      found: (split, its cuts) in each large part of the hashes.
      spec: of the job.
      rule: of the job.
      names: that have their class ids already; None for no lock.
      directory: the target.
      store: where long lists of names are.
      source: that the rows were read from, where that is known.
    """
    schema, gathered = draft.schema, draft.gathered
    inside: dict[str, list[Cut]] = {}
    for name, cuts in found:
        inside.setdefault(name, []).extend(cuts)
    bounds: dict[str, Bounds] = {}
    rows: dict[tuple[str, int], int] = {}
    for name, cutting in draft.cuttings.items():
        bounds[name], counts = cutting.settle(inside.get(name, ()))
        rows |= {(name, shard): count for shard, count in enumerate(counts)}
    size = sum(map(_bytes_of, gathered.histograms.values()))
    merging = plan_merging(gathered.run_count, len(rows), size)
    notes = []
    if merging is not None:
        notes.append(
            f"{gathered.run_count:,} sorted runs of rows were merged before they were "
            f"cut into {len(rows):,} shards, as each run has rows of each shard"
        )
    known = vocabularies_of(schema, spec, read=lambda _: names)
    classes = {}
    for feature in schema.of_kind(Kind.LABEL):
        lists = gathered.labels.get(feature.source_column, ())
        vocabulary = known.get(feature.name, Vocabulary())
        found_names = vocabulary.settled(distinct_names(lists, store.get))
        classes[feature.name] = put_classes(found_names, store.put_pieces)
    shards = {name: len(found) for name, found in bounds.items()}
    layout = ShardLayout(
        name=str(spec.name),
        schema=schema,
        sharding=Sharding(
            rule=dataclasses.replace(rule.split, names=draft.splits),
            shards=shards,
            seed=spec.seed,
            keyed=bool(rule.key_column),
        ),
        compression=spec.compression,
        root=spec.images_root or (source.root if source is not None else ""),
        image_policy=spec.image_policy,
        fingerprints=bool(schema.of_kind(Kind.IMAGE)) and len(shards) > 1,
        derived=derived_settings(spec, schema),
    )
    total = gathered.tally.rows
    publication = Publication(
        directory=directory,
        seen=draft.seen.state,
        job=draft.seen.job,
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
        draft.types,
        bounds,
        ShardCounts(rows, classes),
        publication,
        facts,
        frozenset(gathered.attempts),
        gathered.workers | {this_worker.stamp()},
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


def _check_columns(
    spec: Spec, columns: Iterable[str], given: GivenSchema | None
) -> None:
    """Raises SpecError where no row has a column that a parameter names."""
    named = [("label", spec.label_column), ("group_column", spec.group_column)]
    if given is not None:
        # Without a schema `schema_of` refuses them.
        columns = {*columns, *given.names}
        named += [("drop", name) for name in spec.drop]
    for parameter, name in named:
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
