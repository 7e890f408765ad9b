"""`WriteDataset`: the rows of any pipeline as a whole, committed dataset.

rows -> sorted runs and counts, one element a bundle      Gather
     -> schema, class ids, cuts of shards: one side input  Plan
     -> ranges of runs by shard                            Cut by shard
     -> GroupByKey of descriptors
     -> finished shards                                    Write
     -> a published dataset, or nothing                    Commit
"""

import contextlib
import dataclasses
import functools
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam

from beam_pipeline.own_pipelines.parameters import spec_of
from beam_pipeline.own_pipelines.rows_plan import (
    RowsPlan,
    merge_bundles,
    plan_rows,
)
from beam_pipeline.planning.inputs import rule_of
from beam_pipeline.settings.spec import Spec
from transforms import files
from transforms.core.model import RejectLog, ShardFile, ShardKey
from transforms.core.placing.placement import SplitRule, SplitSource
from transforms.errors import SpecError, TargetError
from transforms.gather.bundle import GatheredBundle, GatherRule
from transforms.gather.row_runs import RowRange, cut_run
from transforms.gather.shard_of_runs import gather_shard
from transforms.publishing import target, work_folder
from transforms.shards.write_shard import write_shard
from transforms.stages.commit import commit_dataset
from transforms.stages.gather import GatherRows
from transforms.storage import folders
from transforms.storage.paths import absolute
from transforms.storage.retry import storing
from transforms.work.store import Store

__all__ = ["Committed", "WriteDataset"]

_REJECTS = "rejects"


@dataclasses.dataclass(frozen=True)
class Committed:
    """A published dataset: the one element that `WriteDataset` gives.

    Attributes:
      path: the dataset's folder.
      digest: of the dataset; equal ones have equal bytes.
      records: of each split.
      rejected: rows that did not become records, by reason.
      status: "committed", or "unchanged" where the dataset was there already.
    """

    path: str
    digest: str
    records: Mapping[str, int]
    rejected: Mapping[str, int]
    status: str


class WriteDataset(beam.PTransform):
    """Writes the rows of a pipeline as a dataset, whole or not at all.

        rows | WriteDataset("out/scored", label="species", splits={"train": 0.9,
                                                                   "test": 0.1})

    Input: a bounded PCollection of rows: dicts, `beam.Row`, named tuples, dataclasses,
    or Arrow record batches and tables. Output: one `Committed`.

    Guarantees:
      - Equal collections of rows give equal bytes, with any runner, bundling, number
        of workers or retries: a row's place is decided by its key, or by its content.
      - The dataset appears in one step, or not at all. A target that holds a dataset
        is refused before it is replaced, unless `overwrite` is given.
      - No row is lost: rows that do not fit the schema are rejects, and the job fails
        where there are more of them than `max_reject_rate` allows.

    A worker needs about 100 MB beside Beam's own memory, and that of the largest shard.
    Counters: rows_gathered (namespace gather).
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        label: str | None = None,
        splits: Mapping[str, float] | str | None = None,
        key: str | None = None,
        **settings: Any,
    ) -> None:
        """Checks the parameters; nothing is made before the pipeline runs.

        Args:
          output: the dataset's folder.
          label: the column to predict.
          splits: the share of each split, or "column:NAME" for a column that says it.
          key: the column that says what a row is; else that is all of its values.
          settings: of a spec, as `convert` has them.

        Raises:
          SpecError: a parameter is wrong.
        """
        super().__init__()
        self._spec = spec_of(
            output, label=label, splits=splits, key=key, settings=settings
        )
        self._directory = absolute(self._spec.output)
        self._token = secrets.token_hex(16)

    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Committed]:
        """Gathers, plans, writes, commits."""
        if not rows.is_bounded:
            raise SpecError(
                "WriteDataset must be given a bounded PCollection; this one has no "
                "end. Read a bounded part of it, or write it with "
                "beam.io.WriteToTFRecord."
            )
        if not rows.windowing.is_default():
            raise SpecError(
                "WriteDataset must be given rows without windows; these are in "
                f"{type(rows.windowing.windowfn).__name__}. A dataset is one whole: "
                "put beam.WindowInto(GlobalWindows()) before it."
            )
        directory, spec, rule = self._directory, self._spec, _rule_of(self._spec)
        folder = os.path.join(target.work_folder(directory), self._token)
        store = Store(folder, keep_items=spec.keep_rejected_bytes)
        bundles = rows | "Gather" >> GatherRows(rule, store, directory)
        seen = (
            rows.pipeline
            | "Once" >> beam.Create([self._token], reshuffle=False)
            | "Look at target" >> beam.Map(_look, directory, spec.overwrite)
        )
        plan = (
            bundles
            | "Without runs" >> beam.Map(GatheredBundle.without_runs)
            | "Merge counts" >> beam.CombineGlobally(_MergeCounts())
            | "Plan"
            >> beam.Map(
                _plan,
                beam.pvalue.AsSingleton(seen),
                spec=spec,
                rule=rule,
                directory=directory,
                job=self._token,
            ).with_output_types(RowsPlan)
        )
        planned = beam.pvalue.AsSingleton(plan)
        written = (
            bundles
            | "Cut by shard" >> beam.FlatMap(_cut, planned)
            | "Group by shard" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(_WriteShard(store), planned).with_outputs(
                _REJECTS, main="shards"
            )
        )
        facts = (written.shards, written.rejects) | "Flatten facts" >> beam.Flatten()
        return (
            facts
            | "Gather facts" >> beam.combiners.ToList()
            | "Commit" >> beam.Map(_commit, planned, store).with_output_types(Committed)
        )


def _rule_of(spec: Spec) -> GatherRule:
    rule = rule_of(spec)
    if spec.split_column:
        rule = SplitRule(SplitSource.COLUMN)
    labels = [spec.label_column] if spec.label_column else []
    labels += [
        said.column or name
        for name, said in spec.features.items()
        if said.kind == "label"
    ]
    return GatherRule(
        split=rule,
        split_column=spec.split_column or "",
        key_column=spec.key_column or "",
        group_column=spec.group_column or "",
        seed=spec.seed,
        labels=tuple(dict.fromkeys(labels)),
    )


def _look(token: str, directory: str, overwrite: bool) -> str:
    """Returns what is at the target, after a check of whether it may be replaced."""
    seen = target.state(directory)
    manifest = target.check_contents(directory)
    work_folder.check(directory)
    if manifest is not None and manifest.run.get("job") == token:
        # This very run has published it.
        return seen
    if manifest is not None and not overwrite:
        raise TargetError(
            f"The output must not exist yet; {directory!r} holds the dataset "
            f"{manifest.name!r} of {manifest.records:,} records. Give overwrite=True "
            f"to replace it, or choose another output."
        )
    return seen


class _MergeCounts(beam.CombineFn):
    def create_accumulator(self) -> GatheredBundle:
        return merge_bundles([])

    def add_input(self, sums: GatheredBundle, more: GatheredBundle) -> GatheredBundle:
        return merge_bundles([sums, more])

    def merge_accumulators(self, parts: Iterable[GatheredBundle]) -> GatheredBundle:
        return merge_bundles(parts)

    def extract_output(self, sums: GatheredBundle) -> GatheredBundle:
        return sums


def _plan(gathered: GatheredBundle, seen: str, **options: Any) -> RowsPlan:
    return plan_rows(gathered, seen=seen, **options)


def _cut(bundle: GatheredBundle, plan: RowsPlan) -> Iterator[tuple[ShardKey, RowRange]]:
    for run in bundle.runs:
        yield from cut_run(run, plan.bounds)


@dataclasses.dataclass(frozen=True)
class _Written:
    """A finished shard, and the attempt that wrote it."""

    attempt: str
    shard: ShardFile


def _shards_of(store: Store, attempt: str) -> str:
    return os.path.join(store.folder, "shards", attempt)


class _WriteShard(beam.DoFn):
    def __init__(self, store: Store) -> None:
        super().__init__()
        self.store = store

    def process(
        self, element: tuple[ShardKey, Iterable[RowRange]], plan: RowsPlan
    ) -> Iterator[_Written | beam.pvalue.TaggedOutput]:
        key, ranges = element
        load = functools.partial(
            gather_shard,
            list(ranges),
            plan.layout.schema,
            plan.types,
            files.read_range,
            unique=plan.layout.sharding.keyed,
        )
        # Another attempt may have other rows, for the user's steps may be random: no
        # two of them share a name.
        attempt = secrets.token_hex(16)
        store = dataclasses.replace(self.store, placed=_shards_of(self.store, attempt))
        folders.make(store.dataset)
        shard, rejects, _ = write_shard(
            key, load, plan.counts, layout=plan.layout, store=store
        )
        if rejects is not None:
            yield beam.pvalue.TaggedOutput(_REJECTS, rejects)
        yield _Written(attempt, shard)


def _commit(
    found: list[_Written | RejectLog], plan: RowsPlan, store: Store
) -> Committed:
    publication = plan.publication
    directory = publication.directory
    facts: list[ShardFile | RejectLog] = []
    with storing(directory):
        for each in found:
            if isinstance(each, _Written):
                _take_in(each, store)
                facts.append(each.shard)
            else:
                facts.append(each)
        digest = commit_dataset(
            [*plan.facts, *facts], plan.counts, publication=publication, store=store
        )
        work_folder.end_shared(directory, store)
    manifest = target.read_manifest(directory)
    return Committed(
        path=directory,
        digest=digest,
        records={split.name: split.records for split in manifest.splits},
        rejected=dict(manifest.account.rejected),
        status="committed",
    )


def _take_in(written: _Written, store: Store) -> None:
    """Puts a finished shard among the files that are published."""
    name = written.shard.name
    path = os.path.join(_shards_of(store, written.attempt), name)
    # A commit that was killed may have moved some, or published all of them.
    with contextlib.suppress(FileNotFoundError):
        files.rename(path, os.path.join(store.dataset, name))
