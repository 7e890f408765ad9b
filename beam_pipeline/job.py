"""A planned job: its plan, its source, and what its stages need besides."""

import dataclasses
import datetime
import platform
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import apache_beam as beam

from beam_pipeline.planning.like import SHARED, Like, new_features
from beam_pipeline.planning.plan import Plan, derived_settings
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core.placing.placement import SplitSource
from transforms.core.schema import Schema
from transforms.formats.source import Source
from transforms.reading.row_filter import RowFilter, row_filter
from transforms.shards.shard_job import ShardLayout
from transforms.stages.job_plan import DriftRule, JobPlan, LeakRule, Publication
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True)
class Job:
    """A planned job.

    Attributes:
      source: where rows come from.
      plan: what the stages behind the rows need.
      resumes: whether an earlier run has left segments in the work folder.
      row_filter: of `where`; None without it.
    """

    source: Source
    plan: JobPlan
    resumes: bool
    row_filter: RowFilter | None = None


def _leak_rule(plan: Plan, source: Source, store: Store) -> LeakRule | None:
    """Returns what leaks between splits are looked for, if there may be any."""
    splits = plan.splits
    _, lock = splits.tables_in(store)
    files = plan.planned.schema.loaded and len(splits.rule.names) > 1
    if not files and not splits.with_fingerprints:
        return None
    return LeakRule(
        identity=splits.identity,
        keyed=splits.keyed,
        lock=lock,
        make_lock=bool(splits.lock_path),
        root=plan.inputs.root if source.origins_name_rows else None,
    )


def _shares(plan: Plan) -> dict[str, Fraction]:
    """Returns the shares of the splits; empty where anything else decides them."""
    rule = plan.sharding.rule
    shared = rule.source in (SplitSource.SHARES, SplitSource.STRATIFIED)
    if plan.splits.lock is not None or not shared:
        return {}
    return dict(zip(rule.names, rule.proportions(), strict=True))


def drift_rule(like: Like | None, spec: Spec, schema: Schema) -> DriftRule | None:
    """Returns what the commit looks for beside an earlier dataset; None for nothing.

    Args:
      like: the earlier one.
      spec: of the job.
      schema: of its rows.
    """
    if like is None:
        return None
    says_classes = spec.vocabulary is not None or any(
        said.vocabulary for said in spec.features.values()
    )
    return DriftRule(
        new_columns=tuple(new_features(like, schema)),
        classes=like.model.classes,
        strict=not says_classes,
    )


def run_facts(spec: Spec, notes: Sequence[str]) -> dict[str, Any]:
    """Returns what a manifest states of each run: it decides no byte of the shards.

    Args:
      spec: of the job.
      notes: that planning has made.
    """
    return {
        "spec": spec.to_json(),
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "notes": notes,
        "versions": {
            "apache-beam": beam.version.__version__,
            "python": platform.python_version(),
            **deciding_versions(),
        },
    }


def make_job(plan: Plan, store: Store, *, resumes: bool = False) -> Job:
    """Returns a plan with what its stages need besides.

    Args:
      plan: of the job.
      store: its work folder, made.
      resumes: whether an earlier run has left segments in the work folder.
    """
    spec, planned = plan.spec, plan.planned
    source: Source = planned.make(store.listing)
    leaks = _leak_rule(plan, source, store)
    locks = {"split_lock": plan.splits.lock_digest}
    layout = ShardLayout(
        name=plan.name,
        schema=planned.schema,
        sharding=plan.sharding,
        compression=spec.compression,
        root=plan.inputs.root,
        image_policy=dataclasses.replace(
            spec.image_policy, mask_classes=planned.mask_classes
        ),
        many_origins=source.many_origins,
        origins_name_rows=source.origins_name_rows,
        fingerprints=leaks is not None,
        derived=derived_settings(spec, planned.schema),
    )
    publication = Publication(
        directory=plan.directory,
        seen=plan.seen,
        job=plan.digest,
        layout=layout,
        settings=plan.settings,
        inputs=plan.inputs.facts(),
        run={
            **run_facts(spec, planned.notes),
            "request": dataclasses.asdict(plan.request),
            "workers": plan.workers,
            **({"locks": locks} if spec.split_lock else {}),
        },
        skipped=planned.skipped,
        expected_rows=planned.expected_rows,
        max_reject_rate=spec.max_reject_rate,
        like=drift_rule(plan.like, spec, planned.schema),
        shared_settings=SHARED if spec.part else (),
        min_records=spec.min_records,
        max_records=spec.max_records,
        label_map=planned.label_map,
        new_lock=plan.splits.new_lock_in(store) if plan.splits.lock_path else "",
        shares=_shares(plan),
    )
    table, lock = plan.splits.tables_in(store)
    job_plan = JobPlan(
        store,
        publication,
        plan.vocabularies,
        table=table,
        lock=lock,
        with_fingerprints=plan.splits.with_fingerprints,
        leaks=leaks,
    )
    chosen = row_filter(spec.where, planned.schema) if spec.where else None
    return Job(source, job_plan, resumes, chosen)
