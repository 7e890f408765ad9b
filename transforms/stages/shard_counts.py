"""The stage `shard_counts`: rows of each shard, and all class names, of a whole job."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import apache_beam as beam

from transforms.core.model import PlaceFacts, Segment, ShardKey
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import Vocabulary
from transforms.core.segment import (
    NameStore,
    add_names,
    distinct_names,
    put_classes,
)
from transforms.shards.allocation import return_freed_memory
from transforms.stages.job_plan import JobPlan, PlanInput, Stage


class WorkerStore(NameStore, Protocol):
    """Where long lists of names are, for workers that the job takes."""

    def check_worker(self) -> None:
        """Raises BeamTFRecordError in a worker that does not fit the job."""


@dataclasses.dataclass
class CountShards(Stage):
    """Counts the rows of every shard and collects the class names.

    Input: PlaceFacts. Output: one ShardCounts, empty for no input.

    Attributes:
      plan: of the job.
      store: where long lists of names are.
    """

    plan: PlanInput
    store: WorkerStore

    def expand(
        self, facts: beam.PCollection[PlaceFacts]
    ) -> beam.PCollection[ShardCounts]:
        """Merges the facts of all batches."""
        return (
            facts
            | "Merge" >> beam.CombineGlobally(MergeFacts(self.store))
            | "Settle names" >> beam.Map(count_shards, self.plan)
        )


# Rows of each shard, and lists of the class names of each feature.
_Sums = tuple[dict[ShardKey, int], dict[str, list[Segment]]]


class MergeFacts(beam.CombineFn):
    """Adds up the facts of batches."""

    def __init__(self, store: WorkerStore) -> None:
        super().__init__()
        self.store = store

    def setup(self) -> None:
        """Checks the worker."""
        self.store.check_worker()

    def create_accumulator(self) -> _Sums:
        """Returns the sums of no facts."""
        return {}, {}

    def add_input(self, sums: _Sums, facts: PlaceFacts) -> _Sums:
        """Adds the facts of one batch."""
        lists = {feature: [names] for feature, names in facts.labels.items()}
        self._add(sums, facts.rows, lists)
        return sums

    def merge_accumulators(self, parts: Iterable[_Sums]) -> _Sums:
        """Returns the sums of sums."""
        sums = self.create_accumulator()
        for part in parts:
            self._add(sums, *part)
        return sums

    def _add(
        self,
        sums: _Sums,
        more: Mapping[ShardKey, int],
        lists: Mapping[str, Sequence[Segment]],
    ) -> None:
        rows, labels = sums
        for key, count in more.items():
            rows[key] = rows.get(key, 0) + count
        for feature, names in lists.items():
            add_names(labels.setdefault(feature, []), names, self.store)

    def extract_output(self, sums: _Sums) -> _Sums:
        """Returns the sums as they are: the plan says what they become."""
        return sums


def count_shards(sums: _Sums, plan: JobPlan) -> ShardCounts:
    """Returns the rows of every shard, and the class names with their ids."""
    plan.store.check_worker()
    rows, labels = sums
    classes = {}
    for feature in sorted(labels.keys() | plan.vocabularies.keys()):
        names = distinct_names(labels.get(feature, []), plan.store.get)
        vocabulary = plan.vocabularies.get(feature, Vocabulary())
        settled = vocabulary.settled(names)
        classes[feature] = put_classes(settled, plan.store.put_pieces)
        del names, settled
    return_freed_memory()
    return ShardCounts(dict(sorted(rows.items())), classes)
