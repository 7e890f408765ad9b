"""The stage `shard_counts`: rows of each shard, and all class names, of a whole job."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import apache_beam as beam
import pyarrow as pa

from transforms.core.model import PlaceFacts, ShardKey
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import Vocabulary
from transforms.work.worker_check import WorkerRules, check_worker

__all__ = ["CountShards"]


@dataclasses.dataclass
class CountShards(beam.PTransform):
    """Counts the rows of every shard and collects the class names.

    Input: PlaceFacts. Output: one ShardCounts, empty for no input.

    Attributes:
      vocabularies: of label features, as far as they are known beforehand; all names
        are welcome to a feature that is not here.
      rules: what is asked of the workers; see `transforms.work.store.Store`.
    """

    vocabularies: Mapping[str, Vocabulary]
    rules: WorkerRules | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, facts: beam.PCollection[PlaceFacts]
    ) -> beam.PCollection[ShardCounts]:
        """Merges the facts of all batches."""
        merging = _MergeFacts(self.vocabularies, self.rules)
        return facts | "Merge" >> beam.CombineGlobally(merging)


# Of each feature what is known to be distinct, and the names that came since.
_Sums = tuple[dict[ShardKey, int], dict[str, list[pa.StringArray]]]
# Names held beyond the distinct ones before duplicates are removed.
_SPARE_NAMES = 1 << 16


class _MergeFacts(beam.CombineFn):
    def __init__(
        self, vocabularies: Mapping[str, Vocabulary], rules: WorkerRules | None
    ) -> None:
        super().__init__()
        self.vocabularies = vocabularies
        self.rules = rules

    def setup(self) -> None:
        check_worker(self.rules)

    def create_accumulator(self) -> _Sums:
        return {}, {}

    def add_input(self, sums: _Sums, facts: PlaceFacts) -> _Sums:
        rows, labels = sums
        for key, count in facts.rows.items():
            rows[key] = rows.get(key, 0) + count
        for feature, names in facts.labels.items():
            held = labels.setdefault(feature, [_distinct([])])
            held.append(names)
            if sum(map(len, held[1:])) > max(len(held[0]), _SPARE_NAMES):
                held[:] = [_distinct(held)]
        return sums

    def merge_accumulators(self, parts: Iterable[_Sums]) -> _Sums:
        sums = self.create_accumulator()
        for rows, labels in parts:
            known = {feature: _distinct(held) for feature, held in labels.items()}
            self.add_input(sums, PlaceFacts("", 0, rows, known))
        return sums

    def extract_output(self, sums: _Sums) -> ShardCounts:
        rows, labels = sums
        classes = {
            feature: self.vocabularies.get(feature, Vocabulary()).settled(
                _distinct(labels.get(feature, []))
            )
            for feature in sorted(labels.keys() | self.vocabularies.keys())
        }
        return ShardCounts(dict(sorted(rows.items())), classes)


def _distinct(parts: Sequence[pa.StringArray]) -> pa.StringArray:
    return pa.chunked_array(parts, pa.string()).unique()
