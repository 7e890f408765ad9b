"""The stage `shard_counts`: rows of each shard, and the class names of a job."""

import pathlib

import apache_beam as beam
import pyarrow as pa
from apache_beam.testing.util import assert_that, equal_to

from tests.support.placing import batch_of
from transforms.core.model import Batch, PlaceFacts
from transforms.core.placing.placement import Sharding, SplitRule
from transforms.core.placing.shard_rows import ShardCounts
from transforms.core.placing.vocabulary import (
    Vocabulary,
)
from transforms.core.schema import Feature, Kind, Schema, Unknown
from transforms.stages.place import PlaceRows
from transforms.stages.shard_counts import CountShards
from transforms.work.store import Store


def facts_of(*names: str) -> PlaceFacts:
    return PlaceFacts(
        "a", len(names), {("train", 0): 1}, {"label": pa.array(names, pa.string())}
    )


def test_shard_counts_decide_vocabularies() -> None:
    """The names of all batches and those that were given, feature by feature."""
    vocabularies = {
        "label": Vocabulary(("z",), Unknown.APPEND),
        "other": Vocabulary(("q",), Unknown.REJECT),
    }
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        facts = pipeline | beam.Create([facts_of("b", "a"), facts_of("c"), facts_of()])
        found = facts | CountShards(vocabularies)
        wanted = ShardCounts(
            {("train", 0): 3},
            {"label": pa.array(["z", "a", "b", "c"]), "other": pa.array(["q"])},
        )
        assert_that(found, equal_to([wanted]))


def test_shard_counts_of_lists(tmp_path: pathlib.Path) -> None:
    """Names in lists of labels are counted like single ones, nulls left out."""
    store = Store(str(tmp_path), inline=True)
    schema = Schema((Feature("tags", Kind.LABEL, shape=(None,)),))
    tags = [["b", "a"], None, [], ["c", None], ["a"]]
    rows = pa.record_batch([pa.array(tags, pa.list_(pa.string()))], schema.row_schema)
    plain = batch_of(range(5))
    batch = Batch(plain.block, rows, plain.numbers)
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        placed = (
            pipeline
            | beam.Create([batch]).with_output_types(Batch)
            | PlaceRows(schema, Sharding(SplitRule(), {}), store)
        )
        classes = placed.facts | CountShards({}) | beam.Map(lambda c: c.classes["tags"])
        assert_that(classes, equal_to([pa.array(["a", "b", "c"])]))
