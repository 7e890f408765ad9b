"""`WriteDataset`: the rows of any pipeline as a whole, committed dataset.

rows -> sorted runs and counts, one element a bundle      Gather
     -> schema, class ids, cuts of shards                  Draft
     -> cuts among very many equal rows, if there are any  Find cuts
     -> everything that is decided: one side input         Plan
     -> ranges of runs by shard                            Cut by shard
     -> GroupByKey of descriptors
     -> finished shards                                    Write
     -> a published dataset, or nothing                    Commit
"""

import dataclasses
import functools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Unpack

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.beam_internals.shortcuts import beam_shortcuts
from beam_pipeline.own_pipelines.commit_rows import (
    Committed,
    ComparedKeys,
    Refused,
    Written,
    commit_rows,
)
from beam_pipeline.own_pipelines.given_schema import (
    GivenSchema,
    declared_by,
    declared_in,
    earlier_splits,
    example_features,
    hold_earlier,
    like_dataset,
    of_arrow_schema,
    root_of,
    types_of_rows,
)
from beam_pipeline.own_pipelines.keywords import WriteKeywords
from beam_pipeline.own_pipelines.locks import EarlierRuns, read_earlier_runs
from beam_pipeline.own_pipelines.parameters import raising_of_rows, spec_of
from beam_pipeline.own_pipelines.read_accounts import ReadAccounts, with_accounts
from beam_pipeline.own_pipelines.read_source import ReadSource
from beam_pipeline.own_pipelines.rows_input import (
    check_one_collection,
    check_rows,
    check_seen,
)
from beam_pipeline.own_pipelines.rows_plan import (
    RowsDraft,
    RowsPlan,
    draft_rows,
    merge_bundles,
    plan_rows,
)
from beam_pipeline.planning.inputs import rule_of
from beam_pipeline.settings.spec import Spec
from transforms import files
from transforms.core.manifest import Manifest
from transforms.core.model import ReadFacts, Rejection, RejectLog, ShardKey
from transforms.core.placing.leakage import Fingerprints
from transforms.core.placing.placement import SplitRule, SplitSource
from transforms.core.placing.shard_rows import ShardRows
from transforms.core.schema import Feature, Kind
from transforms.errors import ConservationError, SpecError
from transforms.gather.bundle import GatheredBundle, GatherRule
from transforms.gather.cuts import Cut, even_bounds
from transforms.gather.exact_cuts import find_cuts
from transforms.gather.merge_runs import merge_ranges
from transforms.gather.row_runs import RowRange, cut_run
from transforms.gather.shard_of_runs import check_keys, gather_shard
from transforms.gather.tally import Declared
from transforms.publishing.shared_run import Seen, SharedRun
from transforms.shards.shard_group import ShardGroup
from transforms.shards.shard_job import Loaded, ShardJob, ShardTask
from transforms.stages.gather import GatherRows
from transforms.storage.paths import absolute
from transforms.work.held_files import HeldFile
from transforms.work.store import Store

__all__ = ["Committed", "WriteDataset"]

_WORD_BYTES = 8
# Counts that wait until they are merged.
_MERGED_AT_ONCE = 64
_ShardRange = tuple[ShardKey, RowRange]
# Split, part of the hashes, group of runs.
_MergeKey = tuple[str, int, int]
_ToMerge = TaggedOutput[Literal["merge"], tuple[_MergeKey, RowRange]]
_OfKeys = TaggedOutput[Literal["keys"], _ShardRange]
_OfRefused = TaggedOutput[Literal["refused"], Refused]
_OfUnits = TaggedOutput[Literal["units"], Fingerprints]


class WriteDataset(beam.PTransform):
    """Writes the rows of a pipeline as a dataset, whole or not at all.

        rows | WriteDataset("out/scored", label="species", splits={"train": 0.9,
                                                                   "test": 0.1})

    Input: a bounded PCollection of rows: dicts, `beam.Row`, named tuples, dataclasses,
    Arrow record batches and tables, or, with `like` or `features`, serialised
    tf.train.Examples. Output: one `Committed`.

    What columns are is given by `features` or `like`, or said by the type of the
    elements (a row type, a named tuple, a dataclass), or inferred from all rows.

    Guarantees:
      - Equal collections of rows give equal bytes, with any runner, bundling, number
        of workers or retries: a row's place is decided by its key, or by its content.
      - The dataset appears in one step, or not at all. A target that holds a dataset
        is refused before it is replaced, unless `overwrite` is given.
      - No row is lost: rows that do not fit the schema are rejects, and the job fails
        where there are more of them than `max_reject_rate` allows.

    A worker needs about 100 MB beside Beam's own memory, and three to six times the
    bytes of the largest shard.
    Counters: rows_gathered (namespace gather).
    """

    def __init__(
        self,
        output: str | os.PathLike[str],
        *,
        label: str | None = None,
        splits: Mapping[str, str | float] | str | None = None,
        key: str | None = None,
        duplicates: Literal["refuse", "keep"] = "refuse",
        features: Mapping[str, Any] | pa.Schema | None = None,
        like: str | os.PathLike[str] | None = None,
        num_shards: int | None = None,
        accounts: ReadAccounts | None = None,
        **settings: Unpack[WriteKeywords],
    ) -> None:
        """Checks the parameters; nothing is made before the pipeline runs.

        Args:
          output: the dataset's folder.
          label: the column to predict.
          splits: the share of each split, or "column:NAME" for a column that says it.
          key: the column that says what a row is; else that is all of its values.
          duplicates: "keep" allows rows with one key; else they fail the job.
          features: what columns are, in the words of a spec, as in {"id": "int64"};
            others are inferred. Or the whole schema, as a `pa.Schema`.
          like: folder of a dataset, whose schema, class ids and splits these rows get.
            It is read now. If its schema is large, workers must see it, too.
          num_shards: of each split; else they have 100 to 200 MB.
          accounts: of the `ReadRows` that the rows come from. Then the manifest has
            the account of that source, and what steps have dropped or added; columns
            that are as they were read stay what the source says; and relative paths
            of images are relative to it, unless `images_root` says otherwise.
          settings: as `convert` has them; see `WriteKeywords`.

        Raises:
          SpecError: a parameter is wrong.
        """
        super().__init__()
        known: GivenSchema | None = None
        earlier = None if like is None else hold_earlier(os.fspath(like))
        given: dict[str, Any] = {**settings}
        if isinstance(features, pa.Schema):
            known = of_arrow_schema(features, label)
        elif features is not None:
            given["features"] = features
        if earlier is not None:
            if features is not None:
                raise SpecError(
                    "features and like exclude each other. Give one of them."
                )
            found = earlier_splits(earlier.get())
            if splits is None and "split_ids" not in settings:
                if not found.is_known:
                    raise SpecError(
                        f"like takes splits that shares or a column decide; those of "
                        f"{str(like)!r:.200} go by its source, a table of ids or its "
                        f"classes. Give splits= or split_ids=, too."
                    )
                splits = found.splits
            if key is None and "group_column" not in settings:
                key, given["group_column"] = found.key, found.group
        self._spec = spec = spec_of(
            output,
            label=label,
            splits=splits,
            key=key,
            num_shards=num_shards,
            settings=given,
        )
        if accounts is not None and not isinstance(accounts, ReadAccounts):
            raise SpecError(
                f"accounts must be those of ReadRows, as in accounts=read.accounts; "
                f"found a {type(accounts).__name__}. Leave it out for other rows."
            )
        if earlier is not None:
            known = like_dataset(earlier.get(), spec.unknown_label)
        self._declared = declared_in(spec)
        if known is not None:
            self._declared |= declared_by(known)
        with raising_of_rows():
            self._before = read_earlier_runs(spec, _split_rule(spec))
        self._given = _Given(
            spec, known if earlier is None else None, earlier, self._before.names
        )
        self._accounts = accounts
        self._directory = absolute(self._spec.output)
        if duplicates not in ("refuse", "keep"):
            raise SpecError(
                f"duplicates must be 'refuse' or 'keep'; found {duplicates!r:.80}."
            )
        self._unique = key is not None and duplicates == "refuse"

    def __ror__(self, rows: Any, label: str | None = None) -> Any:
        """Refuses several collections, which Beam would hand to `expand` as they are.

        Raises:
          SpecError: `rows` are several.
        """
        check_one_collection(rows)
        return super().__ror__(rows, label)

    @beam_shortcuts()
    def expand(self, rows: beam.PCollection[Any]) -> beam.PCollection[Committed]:
        """Gathers, plans, writes, commits."""
        check_one_collection(rows)
        large = [*self._before.read_by_workers, *self._given.read_by_workers]
        check_seen(large, rows.pipeline)
        spec = self._spec
        source = None if self._accounts is None else self._accounts.source
        declared = types_of_rows(rows.element_type) | self._declared
        rule = _rule_of(
            spec,
            declared,
            self._given,
            self._before,
            source,
            unique=self._unique,
        )
        check_rows(rows, examples=rule.examples is not None)
        # The plan looks up no row.
        plain = dataclasses.replace(rule, table=None, lock=None, examples=None)
        run = SharedRun(
            self._directory,
            # Of this application: a second one of the same transform is another run.
            secrets.token_hex(16),
            keep_items=spec.keep_rejected_bytes,
            many=_is_dataflow(rows.pipeline.options),
        )
        seen = (
            rows.pipeline
            | "Once" >> beam.Impulse()
            | "Look at target"
            >> _Look(_LookAtTarget(), run, spec.overwrite).with_output_types(
                tuple[None, Seen | GatheredBundle]
            )
        )
        bundles = rows | "Gather" >> GatherRows(rule, run, spec.overwrite)
        counts = bundles | "Without runs" >> beam.Map(_without_runs)
        draft = (
            # What was seen is always there, so that there is a plan of no rows, too.
            (seen, counts)
            | "Flatten counts" >> beam.Flatten()
            | "Group counts" >> beam.GroupByKey()
            | "Draft"
            >> beam.Map(
                _draft,
                spec=spec,
                rule=plain,
                source=source,
                given=self._given,
                declared=declared,
            ).with_output_types(RowsDraft)
        )
        drafted = beam.pvalue.AsSingleton(draft)
        # Nothing passes here unless some rows are very many, or very large.
        cuts = (
            bundles
            | "Cut large parts" >> beam.FlatMap(_cut_large, drafted)
            | "Group large parts" >> beam.GroupByKey()
            | "Find cuts" >> beam.Map(_find_cuts, drafted, run, self._unique)
        )
        plan = draft | "Plan" >> beam.Map(
            _plan,
            beam.pvalue.AsList(cuts),
            spec=spec,
            rule=plain,
            run=run,
            source=source,
            given=self._given,
        ).with_output_types(RowsPlan)
        planned = beam.pvalue.AsSingleton(plan)
        cut = bundles | "Cut by shard" >> (
            beam.FlatMap(_cut, planned).with_outputs(
                "merge", "keys", "units", "refused", main="shards"
            )
        )
        # Nothing passes here unless there are very many runs.
        merged = (
            cut.merge
            | "Group to merge" >> beam.GroupByKey()
            | "Merge" >> beam.FlatMap(_merge, planned, run)
        )
        written = (
            (cut.shards, merged)
            | "Flatten ranges" >> beam.Flatten()
            | "Group by shard" >> beam.GroupByKey()
            | "Write"
            >> beam.ParDo(
                _WriteShards(
                    functools.partial(_job_of, run=run, unique=self._unique), run
                ),
                planned,
            ).with_output_types(Written)
        )
        facts = [plan, written, cut.refused]
        if rule.with_units:
            facts.append(cut.units)
        if rule.keys_apart:
            # Rows of one key may be in two shards.
            compared = (
                cut.keys
                | "Group keys" >> beam.GroupByKey()
                | "Compare keys" >> beam.Map(_compare).with_output_types(ComparedKeys)
            )
            facts.append(compared)
        if self._accounts is not None:
            facts.append(self._accounts.facts)
        return (
            facts
            | "Flatten facts" >> beam.Flatten()
            | "To one worker" >> beam.Map(_to_one_worker)
            | "Group facts" >> beam.GroupByKey()
            | "Commit" >> beam.Map(_commit, run, source, self._before)
            # An attempt at the commit finds all of its work, until one has succeeded.
            | "Keep" >> beam.GroupByKey()
            | "Clean up" >> beam.Map(_clean_up, run)
        )


def _is_dataflow(options: PipelineOptions) -> bool:
    """Whether one graph may be run many times, and workers know the id of the job."""
    return "dataflow" in str(options.view_as(StandardOptions).runner).lower()


@dataclasses.dataclass(frozen=True)
class _Given:
    """What is known of rows before they are seen.

    Attributes:
      spec: of the job.
      schema: of a `pa.Schema`.
      earlier: the dataset that `like` names.
      names: that have their class ids already.
    """

    spec: Spec
    schema: GivenSchema | None
    earlier: HeldFile[Manifest] | None
    names: HeldFile[tuple[str, ...]] | None

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


def _split_rule(spec: Spec) -> SplitRule:
    if spec.split_column:
        return SplitRule(SplitSource.COLUMN)
    return rule_of(spec)


def _rule_of(
    spec: Spec,
    declared: Mapping[str, Declared],
    given: _Given,
    before: EarlierRuns,
    source: ReadSource | None,
    *,
    unique: bool,
) -> GatherRule:
    table = before.table()
    rule = _split_rule(spec)
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
    return GatherRule(
        split=rule,
        split_column=spec.split_column or "",
        key_column=spec.key_column or "",
        group_column=spec.group_column or "",
        seed=spec.seed,
        labels=tuple(sorted(labels)),
        images=frozenset(images),
        texts=texts,
        images_root=root_of(spec, source),
        integers=frozenset(n for n, kind in kinds.items() if kind in whole),
        examples=given.examples if given.examples() else None,
        table=before.table if table is not None else None,
        lock=before.lock if before.splits is not None else None,
        with_units=before.with_units,
        keys_apart=unique and bool(spec.split_column),
    )


class _LookAtTarget(beam.DoFn):
    @raising_of_rows()
    def process(
        self, _: bytes, run: SharedRun, overwrite: bool, word: str = ""
    ) -> list[tuple[None, Seen]]:
        return [(None, run.look(word, overwrite=overwrite))]


class _Look(beam.ParDo):
    """Looks at the target, with a word for the submission.

    A second run of one pipeline object has another word; repeated attempts have the
    same. It would not do to draw it where the function is pickled: workers do so too.
    """

    def to_runner_api_parameter(self, *arguments: Any, **options: Any) -> Any:
        """Returns the stage as the runner gets it, each time that the pipeline runs."""
        self.kwargs = {**self.kwargs, "word": secrets.token_hex(_WORD_BYTES)}
        return super().to_runner_api_parameter(*arguments, **options)


def _without_runs(bundle: GatheredBundle) -> tuple[None, Seen | GatheredBundle]:
    return None, bundle.without_runs()


@raising_of_rows()
def _draft(
    element: tuple[None, Iterable[Seen | GatheredBundle]], given: _Given, **options: Any
) -> RowsDraft:
    parts: list[GatheredBundle] = []
    for found in element[1]:
        if isinstance(found, Seen):
            seen = found
            continue
        parts.append(found)
        if len(parts) == _MERGED_AT_ONCE:
            parts = [merge_bundles(parts)]
    return draft_rows(merge_bundles(parts), seen=seen, given=given.whole(), **options)


def _cut_large(bundle: GatheredBundle, draft: RowsDraft) -> Iterator[_ShardRange]:
    """Gives ranges of runs by split and number of a large part."""
    _check_attempt(bundle, draft.gathered.attempts)
    bounds = {name: each.large_bounds for name, each in draft.cuttings.items()}
    for run in bundle.runs:
        yield from cut_run(run, bounds)


@raising_of_rows()
def _find_cuts(
    element: tuple[ShardKey, Iterable[RowRange]],
    draft: RowsDraft,
    run: SharedRun,
    unique: bool,
) -> tuple[str, Sequence[Cut]]:
    (split, number), ranges = element
    try:
        cuts = find_cuts(
            draft.cuttings[split].large[number],
            list(ranges),
            draft.schema,
            draft.types,
            files.read_range,
            unique=unique,
        )
    except FileNotFoundError as error:
        raise run.is_gone() from error
    return split, cuts


@raising_of_rows()
def _plan(
    draft: RowsDraft,
    found: Sequence[tuple[str, Sequence[Cut]]],
    run: SharedRun,
    given: _Given,
    **options: Any,
) -> RowsPlan:
    return plan_rows(
        draft,
        found,
        directory=run.directory,
        names=None if given.names is None else given.names.get(),
        **options,
    )


def _cut(
    bundle: GatheredBundle, plan: RowsPlan
) -> Iterator[_ShardRange | _ToMerge | _OfKeys | _OfUnits | _OfRefused]:
    """Gives ranges of runs by shard, by group to merge, and by part of the keys.

    Beside them, where units went, and what the bundle has refused.
    """
    _check_attempt(bundle, plan.attempts)
    if bundle.rejects is not None:
        yield _OfRefused("refused", Refused(bundle.rejects))
    for run in bundle.runs:
        if plan.merging is None:
            yield from cut_run(run, plan.bounds)
            continue
        group = plan.merging.group_of(run)
        parts = dict.fromkeys(plan.bounds, even_bounds(plan.merging.parts))
        for (split, part), found in cut_run(run, parts):
            yield _ToMerge("merge", ((split, part, group), found))
    for run in bundle.keys:
        for key, found in cut_run(run, {"": plan.key_bounds}):
            yield _OfKeys("keys", (key, found))
    for units in bundle.units:
        yield _OfUnits("units", units)


def _check_attempt(bundle: GatheredBundle, counted: frozenset[str]) -> None:
    if not bundle.attempts <= counted:
        raise ConservationError(
            "Every bundle that is written must be one that was counted; the engine has "
            "given one of another attempt. Nothing was committed. Run again; where the "
            "engine does so each time, put beam.Reshuffle() before WriteDataset."
        )


def _merge(
    element: tuple[tuple[str, int, int], Iterable[RowRange]],
    plan: RowsPlan,
    run: SharedRun,
) -> Iterator[tuple[ShardKey, RowRange]]:
    (split, _, _), ranges = element
    store, word = run.store, secrets.token_hex(8)
    try:
        merged = merge_ranges(
            list(ranges),
            split,
            files.read_range,
            lambda number, pieces: store.put_rows(f"{word}-{number}", pieces),
        )
    except FileNotFoundError as error:
        raise run.is_gone() from error
    for each in merged:
        yield from cut_run(each, plan.bounds)


def _compare(element: tuple[ShardKey, Iterable[RowRange]]) -> ComparedKeys:
    return ComparedKeys(check_keys([*element[1]], files.read_range))


class _WriteShards(beam.DoFn):
    """Writes groups of shards as files of attempts of their own."""

    def __init__(
        self, job_of: Callable[[RowsPlan, Store], ShardJob], run: SharedRun
    ) -> None:
        super().__init__()
        self.job_of = job_of
        self.run = run

    def setup(self) -> None:
        self.group: ShardGroup | None = None

    def start_bundle(self) -> None:
        self._discard()

    @raising_of_rows()
    def process(
        self, element: tuple[ShardKey, Iterable[RowRange]], plan: RowsPlan
    ) -> Sequence[Written]:
        key, ranges = element[0], list(element[1])
        places = [each.place for each in ranges]
        task = ShardTask(
            key,
            (key, ranges),
            rows=plan.counts.rows[key],
            size=sum(stop - start for start, stop in places),
        )
        try:
            if self.group is None:
                store = self.run.open_attempt()
                self.attempt = store.attempt
                self.group = ShardGroup(self.job_of(plan, store))
            self.group.add(task)
        except BaseException:
            self._discard()
            raise
        return self._finish() if self.group.is_full else ()

    @raising_of_rows()
    def finish_bundle(self) -> Sequence[WindowedValue]:
        return [GlobalWindows.windowed_value(each) for each in self._finish()]

    def teardown(self) -> None:
        self._discard()

    def _discard(self) -> None:
        group, self.group = self.group, None
        if group is not None:
            group.discard()

    def _finish(self) -> list[Written]:
        if self.group is None:
            return []
        try:
            finished = self.group.finish()
        except BaseException:
            self._discard()
            raise
        self.group = None
        return [Written(self.attempt, *facts) for _, facts in finished]


def _job_of(plan: RowsPlan, store: Store, *, run: SharedRun, unique: bool) -> ShardJob:
    load = functools.partial(_load, plan=plan, run=run, unique=unique)
    return ShardJob(load, plan.counts, plan.layout, store)


def _load(
    sources: Sequence[tuple[ShardKey, list[RowRange]]],
    *,
    plan: RowsPlan,
    run: SharedRun,
    unique: bool,
) -> Loaded:
    """Returns the rows of shards, which are as many as were counted."""
    found = [_load_one(*each, plan, run, unique) for each in sources]
    shards = [rows for rows, _ in found]
    return Loaded(
        shards[0] if len(shards) == 1 else ShardRows.joined(shards),
        [len(rows) for rows in shards],
        [refused for _, refused in found],
    )


def _load_one(
    key: ShardKey, ranges: list[RowRange], plan: RowsPlan, run: SharedRun, unique: bool
) -> tuple[ShardRows, list[Rejection]]:
    try:
        rows, refused = gather_shard(
            ranges,
            plan.layout.schema,
            plan.types,
            files.read_range,
            unique=unique,
            around=plan.bounds[key[0]].around(key[1]),
        )
    except FileNotFoundError as error:
        raise run.is_gone() from error
    found, counted = len(rows) + len(refused), plan.counts.rows[key]
    if found != counted:
        raise ConservationError(
            f"Every row that was counted must reach its shard; of {counted:,} rows of "
            f"shard {key[1]} of {key[0]!r} there are {found:,}. Nothing was committed; "
            f"run again."
        )
    return rows, refused


def _to_one_worker(fact: Any) -> tuple[None, Any]:
    return None, fact


@raising_of_rows()
def _commit(
    element: tuple[None, Iterable[Any]],
    run: SharedRun,
    source: ReadSource | None,
    before: EarlierRuns,
) -> tuple[None, Committed]:
    facts = [*element[1]]
    (plan,) = (fact for fact in facts if isinstance(fact, RowsPlan))
    if source is not None:
        read = [fact for fact in facts if isinstance(fact, ReadFacts | RejectLog)]
        plan = with_accounts(plan, source, read)
    kinds = Written | ComparedKeys | Refused | Fingerprints
    found = [fact for fact in facts if isinstance(fact, kinds)]
    return None, commit_rows(found, plan, run, before)


@raising_of_rows()
def _clean_up(element: tuple[None, Iterable[Committed]], run: SharedRun) -> Committed:
    (committed,) = element[1]
    run.end()
    return committed
