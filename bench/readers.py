"""Measures `open_dataset` against other readers of the same records, on warm files.

    make bench-readers
    make bench-readers BENCH_ARGS="--runs 5"

Each comparison runs both sides in one process, in turns, and prints the median of each
and their ratio. It is left out where a peer's package is missing: the packages are in
three environments, and the target runs this file in each.

    lookups   `records[i]` of small records at random, both checksums compared
    rows      rows as dicts, in order
    columns   record batches, with and without missing values
    batches   record batches of 4,096 rows
    loader    PyTorch's DataLoader, two workers, batches of 256 images: the time to the
              first batch, an epoch of new workers, and one of workers that are there
"""

import argparse
import functools
import importlib.util
import itertools
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path[:0] = [str(ROOT)]

import data  # noqa: E402 - beside this file

ROWS = 300_000
LOOKUPS = 20_000
ROWS_READ = 60_000
IMAGES = 20_000
BATCH = 256
_PROGRAM = ROOT / ".venv" / "bin" / "python"

Work = Callable[[], int]


def dataset(source: pathlib.Path, name: str, *options: str) -> pathlib.Path:
    """Returns a dataset of a source, converted once."""
    out = data.data_folder() / "readers" / name
    if not out.exists():
        places = [
            str(_PROGRAM),
            "-m",
            "beam_pipeline",
            "convert",
            str(source),
            str(out),
        ]
        command = [*places, *options]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return out


def rows_with_gaps(every: int) -> pathlib.Path:
    """Returns a CSV in which one value of each `every` rows is missing; 0 for none."""
    path = data.data_folder() / f"gaps-{every}.csv"
    if not path.exists():
        chosen = random.Random(3)
        with path.open("w") as file:
            file.write("a,b,c,d\n")
            for number in range(ROWS):
                gone = every and chosen.randrange(every) == 0
                b = "" if gone else f"{number / 7:.4f}"
                file.write(f"{number},{b},{number % 11},{number * 0.5:.1f}\n")
    return path


def has(*packages: str) -> bool:
    """Whether packages are there."""
    return all(importlib.util.find_spec(each) for each in packages)


def split(folder: pathlib.Path) -> Any:
    """Returns all rows of a dataset."""
    import beam_tfrecord

    return beam_tfrecord.open_dataset(folder)["train"]


def shards(folder: pathlib.Path) -> list[str]:
    """Returns the paths of a dataset's shards."""
    return sorted(map(str, folder.glob("*.tfrecord-*")))


class Table:
    """Prints a line for each comparison.

    Args:
      runs: rounds of each.
    """

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def compare(self, title: str, sides: Mapping[str, Work], unit: str) -> None:
        """Measures sides in turns; the ratios are those of the first to the others."""
        found: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(self.runs):
            for name, work in sides.items():
                begun = time.perf_counter()
                count = work()
                found[name].append((time.perf_counter() - begun) / count)
        medians = {name: statistics.median(each) for name, each in found.items()}
        (ours, first), *others = medians.items()
        print(f"{title:<44} {ours:<24} {first * 1e6:>9.2f} us a {unit}")
        for name, median in others:
            ratio = f"{median / first:.2f}x"
            print(f"{'':<44} {name:<24} {median * 1e6:>9.2f} us a {unit}  {ratio:>8}")


def lookups(table: Table) -> None:
    """Compares records that are looked up one by one."""
    source, chosen = data.csv_of(ROWS), random.Random(5)
    places = [chosen.randrange(ROWS) for _ in range(LOOKUPS)]
    sides: dict[str, Work] = {}

    def looked_up(records: Any) -> Work:
        def work() -> int:
            for place in places:
                records[place]
            return LOOKUPS

        records[0]
        return work

    for count in (10, 1_000):
        folder = dataset(source, f"rows-{count}", "--shards", str(count))
        sides[f"ours, {count:,} shards"] = looked_up(split(folder).records)
    if has("array_record"):
        for size in (1, 256):
            sides[f"ArrayRecord, {size} at once"] = _array_record(places, size)
    table.compare("records[i]", sides, "record")


def _array_record(places: Sequence[int], size: int) -> Work:
    from array_record.python import array_record_module

    path = data.data_folder() / "readers" / "rows.array_record"
    if not path.exists():
        writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
        folder = dataset(data.csv_of(ROWS), "rows-10", "--shards", "10")
        for record in split(folder).records:
            writer.write(record)
        writer.close()
    reader = array_record_module.ArrayRecordReader(str(path))
    most = len(places) if size > 1 else len(places) // 10

    def work() -> int:
        for start in range(0, most, size):
            reader.read([*places[start : start + size]])
        return most

    return work


def rows(table: Table) -> None:
    """Compares rows as dicts, in the order of the files."""
    folder = dataset(data.csv_of(ROWS), "rows-10", "--shards", "10")
    view = split(folder)[:ROWS_READ]
    sides: dict[str, Work] = {"ours": lambda: sum(1 for _ in view)}
    if has("tfrecord"):
        from tfrecord.reader import tfrecord_loader

        kinds = {"feature0": "int", "feature1": "int", "feature2": "byte"}
        kinds["feature3"] = "float"

        def vahidk() -> int:
            found = itertools.chain.from_iterable(
                tfrecord_loader(path, None, kinds) for path in shards(folder)
            )
            return sum(1 for _ in itertools.islice(found, ROWS_READ))

        sides["tfrecord (vahidk)"] = vahidk
    table.compare("rows in order", sides, "row")


def columns(table: Table) -> None:
    """Compares columns with missing values and without."""
    sides: dict[str, Work] = {}
    for title, every in (("none", 0), ("1 in 4,096", 4_096), ("1 in 5", 5)):
        view = split(dataset(rows_with_gaps(every), f"gaps-{every}"))
        sides[f"ours, {title} missing"] = functools.partial(_batched, view)
    table.compare("columns", sides, "row")


def _batched(view: Any) -> int:
    return sum(batch.num_rows for batch in view.batches(4_096))


def batches(table: Table) -> None:
    """Compares batches of 4,096 rows with those of `tf.data`."""
    folder = dataset(data.csv_of(ROWS), "rows-10", "--shards", "10")
    view = split(folder)
    sides: dict[str, Work] = {"ours": functools.partial(_batched, view)}
    if has("tensorflow"):
        import tensorflow as tf

        features = {
            "feature0": tf.io.FixedLenFeature([], tf.int64),
            "feature1": tf.io.FixedLenFeature([], tf.int64),
            "feature2": tf.io.FixedLenFeature([], tf.string),
            "feature3": tf.io.FixedLenFeature([], tf.float32),
        }

        def tf_data() -> int:
            found = tf.data.TFRecordDataset(shards(folder)).batch(4_096)
            found = found.map(lambda each: tf.io.parse_example(each, features))
            return sum(len(each["feature1"]) for each in found)

        sides["tf.data, parse_example"] = tf_data
    table.compare("batches of 4,096", sides, "row")


def loader(table: Table) -> None:
    """Compares PyTorch's loader over images: the start of its workers, and the rest."""
    if not has("torch", "tfrecord"):
        return
    images = pathlib.Path(os.environ.get("BEAM_TFRECORD_TEST_DATA", "")) / "clothing"
    few = images if images.is_dir() else data.images_of(600)
    for source, count in ((few, 2), (data.images_of(IMAGES), 4)):
        folder = dataset(source, f"loaded-{source.name}", "--shards", str(count))
        made = _datasets(folder)
        size = f"{len(split(folder)):,} images"
        for title, unit, side in (
            ("to the first batch", "start", _to_first_batch),
            ("with the start of workers", "image", _whole),
            ("workers are there", "image", _again),
        ):
            sides = {name: side(each) for name, each in made.items()}
            table.compare(f"DataLoader, {size}, {title}", sides, unit)


def _datasets(folder: pathlib.Path) -> dict[str, Callable[[], Any]]:
    """Returns what makes each reader's dataset of the same images, in their order."""
    from tfrecord.torch.dataset import TFRecordDataset
    from torch.utils.data import ChainDataset

    view = split(folder)
    paths = [each for each in shards(folder) if "-train.tfrecord" in each]
    kinds = {"image": "byte", "label": "int"}

    def vahidk() -> Any:
        # Each of the workers reads a part of each shard, which the index tells it.
        return ChainDataset(
            [
                TFRecordDataset(
                    path, str(folder / "index" / f"{os.path.basename(path)}.idx"), kinds
                )
                for path in paths
            ]
        )

    made: dict[str, Callable[[], Any]] = {"ours": lambda: view.records}
    made["tfrecord (vahidk)"] = vahidk
    if has("streaming"):
        made["MDS"] = _mds(view, folder.with_name(f"{folder.name}-mds"))
    if has("webdataset"):
        tars = folder.with_name(f"{folder.name}-tars")
        made["WebDataset"] = _web_dataset(view, tars, len(paths))
    held = _Held(view.records)
    made["the loader alone"] = lambda: held
    return made


class _Held:
    """Gives the records of one batch, which are there, again and again."""

    def __init__(self, records: Any) -> None:
        self._size = len(records)
        self._batch = [*records[:BATCH]]

    def __len__(self) -> int:
        return self._size

    def __getitems__(self, places: Sequence[int]) -> list[bytes]:
        return self._batch[: len(places)]


def _mds(view: Any, folder: pathlib.Path) -> Callable[[], Any]:
    import streaming

    if not folder.exists():
        columns = {"image": "bytes", "label": "int"}
        with streaming.MDSWriter(out=str(folder), columns=columns) as writer:
            for row in view:
                writer.write({"image": row["image"], "label": row["label"]})

    def opened() -> Any:
        # What a run before this one has left in shared memory.
        streaming.base.util.clean_stale_shared_memory()
        return streaming.StreamingDataset(
            local=str(folder), shuffle=False, batch_size=BATCH
        )

    return opened


def _web_dataset(view: Any, folder: pathlib.Path, count: int) -> Callable[[], Any]:
    import webdataset

    if not folder.exists():
        folder.mkdir()
        size = -(-len(view) // count)
        for number in range(count):
            with webdataset.TarWriter(str(folder / f"{number:05}.tar")) as writer:
                for place in range(number * size, min((number + 1) * size, len(view))):
                    row = view[place]
                    image, label = row["image"], row["label"]
                    key = f"{place:08}"
                    writer.write({"__key__": key, "jpg": image, "cls": label})
    tars = sorted(map(str, folder.glob("*.tar")))
    return lambda: webdataset.WebDataset(tars, shardshuffle=False)


def _loaded(made: Callable[[], Any], *, stays: bool = False) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        made(),
        batch_size=BATCH,
        num_workers=2,
        collate_fn=list,
        persistent_workers=stays,
    )


def _to_first_batch(made: Callable[[], Any]) -> Work:
    def work() -> int:
        next(iter(_loaded(made)))
        return 1

    return work


def _whole(made: Callable[[], Any]) -> Work:
    return lambda: sum(len(batch) for batch in _loaded(made))


def _again(made: Callable[[], Any]) -> Work:
    kept: list[Any] = []

    def work() -> int:
        if not kept:
            kept.append(_loaded(made, stays=True))
            for _ in kept[0]:
                pass
        return sum(len(batch) for batch in kept[0])

    return work


def main() -> None:
    """Prints the comparisons that this environment has the packages for."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = [each.__name__ for each in (lookups, rows, columns, batches, loader)]
    parser.add_argument("--only", default=",".join(names), help=f"of {names}")
    parser.add_argument("--runs", type=int, default=3, help="rounds per median")
    arguments = parser.parse_args()
    table = Table(arguments.runs)
    for name in arguments.only.split(","):
        globals()[name](table)


if __name__ == "__main__":
    main()
