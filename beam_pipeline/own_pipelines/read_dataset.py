"""`ReadDataset`: the rows of a dataset, for any pipeline.

plan, when the pipeline is built: shards, features, splits
     -> numbers of shards, spread over the workers    Shards, Spread
     -> rows, or Arrow batches                        Read
"""

import functools
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import apache_beam as beam
import pyarrow as pa

from beam_pipeline.datasets.reading_plan import (
    Labels,
    ReadingPlan,
    Said,
    digest_of,
    plan_reading,
)
from beam_pipeline.own_pipelines.engine_workers import Held, hold
from transforms.errors import SpecError, nearest, raising_in_python
from transforms.formats.tfrecord_files.typed_rows import read_shard
from transforms.storage.paths import plain
from transforms.tfrecord.read import check_begin

# A larger plan is not part of the pipeline: engines take descriptions of some MB only.
_PLAN_BYTES = 1 << 20


class ReadDataset(beam.PTransform):
    """Reads the rows of a dataset, typed by what its manifest states.

        rows = pipeline | ReadDataset("out/photos", split="train",
                                      columns=["label", "height"])

    Input: the pipeline. Output: a dict for each record, with all columns, in no
    particular order; with `batches=True` Arrow record batches, each of about 4 MiB of
    one shard's records, in the shard's order.

    Values, in dicts: int, float (of 32 bits), bool, str, bytes (images too), lists, and
    lists of lists where a feature has two dimensions; datetimes in UTC; NumPy arrays
    for raw tensors; class names for labels, or their ids. In batches: the Arrow types
    of these, timestamps in their own unit. A missing value is None. What `WriteDataset`
    wrote comes back as it was given, but for floats, which are rounded to 32 bits,
    dates and datetimes, which are in UTC, tuples and arrays, which are lists, and
    missing keys, which are None.

    Guarantees:
      - The dataset is found, and its manifest read, where the pipeline is built; the
        workers get what they need of it with the pipeline. If that is over 1 MiB, for
        thousands of shards or classes, each worker reads the manifest again.
      - Both checksums of every record are checked, and of a dataset of this program the
        size, number of records and CRC32C of each shard, too. A damaged file is an
        error, never a short answer.
      - A dataset that is replaced meanwhile is an error: no job that succeeds has read
        rows of two.
      - A retry reads the same rows again.

    Only the columns asked for are decoded. Shards are read in parallel, each by one
    worker, which needs some ten times 4 MiB, or ten times the longest record. The steps
    behind get the rows of a shard from that worker, too: where a dataset has fewer
    shards than there are workers, and these steps take long, put `beam.Reshuffle()`
    before them.
    Counter: rows_read (namespace read_dataset).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        split: str | None = None,
        columns: Sequence[str] | None = None,
        batches: bool = False,
        features: Mapping[str, Said] | None = None,
        *,
        labels: Labels = "names",
    ) -> None:
        """Checks the parameters; the dataset is looked at when the pipeline is built.

        Args:
          path: a dataset's folder or manifest, a folder of TFDS (that of one version,
            with `dataset_info.json`), or TFRecord files: a folder, a glob or one file.
          split: the one to read; None for all.
          columns: names of the features to read, in the order of the columns; None for
            all of them.
          batches: whether to give Arrow record batches instead of dicts.
          features: of bare TFRecord files, what they hold, by name: a kind ("float"),
            a mapping of kind, shape, dtype, encoding, unit and vocabulary as a spec has
            it. Of a TFDS folder, what `features.json` does not state.
          labels: "names" gives class names, which `WriteDataset` takes back; "ids" the
            stored numbers.

        Raises:
          SpecError: a parameter is wrong.
        """
        super().__init__()
        if labels not in get_args(Labels):
            raise SpecError(
                f"labels must be 'names' or 'ids'; found {labels!r}"
                f"{nearest(str(labels), get_args(Labels))}."
            )
        are_names = all(isinstance(name, str) for name in columns or ())
        if columns is not None and not (
            columns and are_names and not isinstance(columns, str)
        ):
            raise SpecError(
                f"columns must be a list of at least one name, as in ['label']; found "
                f"{columns!r}. Leave it out to read all of them."
            )
        if features is not None and not isinstance(features, Mapping):
            raise SpecError(
                f"features must be a mapping of names, as in {{'height': 'float'}}; "
                f"found {features!r}."
            )
        self._path = os.fspath(path)
        self._batches = batches
        self._asked = (split, columns, features, labels)

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Plans, then reads each shard by itself.

        Raises:
          SpecError: the dataset has no such split or column, or `start` is no start.
          UsageError: nothing is there that can be read.
          DamageError: the manifest is damaged.
        """
        check_begin("ReadDataset", start)
        make = functools.partial(_plan_with_digest, self._path, *self._asked)
        with raising_in_python():
            plan = hold(plain(self._path), make, _PLAN_BYTES)
        kind = pa.RecordBatch if self._batches else dict[str, Any]
        read = _ReadShard(plan, batches=self._batches)
        return (
            start
            | "Shards" >> beam.Create(range(len(plan.get().shards)), reshuffle=False)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(read).with_output_types(kind)
        )


def _plan_with_digest(*arguments: Any) -> tuple[ReadingPlan, str]:
    """Returns what is to be read, and its digest, which workers compare."""
    plan = plan_reading(*arguments)
    return plan, digest_of(plan)


class _ReadShard(beam.DoFn):
    """Reads one shard of the plan by its number: dicts, or Arrow batches."""

    def __init__(self, held: Held[ReadingPlan], *, batches: bool) -> None:
        super().__init__()
        self.held = held
        self.batches = batches
        self.rows_read = beam.metrics.Metrics.counter("read_dataset", "rows_read")

    def setup(self) -> None:
        self.plan = self.held.get()

    def process(self, number: int) -> Iterable[Any]:
        plan = self.plan
        shard = read_shard(plan.shards[number], plan.rows, plan.edition)
        batches = map(self._counted, shard)
        if self.batches:
            return batches
        return itertools.chain.from_iterable(map(plan.rows.dicts, batches))

    def _counted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows_read.inc(batch.num_rows)
        return batch
