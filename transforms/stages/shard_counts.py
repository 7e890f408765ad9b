"""The stage `shard_counts`: rows of each shard, and all class names, of a whole job."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import apache_beam as beam

from transforms.core.model import PlaceFacts, Segment, ShardKey
from transforms.core.placing.name_lists import add_names, distinct_names, put_classes
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import Vocabulary
from transforms.shards.allocation import return_freed_memory
from transforms.work.store import Store


@dataclasses.dataclass
class CountShards(beam.PTransform):
    """Counts the rows of every shard and collects the class names.

    Input: PlaceFacts. Output: one ShardCounts, empty for no input.

    Attributes:
      vocabularies: of label features, as far as they are known beforehand; all names
        are welcome to a feature that is not here.
      store: where long lists of names are.
    """

    vocabularies: Mapping[str, Vocabulary]
    store: Store

    def __post_init__(self) -> None:
        super().__init__()

    def expand(
        self, facts: beam.PCollection[PlaceFacts]
    ) -> beam.PCollection[ShardCounts]:
        """Merges the facts of all batches."""
        merging = _MergeFacts(self.vocabularies, self.store)
        return facts | "Merge" >> beam.CombineGlobally(merging)


# Rows of each shard, and lists of the class names of each feature.
_Sums = tuple[dict[ShardKey, int], dict[str, list[Segment]]]


class _MergeFacts(beam.CombineFn):
    def __init__(self, vocabularies: Mapping[str, Vocabulary], store: Store) -> None:
        super().__init__()
        self.vocabularies = vocabularies
        self.store = store

    def setup(self) -> None:
        self.store.check_worker()

    def create_accumulator(self) -> _Sums:
        return {}, {}

    def add_input(self, sums: _Sums, facts: PlaceFacts) -> _Sums:
        lists = {feature: [names] for feature, names in facts.labels.items()}
        self._add(sums, facts.rows, lists)
        return sums

    def merge_accumulators(self, parts: Iterable[_Sums]) -> _Sums:
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

    def extract_output(self, sums: _Sums) -> ShardCounts:
        rows, labels = sums
        classes = {}
        for feature in sorted(labels.keys() | self.vocabularies.keys()):
            found = distinct_names(labels.get(feature, []), self.store.get)
            vocabulary = self.vocabularies.get(feature, Vocabulary())
            names = vocabulary.settled(found)
            classes[feature] = put_classes(names, self.store.put_pieces)
            del found, names
        return_freed_memory()
        return ShardCounts(dict(sorted(rows.items())), classes)
