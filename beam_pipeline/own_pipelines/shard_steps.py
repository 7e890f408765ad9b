"""The step of `WriteDataset` that writes the shards from ranges of sorted runs."""

import functools
from collections.abc import Callable, Iterable, Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.own_pipelines.commit_rows import Written, WrittenPart
from beam_pipeline.own_pipelines.parameters import raising_of_rows
from beam_pipeline.own_pipelines.rows_plan import RowsPlan
from transforms import files
from transforms.core.model import Rejection, Segment, ShardKey
from transforms.core.placing.name_lists import load_classes
from transforms.core.placing.shard_rows import ShardRows
from transforms.errors import ConservationError
from transforms.gather.row_runs import RowRange
from transforms.gather.shard_of_runs import GatheredRows, gather_shard
from transforms.publishing.shared_run import SharedRun
from transforms.shards.catalogue_parts import (
    CatalogueParts,
    PartKey,
    write_catalogue_part,
)
from transforms.shards.shard_group import ShardGroup
from transforms.shards.shard_job import Loaded, ShardJob, ShardTask
from transforms.work.store import Store


def write_shards(run: SharedRun, *, unique: bool) -> beam.DoFn:
    """Returns the function that writes ranges of runs, grouped by shard."""
    return _WriteShards(functools.partial(_job_of, run=run, unique=unique), run)


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


def rows_of_parts() -> beam.DoFn:
    """Returns the function that gives a shard's rows with their part, if there are any.

    Its input is what `write_shards` gives, its output (part, (shard, its rows)).
    """
    return _RowsOfParts()


class _RowsOfParts(beam.DoFn):
    """Finds the part of each shard."""

    def setup(self) -> None:
        self.parts: CatalogueParts | None = None

    def process(
        self, written: Written, plan: RowsPlan
    ) -> Sequence[tuple[PartKey, tuple[int, Segment]]]:
        if written.rows is None:
            return ()
        if self.parts is None:
            self.parts = CatalogueParts.of(plan.counts)
        shard = written.shard
        part = self.parts.of_shard(shard.split, shard.index)
        return [(part, (shard.index, written.rows))]


@raising_of_rows()
def write_part(
    element: tuple[PartKey, Iterable[tuple[int, Segment]]],
    plan: RowsPlan,
    run: SharedRun,
) -> WrittenPart:
    """Writes one part of the catalogue as a file of an attempt of its own."""
    store = run.open_attempt()
    classes = _classes(plan, store, run)
    try:
        part = write_catalogue_part(
            *element, layout=plan.layout, store=store, classes=classes
        )
    except FileNotFoundError as error:
        raise run.is_gone() from error
    return WrittenPart(store.attempt, part)


def _job_of(plan: RowsPlan, store: Store, *, run: SharedRun, unique: bool) -> ShardJob:
    load = functools.partial(_load, plan=plan, run=run, unique=unique)
    return ShardJob(load, plan.counts, _classes(plan, store, run), plan.layout, store)


def _classes(plan: RowsPlan, store: Store, run: SharedRun) -> dict[str, pa.StringArray]:
    try:
        return load_classes(plan.counts.classes, store.get)
    except FileNotFoundError as error:
        raise run.is_gone() from error


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
        shards[0] if len(shards) == 1 else GatheredRows.joined(shards),
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
