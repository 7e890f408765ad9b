"""What the rows of a pipeline are to be, by the counts of all; and their commit."""

import collections
import dataclasses
import hashlib
import json
import logging
import os
from collections.abc import Collection, Mapping, Sequence

from beam_pipeline.graph import drift_rule, run_facts
from beam_pipeline.own_pipelines.given import Given
from beam_pipeline.own_pipelines.rows_schema import schema_of
from beam_pipeline.planning.feature_checks import check_named
from beam_pipeline.planning.features import vocabularies_of
from beam_pipeline.planning.like import SHARED, drift_notes
from beam_pipeline.planning.request import deciding_settings, derived_settings
from beam_pipeline.planning.sizes import shards_of
from transforms.core.manifest import Manifest
from transforms.core.model import ShardFile
from transforms.core.placing.sharding import ShardCounts, Sharding
from transforms.core.placing.splitting import SplitSource, usual_order
from transforms.core.reasons import Fact
from transforms.core.schema import Kind, Schema
from transforms.core.segment import Segment
from transforms.errors import (
    CommitError,
    EncodingError,
    bounded,
)
from transforms.publishing import target
from transforms.publishing.shared_run import Seen, SharedRun
from transforms.rows.inferred import Declared, InferredColumn, infer
from transforms.rows.tables import RowRule
from transforms.rows.tally import SpooledBundle, merge_tallies
from transforms.rows.typed_rows import SpooledTypes
from transforms.shards.shard_job import ShardLayout
from transforms.stages.commit import commit_dataset
from transforms.stages.job_plan import JobPlan, LeakRule, Publication
from transforms.work.split_tables import assignments_table, write_table

_LOG = logging.getLogger(__name__)

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
    inferred = _infer(counted, given, rule)
    schema = schema_of(inferred, counted, given)
    names = rule.split.names
    splits = [*names] if rule.split.is_closed else usual_order(counted.sizes)
    shards = {
        name: shards_of(spec, counted.sizes[name])
        for name in splits
        if name in counted.sizes
    }
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


def _infer(
    counted: SpooledBundle, given: Given, rule: RowRule
) -> dict[str, InferredColumn]:
    """Returns what each column is to be; errors are those of `plan_rows`."""
    if counted.refused and not counted.tally.rows:
        # Then it is no row that is bad, but a step or a parameter.
        shown = bounded(counted.refusal, 500).rstrip(".")
        raise EncodingError(
            f"Rows must be ones that a dataset can hold; none of these "
            f"{counted.refused:,} is, as one shows: {shown}. "
            f"Correct the step before (DecodeExamples() makes rows of serialised "
            f"Examples), or the parameter that names a column."
        )
    spec, columns, declared = given.spec, counted.tally.columns, given.declared
    if counted.tally.rows:
        if not columns:
            raise EncodingError(
                f"Every row must have a column at least beside {rule.split_column!r}, "
                f"which names its split and is not stored; found none. Add a column."
            )
        named = {"label": spec.label_column, "group_column": spec.group_column}
        check_named(named, columns)
        declared = _of_found(declared, columns)
    return infer(counted.tally, label=spec.label_column, declared=declared)


def _publication_of(
    counted: SpooledBundle,
    given: Given,
    layout: ShardLayout,
    seen: Seen,
    run: SharedRun,
) -> Publication:
    """Returns what the commit publishes, with its settings, limits and notes."""
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


def _of_found(
    declared: Mapping[str, Declared], columns: Collection[str]
) -> dict[str, Declared]:
    """Returns what is said of columns that rows have; `declare` refuses others.

    A column is there, too, as that of the mappings or lists which it is a part of.
    """
    out = {}
    for name, said in declared.items():
        parts = name.split("/")
        parents = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        if any(parent in columns for parent in parents):
            out[name] = said
    return out


@dataclasses.dataclass(frozen=True)
class Committed:
    """A published dataset: the one element that `WriteDataset` gives.

    Attributes:
      path: the dataset's folder.
      digest: of the dataset; equal ones have equal bytes.
      records: of each split.
      rejected: rows that did not become records, by reason.
      status: "committed"; "up to date" where the dataset was there already; or
        "repeated" where an earlier attempt had published other rows, which were kept.
    """

    path: str
    digest: str
    records: Mapping[str, int]
    rejected: Mapping[str, int]
    status: str


def commit_rows(
    facts: list[Fact],
    counts: ShardCounts,
    plan: JobPlan,
    run: SharedRun,
) -> Committed:
    """Publishes the shards that were reported; a second attempt gives the same.

    Args:
      facts: what the stages have left.
      counts: of the rows.
      plan: of the rows.
      run: that they are of.

    Raises:
      CommitError: another job has published; or this one has ended, with other rows.
      WorkerError: a worker has other versions than the job's.
      Others: as `transforms.stages.commit.commit_dataset`.
    """
    publication = plan.publication
    shards = [fact for fact in facts if isinstance(fact, ShardFile)]
    manifest = run.published(publication.job)
    if manifest is not None:
        status = "committed"
        if not _holds(manifest, shards):
            began_after = target.at(run.directory).state() == publication.seen
            if began_after or run.has_ended(publication.job):
                # An engine has started a job again that had ended, or somebody has
                # submitted one graph twice: the rows of the second would be lost.
                raise CommitError(
                    f"A graph must be submitted once; this one has already published "
                    f"{manifest.name!r} of {manifest.records:,} records, and these are "
                    f"other rows. That dataset is whole and unchanged. Build the "
                    f"pipeline again for each run, with overwrite=True to replace a "
                    f"dataset."
                )
            status = "repeated"
            _LOG.warning(
                "An earlier attempt has published %r, and the rows of this one are "
                "others. They are not in the dataset, which is whole and stays as "
                "it is. If this graph was submitted twice, build the pipeline "
                "again.",
                run.directory,
            )
        return _committed_dataset(run, manifest, status)
    if run.has_ended(publication.job):
        return _unchanged(run, shards)
    if target.at(run.directory).state() != publication.seen:
        raise target.overtaken(run.directory)
    # What rows consist of, boxes say, is not followed through the steps of users.
    facts = [
        dataclasses.replace(fact, parts={}, parts_gone={})
        if isinstance(fact, ShardFile)
        else fact
        for fact in facts
    ]
    commit_dataset(facts, counts, plan)
    manifest, status = run.published(publication.job), "committed"
    if manifest is None:
        manifest, status = target.read_manifest(run.directory), "up to date"
    return _committed_dataset(run, manifest, status)


def _holds(manifest: Manifest, shards: Sequence[ShardFile]) -> bool:
    """Whether a dataset consists of these shards."""
    published = {
        (shard.file, shard.bytes, shard.crc32c)
        for split in manifest.splits
        for shard in split.shards
    }
    return published == {(shard.name, shard.bytes, shard.crc32c) for shard in shards}


def _unchanged(run: SharedRun, shards: Sequence[ShardFile]) -> Committed:
    """Returns what the commit has given before the end of its run.

    That has left an equal dataset as it was, whose manifest has another run's token.

    Raises:
      CommitError: there is no such dataset; not the end has removed the run's work.
    """
    try:
        manifest = target.read_manifest(run.directory)
    except FileNotFoundError:
        raise run.store.is_gone() from None
    if not _holds(manifest, shards):
        raise run.store.is_gone()
    return _committed_dataset(run, manifest, "up to date")


def _committed_dataset(run: SharedRun, manifest: Manifest, status: str) -> Committed:
    """Returns what WriteDataset gives: path, digest, records by split, rejects."""
    return Committed(
        path=run.directory,
        digest=manifest.digest,
        records={split.name: split.records for split in manifest.splits},
        rejected=dict(manifest.account.rejected),
        status=status,
    )
