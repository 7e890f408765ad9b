"""Runs that are merged before they are cut give the same dataset."""

import pathlib
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest

from beam_pipeline.own_pipelines import cut_steps, rows_plan
from beam_pipeline.own_pipelines.write_dataset import WriteDataset
from tests.conftest import Headline
from tests.support.outputs import contents, manifest, names
from tests.support.stress import sizes
from transforms import files
from transforms.gather import bundle, merge_runs
from transforms.gather.merge_runs import Merging
from transforms.shards.shard_group import ShardGroup

Folder = pathlib.Path

RUNNER = "FnApiRunner"
# Larger than what travels in a descriptor, so that each run is a file.
RUN_BYTES = 300_000
VALUE_BYTES = 1_000
WRITE = "_write_waiting"


def write(output: Folder, **settings: Any) -> None:
    made = [{"id": i % 900, "text": f"row {i % 900}", "n": i % 2} for i in range(1000)]
    with beam.Pipeline(runner=RUNNER) as pipeline:
        _ = (
            pipeline
            | beam.Create(made)
            | beam.Reshuffle()
            | WriteDataset(
                output, splits={"train": 0.5, "test": 0.5}, num_shards=5, **settings
            )
        )


@pytest.mark.parametrize(
    "settings", [{}, {"key": "id", "duplicates": "keep"}, {"label": "text"}]
)
def test_merged_runs_give_the_same_dataset(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    """Byte for byte, with a note that says so."""
    write(tmp_path / "wanted", **settings)
    monkeypatch.setattr(rows_plan, "plan_merging", lambda *_sizes: Merging(3, 2))
    write(tmp_path / "out", **settings)
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")
    assert len(names(tmp_path / "out")) > 10
    notes = manifest(tmp_path / "out")["run"]["notes"]
    assert any("were merged before" in note for note in notes)


def batch_of(number: int) -> pa.RecordBatch:
    """Returns the rows of one run."""
    dots = np.random.default_rng(number)
    values = dots.bytes(RUN_BYTES + VALUE_BYTES)
    starts = range(0, RUN_BYTES, VALUE_BYTES)
    texts = [b"\0" + values[at : at + VALUE_BYTES] for at in starts]
    return pa.record_batch({"id": np.arange(len(texts)) + number * 1000, "x": texts})


class Scale(NamedTuple):
    """Numbers of runs and shards, and the bytes of rows that are merged at a time."""

    runs: int
    shards: int
    merged_bytes: int


class Watch:
    """Notes what calls of functions read, and the most memory that one takes."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()
        self.peaks: Counter[str] = Counter()
        self._inside = ""

    def reading(self, read: Callable[..., bytes]) -> Callable[..., bytes]:
        def watched(path: str, start: int, stop: int) -> bytes:
            self.reads[self._inside] += 1
            return read(path, start, stop)

        return watched

    def taking(self, name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """Returns the function with its memory measured, Arrow's and Python's."""

        def watched(*given: Any, **more: Any) -> Any:
            pool, self._inside = pa.default_memory_pool(), name
            own = pa.proxy_memory_pool(pool)
            pa.set_memory_pool(own)
            tracemalloc.start()
            try:
                return work(*given, **more)
            finally:
                peak = own.max_memory() + tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
                pa.set_memory_pool(pool)
                self.peaks[name] = max(self.peaks[name], peak)

        return watched


# The large one has the 64 MiB of the program, the small one fewer in proportion.
@pytest.fixture(params=sizes(Scale(60, 20, 1 << 20), Scale(3_000, 700, 64 << 20)))
def scale(request: pytest.FixtureRequest) -> Scale:
    scale: Scale = request.param
    return scale


@pytest.fixture
def watch(scale: Scale, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Measures merging and the writing of shards, with limits for small runs."""
    found = Watch()
    monkeypatch.setattr(bundle, "_RUN_BYTES", RUN_BYTES)
    monkeypatch.setattr(merge_runs, "_MERGED_BYTES", scale.merged_bytes)
    monkeypatch.setattr(merge_runs, "_MOST_RANGES", scale.runs * scale.shards // 4)
    monkeypatch.setattr(files, "read_range", found.reading(files.read_range))
    for place, name in ((cut_steps, "merge_ranges"), (ShardGroup, WRITE)):
        taking = found.taking(name, getattr(place, name))
        monkeypatch.setattr(place, name, taking)
    return found


def test_memory_and_requests_of_many_runs_and_shards(
    tmp_path: Folder, scale: Scale, watch: Watch, headline: Headline
) -> None:
    """Few ranges are read, and no stage holds more than a part of the rows."""
    runs, shards, merged_bytes = scale
    with beam.Pipeline(runner=RUNNER) as pipeline:
        batches = pipeline | beam.Create(range(runs), reshuffle=False)
        (
            batches
            | beam.Map(batch_of)
            | WriteDataset(tmp_path / "out", key="id", num_shards=shards)
        )
    (note,) = manifest(tmp_path / "out")["run"]["notes"]
    assert note.startswith(f"{runs:,} sorted runs of rows were merged before")
    assert len(names(tmp_path / "out")) >= shards
    reads, shard = sum(watch.reads.values()), runs * RUN_BYTES // shards
    assert set(watch.reads) == {"merge_ranges", WRITE}
    assert reads < runs * shards / 3
    # A group may have twice as many rows as another.
    assert watch.peaks["merge_ranges"] < 8 * merged_bytes
    # Shards of up to 4 MiB in all are written together.
    assert watch.peaks[WRITE] < 6 * max(shard, 4 << 20) + (4 << 20)
    peaks = {name: f"{peak / 1e6:.0f} MB" for name, peak in watch.peaks.items()}
    headline(
        "H8",
        f"{{}} merge of {runs:,} runs for {shards:,} shards: {reads:,} requests, "
        f"peak {peaks['merge_ranges']}, of a shard {peaks[WRITE]}",
        1,
    )
