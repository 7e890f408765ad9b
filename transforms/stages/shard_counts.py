"""The stage `shard_counts`: rows of each shard, and all class names, of a whole job."""

import dataclasses
from collections.abc import Iterable

import apache_beam as beam

from transforms.core.model import PlaceFacts, Segment, ShardKey
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.segment import distinct_names, merged_lists, put_classes
from transforms.core.vocabulary import Vocabulary
from transforms.shards.allocation import return_freed_memory
from transforms.stages.job_plan import JobPlan, PlanInput, Stage

# Rows of each shard, and lists of the class names of each feature.
_Sums = tuple[dict[ShardKey, int], dict[str, list[Segment]]]


@dataclasses.dataclass
class CountShards(Stage):
    """Counts the rows of every shard and collects the class names.

    Input: PlaceFacts. Output: one ShardCounts, empty for no input.

    Attributes:
      plan: of the job.
    """

    plan: PlanInput

    def expand(
        self, facts: beam.PCollection[PlaceFacts]
    ) -> beam.PCollection[ShardCounts]:
        """Merges the facts of all batches."""
        return (
            facts
            | "Take counts" >> beam.Map(counts_of)
            | "Merge" >> beam.CombineGlobally(merged)
            | "Settle names" >> beam.Map(count_shards, self.plan)
        )


def counts_of(facts: PlaceFacts) -> _Sums:
    """Returns the sums of one batch."""
    return dict(facts.rows), {name: [names] for name, names in facts.labels.items()}


def merged(parts: Iterable[_Sums]) -> _Sums:
    """Returns the sums of sums."""
    rows: dict[ShardKey, int] = {}
    labels: dict[str, list[Segment]] = {}
    for more, lists in parts:
        for key, count in more.items():
            rows[key] = rows.get(key, 0) + count
        for feature, names in lists.items():
            labels.setdefault(feature, []).extend(names)
    return rows, {name: merged_lists(lists) for name, lists in labels.items()}


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
