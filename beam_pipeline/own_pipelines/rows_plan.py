"""What the rows of a pipeline are to be, decided in the pipeline from their counts."""

import collections
import dataclasses
import datetime
import hashlib
import json
import platform
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from apache_beam.version import __version__ as beam_version

from beam_pipeline.own_pipelines.earlier_runs import EarlierRuns
from beam_pipeline.own_pipelines.given_schema import (
    GivenSchema,
    example_features,
    like_dataset,
    root_of,
    schema_of,
)
from beam_pipeline.own_pipelines.held import Held
from beam_pipeline.own_pipelines.read_rows import ReadSource
from beam_pipeline.planning.plan import derived_settings
from beam_pipeline.planning.sizes import shards_of
from beam_pipeline.planning.splits import rule_of
from beam_pipeline.planning.vocabularies import vocabularies_of
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core.manifest import Manifest
from transforms.core.model import Segment
from transforms.core.placing.placement import (
    Sharding,
    SplitRule,
    SplitSource,
    usual_order,
)
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import EncodingError, SpecError, nearest
from transforms.publishing.shared_run import Seen, SharedRun
from transforms.rows.inferred import Declared, InferredColumn, infer
from transforms.rows.row_identity import RowRule
from transforms.rows.row_types import merge_refusals
from transforms.rows.tally import SpooledBundle, merge_tallies
from transforms.rows.typed_rows import SpooledTypes
from transforms.shards.shard_job import ShardLayout
from transforms.stages.job_plan import JobPlan, LeakRule, Publication

_NO_INPUTS = {"files": 0, "bytes": 0, "sha256": ""}
# Pairs of pieces and shards from which on an engine holds much for them: some 220 bytes
# for each.
_MANY_PAIRS = 500_000
# As long as the names of all folders of datasets in buckets have it.
_DIGEST_BYTES = 6


@dataclasses.dataclass(frozen=True)
class Given:
    """What is known of rows before they are seen.

    Attributes:
      spec: of the job.
      schema: of a `pa.Schema`.
      earlier: the dataset that `like` names.
    """

    spec: Spec
    schema: GivenSchema | None
    earlier: Held[Manifest] | None

    @property
    def read_by_workers(self) -> list[str]:
        """The files that are too large for the graph."""
        is_large = self.earlier is not None and self.earlier.inline is None
        return [self.earlier.path] if self.earlier is not None and is_large else []

    def whole(self) -> GivenSchema | None:
        """Returns the whole schema; None where columns are inferred."""
        if self.earlier is None:
            return self.schema
        return like_dataset(self.earlier.get(), self.spec.unknown_label)

    def examples(self) -> tuple[Feature, ...]:
        """Returns the features of elements that are serialised Examples."""
        earlier = None if self.earlier is None else self.earlier.get()
        return example_features(self.spec, self.whole(), earlier)


def split_rule(spec: Spec) -> SplitRule:
    """Returns how rows fall into splits, but for a table of splits."""
    if spec.split_column:
        return SplitRule(SplitSource.COLUMN)
    return rule_of(spec)


def row_rule_of(
    spec: Spec,
    declared: Mapping[str, Declared],
    given: Given,
    before: EarlierRuns,
    source: ReadSource | None,
) -> RowRule:
    """Returns what rows are known by, and how they fall into splits."""
    table = before.table()
    rule = split_rule(spec)
    if table is not None:
        rule = SplitRule(SplitSource.TABLE, table.names)
    kinds = {name: said.kind for name, said in declared.items()}
    # Text that is to be predicted is a class.
    labels = {name for name, kind in kinds.items() if kind is Kind.LABEL}
    labels |= {spec.label_column} if spec.label_column else set()
    labels |= {
        said.column or name for name, said in spec.features.items() if said.label
    }
    images = {name for name, kind in kinds.items() if kind is Kind.IMAGE}
    texts: frozenset[str] = frozenset()
    if source is not None:
        labels |= {feature.name for feature in source.schema.of_kind(Kind.LABEL)}
        images |= {feature.name for feature in source.schema.of_kind(Kind.IMAGE)}
        texts = frozenset(source.schema.names) - images
    whole = (Kind.INT64, Kind.LABEL)
    return RowRule(
        split=rule,
        split_column=spec.split_column or "",
        key_column=spec.key_column or "",
        group_column=spec.group_column or "",
        images=frozenset(images),
        texts=texts,
        images_root=root_of(spec, source),
        integers=frozenset(n for n, kind in kinds.items() if kind in whole),
        scalars=frozenset(declared.keys() - {*spec.drop} | labels),
        examples=given.examples if given.examples() else None,
        table=before.table if table is not None else None,
        lock=before.lock if before.splits is not None else None,
    )


def merge_bundles(bundles: Iterable[SpooledBundle]) -> SpooledBundle:
    """Returns the counts of all bundles, and what names their pieces.

    Args:
      bundles: of one run, without rows.
    """
    pieces: list[Segment] = []
    sizes: collections.Counter[str] = collections.Counter()
    tallies, refusals = [], []
    for bundle in bundles:
        pieces += bundle.pieces
        if bundle.word:
            # A bundle counts by its word, too: it may have rejects alone.
            pieces.append(Segment(bundle.word, 0, 0, 0))
        sizes.update(bundle.sizes)
        tallies.append(bundle.tally)
        refusals.append(bundle.refusals)
    return SpooledBundle(
        "", tuple(pieces), merge_tallies(tallies), dict(sizes), merge_refusals(refusals)
    )


def plan_rows(
    counted: SpooledBundle,
    spec: Spec,
    rule: RowRule,
    *,
    given: GivenSchema | None,
    declared: Mapping[str, Declared],
    before: EarlierRuns,
    unique: bool,
    seen: Seen,
    run: SharedRun,
    source: ReadSource | None = None,
) -> JobPlan:
    """Returns what is made of all rows; a function of them and the spec alone.

    Args:
      counted: counts of all rows.
      spec: of the job.
      rule: of the job.
      given: the whole schema, where one is given.
      declared: what is said of columns.
      before: what earlier runs have decided.
      unique: whether no two rows may have one key.
      seen: what the submission saw at the target when it started.
      run: that the rows are of.
      source: that the rows were read from, where that is known.

    Raises:
      EncodingError: values of one column are of kinds that do not join, or the same is
        wrong with every row.
      SpecError: the spec and the rows contradict each other.
    """
    inferred = _infer(counted, spec, rule, given, declared)
    schema = schema_of(inferred, spec, given, source)
    splits = _split_names(rule.split, counted.sizes)
    shards = {
        name: shards_of(spec, counted.sizes[name])
        for name in splits
        if name in counted.sizes
    }
    pieces = frozenset((piece.origin, piece.crc32c) for piece in counted.pieces)
    store = run.open_plan(_digest_of(pieces))
    table, lock = before.tables_in(store)
    is_keyed = bool(rule.key_column)
    keys_apart = unique and rule.split.source is SplitSource.COLUMN
    has_images = bool(schema.of_kind(Kind.IMAGE)) and len(shards) > 1
    leaks = LeakRule(
        identity=before.identity,
        keyed=keys_apart,
        unique=keys_apart,
        lock=lock,
        make_lock=bool(spec.split_lock),
        table=table,
    )
    layout = ShardLayout(
        name=str(spec.name),
        schema=schema,
        sharding=Sharding(
            rule=dataclasses.replace(
                rule.split, names=tuple(splits), by_content=not is_keyed
            ),
            shards=shards,
            seed=spec.seed,
            keyed=is_keyed,
            placeless=True,
            unique=unique,
        ),
        compression=spec.compression,
        root=spec.images_root or (source.root if source is not None else ""),
        image_policy=spec.image_policy,
        many_origins=is_keyed,
        fingerprints=has_images,
        derived=derived_settings(spec, schema),
    )
    return JobPlan(
        store,
        _publication(counted, spec, layout, seen, run, source),
        vocabularies_of(schema),
        table=table,
        lock=lock,
        with_fingerprints=before.with_units or keys_apart,
        leaks=leaks,
        spooled=SpooledTypes(
            # The plan looks up no row.
            dataclasses.replace(rule, table=None, lock=None, examples=None),
            {name: column.types for name, column in inferred.items()},
            pieces,
            has_source=source is not None,
        ),
    )


def _infer(
    counted: SpooledBundle,
    spec: Spec,
    rule: RowRule,
    given: GivenSchema | None,
    declared: Mapping[str, Declared],
) -> dict[str, InferredColumn]:
    """Returns what each column is to be; errors are those of `plan_rows`."""
    _check_refusals(counted)
    if counted.tally.rows:
        if not counted.tally.columns:
            raise EncodingError(
                f"Every row must have a column at least beside {rule.split_column!r}, "
                f"which names its split and is not stored; found none. Add a column."
            )
        _check_columns(spec, counted.tally.columns, given)
        if given is None:
            declared = _of_found(declared, counted.tally.columns)
    return infer(counted.tally, label=spec.label_column, declared=declared)


def _digest_of(pieces: Iterable[tuple[str, int]]) -> str:
    text = json.dumps(sorted(pieces)).encode()
    return hashlib.blake2b(text, digest_size=_DIGEST_BYTES).hexdigest()


def _publication(
    counted: SpooledBundle,
    spec: Spec,
    layout: ShardLayout,
    seen: Seen,
    run: SharedRun,
    source: ReadSource | None,
) -> Publication:
    shards = layout.sharding.shards
    notes = [] if source is None else [*source.notes]
    pieces = sum(piece.rows > 0 for piece in counted.pieces)
    pairs = pieces * sum(shards.values())
    if pairs > _MANY_PAIRS:
        notes.append(
            f"the rows came in {pieces:,} pieces for "
            f"{sum(shards.values()):,} shards: the engine held {pairs:,} descriptors. "
            f"beam.Reshuffle() before WriteDataset may make fewer and larger pieces"
        )
    return Publication(
        directory=run.directory,
        seen=seen.state,
        job=seen.job,
        layout=layout,
        settings=_settings(spec, layout.schema, shards),
        inputs=_NO_INPUTS if source is None else source.inputs,
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
        skipped={} if source is None else source.skipped,
        expected_rows=counted.received if source is None else source.expected_rows,
        expected_placed=counted.received,
        max_reject_rate=spec.max_reject_rate,
        allow_empty=spec.allow_empty,
        min_records=spec.min_records,
        max_records=spec.max_records,
        verified=spec.verify,
        keeps_equal=True,
        steps="" if source is None else "add",
    )


def _check_refusals(counted: SpooledBundle) -> None:
    """Raises EncodingError where one thing is wrong with every row.

    Then it is no row that is bad, but a step or a parameter.
    """
    for rows, sentence in counted.refusals.values():
        if rows == counted.received:
            raise EncodingError(sentence)


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
