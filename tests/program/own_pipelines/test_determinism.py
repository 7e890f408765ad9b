"""WriteDataset: equal collections of rows give equal bytes, however they arrive."""

import dataclasses
import os
import pathlib
import random
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.support.image_sources import image_bytes
from tests.support.outputs import examples, manifest
from tests.support.own_pipelines import (
    bytes_of,
    run_steps,
    write_rows,
)
from tests.support.runs import python
from tests.support.stress import sizes
from transforms.core import segment
from transforms.core.placing import hashes
from transforms.core.placing.content import content_hashes
from transforms.core.placing.hashes import hash_texts
from transforms.rows import spool, typed_rows
from transforms.shards import shard_records

Folder = pathlib.Path
Row = dict[str, Any]

ROOT = Folder(__file__).parents[3]
SHARES = {"train": 0.8, "test": 0.2}
SHARDED: dict[str, Any] = {"splits": SHARES, "label": "kind", "num_shards": 3}


class Tuple(NamedTuple):
    """A row as a named tuple."""

    id: int
    share: float | None
    name: str
    kind: str
    fresh: bool
    sizes: list[float]


@dataclasses.dataclass
class Record:
    """A row as a dataclass."""

    id: int
    share: float | None
    name: str
    kind: str
    fresh: bool
    sizes: list[float]


def rows_of(count: int) -> list[Row]:
    """Rows of six features; some lack a value, and every tenth is there twice."""
    made = [
        {
            "id": number,
            "share": None if number % 11 == 0 else number / 7,
            "name": f"name {number * 7919 % 101}",
            "kind": f"kind {number % 5}",
            "fresh": number % 3 == 0,
            "sizes": [number / 2, float(number % 4)],
        }
        for number in range(count)
    ]
    return made + made[::10]


ROWS = rows_of(600)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Every file of the dataset of ROWS, written in one bundle in their order."""
    output = tmp_path_factory.mktemp("expected") / "out"
    write_rows(ROWS, output, **SHARDED)
    files = bytes_of(output)
    assert sum(name.endswith("-of-00003") for name in files) == 6
    return files


def shuffled(rows: Sequence[Any], seed: int = 3) -> list[Any]:
    return random.Random(seed).sample(rows, len(rows))


def test_order_of_rows(tmp_path: Folder, expected: Mapping[str, bytes]) -> None:
    """Neither the rows' order nor that of a dict's keys means anything."""
    rows = [dict(shuffled(list(row.items()))) for row in shuffled(ROWS)]
    write_rows(rows, tmp_path / "out", **SHARDED)
    assert bytes_of(tmp_path / "out") == expected


def test_sizes_of_pieces(
    tmp_path: Folder,
    expected: Mapping[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seven rows become Arrow at a time, pieces hold few, few are encoded at once."""
    monkeypatch.setattr(spool, "MOST_WAITING", 7)
    monkeypatch.setattr(spool, "PIECE_BYTES", 2_000)
    monkeypatch.setattr(segment, "_INLINE_BYTES", 0)
    monkeypatch.setattr(shard_records, "_CHUNK_CELLS", 40)
    write_rows(ROWS, tmp_path / "out", bundles=3, **SHARDED)
    assert bytes_of(tmp_path / "out") == expected


RESHUFFLES: dict[str, Callable[[], beam.PTransform[Any, Any]]] = {
    "random keys": beam.Reshuffle,
    "few keys": lambda: beam.Reshuffle(num_buckets=2),
    "batches": lambda: (
        "Batch" >> beam.BatchElements(min_batch_size=13, max_batch_size=13)
        | "Spread" >> beam.Reshuffle()
        | "Rows" >> beam.FlatMap(list).with_output_types(Any)
    ),
    "by a column": lambda: (
        "Key" >> beam.WithKeys(lambda row: row["kind"])
        | "Group" >> beam.GroupByKey()
        | "Rows" >> beam.FlatMap(lambda group: group[1]).with_output_types(Any)
    ),
}


@pytest.mark.parametrize("how", sizes(*RESHUFFLES))
def test_steps_before(
    tmp_path: Folder, expected: Mapping[str, bytes], how: str
) -> None:
    """Whatever shuffle the rows come from."""
    run_steps(
        lambda pipeline: (
            pipeline | "Make" >> beam.Create(ROWS, reshuffle=False) | RESHUFFLES[how]()
        ),
        tmp_path / "out",
        "--direct_num_workers=3",
        "--direct_running_mode=multi_threading",
        **SHARDED,
    )
    assert bytes_of(tmp_path / "out") == expected


@pytest.mark.stress
def test_bundles_that_run_again(
    tmp_path: Folder, expected: Mapping[str, bytes]
) -> None:
    """Every bundle is processed three times, and only the last result counts."""
    flags = ("--direct_runner_bundle_repeat=2",)
    write_rows(ROWS, tmp_path / "out", *flags, bundles=2, **SHARDED)
    assert bytes_of(tmp_path / "out") == expected


def test_worker_processes(tmp_path: Folder, expected: Mapping[str, bytes]) -> None:
    """Two processes of Beam's own give what one gives."""
    script = tmp_path / "own.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from tests.program.own_pipelines.test_determinism import ROWS, SHARDED
            from tests.support.own_pipelines import run_steps
            import apache_beam as beam, pathlib

            if __name__ == "__main__":
                run_steps(
                    lambda pipeline: pipeline | beam.Create(ROWS),
                    pathlib.Path({str(tmp_path / "out")!r}),
                    "--direct_num_workers=2",
                    "--direct_running_mode=multi_processing",
                    **SHARDED,
                )
            """
        )
    )
    done = python(script, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert bytes_of(tmp_path / "out") == expected


def as_arrow(rows: Sequence[Row], size: int) -> list[pa.RecordBatch]:
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("share", pa.float64()),
            ("name", pa.large_string()),
            ("kind", pa.dictionary(pa.int8(), pa.string())),
            ("fresh", pa.bool_()),
            ("sizes", pa.large_list(pa.float64())),
        ]
    )
    return [
        pa.RecordBatch.from_pylist(list(rows[start : start + size]), schema)
        for start in range(0, len(rows), size)
    ]


SHAPES: dict[str, Callable[[Sequence[Row]], list[Any]]] = {
    "slices": lambda rows: [
        batch.slice(start, 50)
        for batch in as_arrow(rows, 200)
        for start in range(0, batch.num_rows, 50)
    ],
    "dicts without the missing": lambda rows: [
        {name: value for name, value in row.items() if value is not None}
        for row in rows
    ],
    "NumPy values": lambda rows: [
        {
            **row,
            "id": np.int16(row["id"]),
            "share": None if row["share"] is None else np.float64(row["share"]),
            "name": np.str_(row["name"]),
            "fresh": np.bool_(row["fresh"]),
        }
        for row in rows
    ],
    "all of them": lambda rows: [
        *rows[:100],
        *(beam.Row(**row) for row in rows[100:200]),
        *as_arrow(rows[200:350], 64),
        pa.Table.from_batches(as_arrow(rows[350:400], 20)),
        *(Tuple(**row) for row in rows[400:500]),
        *(Record(**row) for row in rows[500:]),
    ],
}


@pytest.mark.parametrize("shape", sizes(*reversed(SHAPES)))
def test_shapes_of_rows(
    tmp_path: Folder, expected: Mapping[str, bytes], shape: str
) -> None:
    """The same values as other elements, each form mixed with each other one."""
    write_rows(SHAPES[shape](ROWS), tmp_path / "out", bundles=2, **SHARDED)
    assert bytes_of(tmp_path / "out") == expected


def both_ways(
    rows: Sequence[Any], folder: Folder, **settings: Any
) -> list[dict[str, Any]]:
    """Returns the examples of rows, which are equal in three orders and bundlings."""
    write_rows(rows, folder / "one", **settings)
    first = bytes_of(folder / "one")
    write_rows(rows[::-1], folder / "two", **settings)
    assert bytes_of(folder / "two") == first
    write_rows(shuffled(rows), folder / "three", bundles=5, **settings)
    assert bytes_of(folder / "three") == first
    return examples(*sorted((folder / "one").glob("*.tfrecord-*")))


@pytest.mark.stress
@pytest.mark.parametrize("values", sizes(5, 1))
def test_collisions(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch, values: int
) -> None:
    """Rows of equal hash are ordered by their records; only equal rows are equal."""

    def few(
        rows: pa.RecordBatch, names: Sequence[str], *, images: bool
    ) -> npt.NDArray[np.uint64]:
        return content_hashes(rows, names, images=images) % np.uint64(values)

    monkeypatch.setattr(typed_rows, "content_hashes", few)
    rows = [
        {
            **row,
            "image": image_bytes(number % 251),
            "data": bytes([number % 256, 255]),
        }
        for number, row in enumerate(ROWS[:300])
    ]
    found = both_ways(rows, tmp_path, label="kind", num_shards=3)
    assert len(found) == 300
    named = [beam.Row(**row) for row in rows]
    write_rows(named, tmp_path / "named", label="kind", num_shards=3)
    assert bytes_of(tmp_path / "named") == bytes_of(tmp_path / "one")


@pytest.mark.stress
def test_collisions_of_keys(tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are compared and not their hashes: different ones may collide."""

    def few(*arguments: Any, **options: Any) -> npt.NDArray[np.uint64]:
        return hash_texts(*arguments, **options) % np.uint64(3)

    monkeypatch.setattr(hashes, "hash_texts", few)
    rows = [{"id": f"key {n}", "x": n % 2} for n in range(200)]
    assert len(both_ways(rows, tmp_path, key="id", num_shards=2)) == 200


def test_one_row_many_times(tmp_path: Folder) -> None:
    """Equal rows are equal records, as many as there were; a note names their shard."""
    rows = [{"a": 1, "b": "x"}] * 1_000 + [{"a": n, "b": "y"} for n in range(100)]
    found = both_ways(rows, tmp_path, num_shards=8)
    assert len(found) == 1_100
    (note,) = manifest(tmp_path / "one")["run"]["notes"]
    assert "of 1,100 rows" in note
