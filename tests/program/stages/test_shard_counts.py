"""The stage `shard_counts`: rows of each shard, and the class names of a job."""

import pathlib
import pickle
from collections.abc import Mapping

import apache_beam as beam
import pyarrow as pa
from apache_beam.testing.util import assert_that, equal_to

from transforms.core.model import PlaceFacts
from transforms.core.placing.sharding import ShardCounts, Sharding
from transforms.core.placing.splitting import SplitRule
from transforms.core.schema import Schema, Unknown
from transforms.core.vocabulary import Vocabulary, load_classes, put_names
from transforms.shards.shard_job import ShardLayout
from transforms.stages.job_plan import JobPlan, Publication
from transforms.stages.place import CountShards
from transforms.work.store import Store


def job_plan(store: Store, vocabularies: Mapping[str, Vocabulary] = {}) -> JobPlan:
    """Returns the plan of a job on rows, of one split."""
    layout = ShardLayout("set", Schema(()), Sharding(SplitRule(), {}))
    publication = Publication("out", "", "job", layout, {}, {}, {})
    return JobPlan(store, publication, vocabularies)


def facts_of(store: Store, *names: str) -> PlaceFacts:
    stored = put_names(pa.array(names, pa.string()), store.put_pieces)
    return PlaceFacts("a", len(names), {("train", 0): 1}, {"label": stored})


def names_in(counts: ShardCounts, store: Store) -> dict[str, list[str]]:
    found = load_classes(counts.classes, store.get)
    return {feature: names.to_pylist() for feature, names in found.items()}


def test_shard_counts_decide_vocabularies(tmp_path: pathlib.Path) -> None:
    """The names of all batches and those that were given, feature by feature."""
    store = Store(str(tmp_path))
    vocabularies = {
        "label": Vocabulary(("z",), Unknown.APPEND),
        "other": Vocabulary(("q",), Unknown.REJECT),
    }
    plan = job_plan(store, vocabularies)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        several = [facts_of(store, *names) for names in (("b", "a"), ("c",), ())]
        found = pipeline | beam.Create(several) | CountShards(plan)
        wanted = {"label": ["z", "a", "b", "c"], "other": ["q"]}
        assert_that(found | beam.Map(names_in, store), equal_to([wanted]))
        rows = found | beam.Map(lambda counts: counts.rows)
        assert_that(rows, equal_to([{("train", 0): 3}]), label="rows")


def test_many_names_are_in_files(tmp_path: pathlib.Path) -> None:
    """However many class names there are, what passes between stages is small."""
    store = Store(str(tmp_path))
    store.make()
    several = [
        facts_of(store, *(f"name {number:06d}" for number in range(start, stop)))
        for start, stop in ((0, 60_000), (40_000, 100_000), (0, 2))
    ]
    assert max(len(pickle.dumps(facts)) for facts in several) < 2_000

    def check(found: list[ShardCounts]) -> None:
        (counts,) = found
        assert len(pickle.dumps(counts)) < 2_000
        names = names_in(counts, store)["label"]
        assert names == [f"name {number:06d}" for number in range(100_000)]

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        found = pipeline | beam.Create(several) | CountShards(job_plan(store))
        assert_that(found, check)
