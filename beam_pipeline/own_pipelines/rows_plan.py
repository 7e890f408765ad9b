"""The plan of a dataset of rows of a pipeline, by the counts of all."""

import collections
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Sequence

from beam_pipeline.graph import drift_rule, run_facts
from beam_pipeline.own_pipelines.parameters import Given, raising_of_rows
from beam_pipeline.own_pipelines.rows_schema import columns_of_rows, schema_of
from beam_pipeline.planning.features import vocabularies_of
from beam_pipeline.planning.like import SHARED, drift_notes
from beam_pipeline.planning.request import deciding_settings, derived_settings
from beam_pipeline.planning.sizes import shards_of
from transforms.core.placing.sharding import Sharding
from transforms.core.placing.splitting import SplitSource, usual_order
from transforms.core.schema import Kind, Schema
from transforms.core.segment import Segment
from transforms.publishing.target import Seen, SharedRun
from transforms.rows.spool import SpooledBundle
from transforms.rows.tally import merge_tallies
from transforms.rows.typed_rows import RowRule, SpooledTypes
from transforms.shards.shard_job import ShardLayout
from transforms.stages.job_plan import JobPlan, LeakRule, Publication
from transforms.work.split_tables import assignments_table, write_table

# Counts that wait until they are merged.
_MERGED_AT_ONCE = 64


_NO_INPUTS = {"files": 0, "bytes": 0, "sha256": ""}
# Pairs of pieces and shards from which on an engine holds much for them: some 220 bytes
# for each.
_MANY_PAIRS = 500_000
# As long as the names of all folders of datasets in buckets have it.
_DIGEST_BYTES = 6
# The table of ids in the work folder.
_IDS = "split_ids.arrow"


def merge_bundles(bundles: Sequence[SpooledBundle]) -> SpooledBundle:
    """Returns the counts of all bundles, and what names their pieces.

    Args:
      bundles: of one run, without rows.
    """
    pieces: list[Segment] = []
    sizes: collections.Counter[str] = collections.Counter()
    for bundle in bundles:
        pieces += bundle.pieces
        if bundle.word:
            # A bundle counts by its word, too: it may have rejects alone.
            pieces.append(Segment(bundle.word, 0, 0, 0))
        sizes.update(bundle.sizes)
    refusals = [bundle.refusal for bundle in bundles if bundle.refused]
    return SpooledBundle(
        "",
        tuple(pieces),
        merge_tallies(bundle.tally for bundle in bundles),
        dict(sizes),
        sum(bundle.refused for bundle in bundles),
        min(refusals, default=""),
    )


def plan_rows(
    counted: SpooledBundle, given: Given, rule: RowRule, *, seen: Seen, run: SharedRun
) -> JobPlan:
    """Returns what is made of all rows; a function of them and the spec alone.

    Args:
      counted: counts of all rows.
      given: what was known of them.
      rule: of the job.
      seen: what the submission saw at the target when it started.
      run: that the rows are of.

    Raises:
      EncodingError: values of one column are of kinds that do not join, or the same is
        wrong with every row.
      InputError: the rows are not like those of the earlier dataset.
      SpecError: the spec and the rows contradict each other.
    """
    spec, source = given.spec, given.source
    inferred = columns_of_rows(counted, given, rule)
    schema = schema_of(inferred, counted, given)
    names = rule.split.names
    splits = [*names] if rule.split.is_closed else usual_order(counted.sizes)
    filled = [name for name in splits if name in counted.sizes]
    shards = {name: shards_of(spec, counted.sizes[name]) for name in filled}
    pieces = frozenset((piece.origin, piece.crc32c) for piece in counted.pieces)
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(json.dumps(sorted(pieces)).encode())
    store = run.open_plan(digest.hexdigest())
    table = ""
    if given.ids is not None:
        table = os.path.join(store.folder, _IDS)
        ids = assignments_table(given.ids.get().assignments)
        write_table(ids, table, attempts=store.attempts)
    is_keyed = bool(rule.key_column)
    keys_apart = given.unique and rule.split.source is SplitSource.COLUMN
    has_images = bool(schema.of_kind(Kind.IMAGE)) and len(shards) > 1
    split_rule = dataclasses.replace(
        rule.split, names=(*splits,), by_content=not is_keyed
    )
    layout = ShardLayout(
        name=str(spec.name),
        schema=schema,
        sharding=Sharding(
            rule=split_rule,
            shards=shards,
            seed=spec.seed,
            keyed=is_keyed,
            placeless=True,
            unique=given.unique,
        ),
        compression=spec.compression,
        root=given.root,
        image_policy=spec.image_policy,
        many_origins=is_keyed,
        fingerprints=has_images,
        derived=derived_settings(spec, schema),
    )
    return JobPlan(
        store,
        _publication_of(counted, given, layout, seen, run),
        vocabularies_of(schema),
        table=table,
        with_fingerprints=keys_apart,
        leaks=LeakRule(given.identity, keyed=keys_apart, unique=keys_apart),
        spooled=SpooledTypes(
            # The plan looks up no row.
            dataclasses.replace(rule, table=None, labels=None),
            {name: column.types for name, column in inferred.items()},
            pieces,
            has_source=source is not None,
        ),
    )


def _publication_of(
    counted: SpooledBundle,
    given: Given,
    layout: ShardLayout,
    seen: Seen,
    run: SharedRun,
) -> Publication:
    """Plans what the commit of rows publishes: settings, limits and notes."""
    spec, source = given.spec, given.source
    like = None if given.earlier is None else given.earlier.get().like
    shards, stated = layout.sharding.shards, layout.schema
    if spec.part and like is not None:
        # As all parts have them: names of columns may differ, and classes grow.
        shared = like.model.by_name
        stated = Schema(tuple(shared.get(f.name, f) for f in stated.features))
    notes = [] if source is None else [*source.notes]
    notes += drift_notes(like, layout.schema)
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
        settings={
            **{k: v for k, v in deciding_settings(spec).items() if k != "features"},
            "format": "rows",
            "schema": stated.to_json(),
            "shards": {**shards},
        },
        inputs=_NO_INPUTS if source is None else source.inputs,
        run=run_facts(spec, notes),
        skipped={} if source is None else source.skipped,
        expected_rows=counted.received if source is None else source.expected_rows,
        expected_placed=counted.received,
        max_reject_rate=spec.max_reject_rate,
        like=drift_rule(like, spec, layout.schema),
        shared_settings=SHARED if spec.part else (),
        min_records=spec.min_records,
        max_records=spec.max_records,
        keeps_equal=True,
        keeps_others=bool(spec.part) and not spec.overwrite,
        steps="" if source is None else "add",
    )


@raising_of_rows()
def plan_bundles(
    element: tuple[None, Iterable[Seen | SpooledBundle]],
    given: Given,
    rule: RowRule,
    run: SharedRun,
) -> JobPlan:
    """Returns all that is decided once all rows are counted; see `plan_rows`."""
    # An engine may start a process for this step alone, and the plan names it.
    run.store.check_worker()
    parts: list[SpooledBundle] = []
    for bundle in element[1]:
        if isinstance(bundle, Seen):
            seen = bundle
            continue
        parts.append(bundle)
        if len(parts) == _MERGED_AT_ONCE:
            parts = [merge_bundles(parts)]
    return plan_rows(merge_bundles(parts), given, rule, seen=seen, run=run)


def without_rows(bundle: SpooledBundle) -> tuple[None, Seen | SpooledBundle]:
    """Returns what the plan of rows needs of a bundle."""
    return None, bundle.without_rows()
