"""Many small objects are read ahead side by side, and so are parts of large ones."""

import io
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.conftest import Headline
from tests.storage.conftest import Server, running, with_bucket
from tests.storage.fault_proxy import FaultProxy
from tests.storage.program import Program, assert_whole

_IMAGES = 2000
_LATENCY_SECONDS = 0.02
_ALONE = 100
_RATIO = 10
_RUNS = 6
_RECORDS = 20_000
_RECORD_BYTES = 10_000
_SHUFFLED_RATIO = 0.7
# What a loop over the images would do, from when its process has begun.
_ONE_BY_ONE = """
import sys, time
from transforms.storage.files import sizes_of, storage
folder, count = sys.argv[1], int(sys.argv[2])
storage(f"{folder}/a/00000.png").read_stamped()
begin = time.perf_counter()
for number in range(count):
    storage(f"{folder}/a/{number:05}.png").read_stamped()
print(time.perf_counter() - begin)
"""


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that keeps its connections, as real stores do."""
    for state in running(request.param, tmp_path / "server", keep_alive=True):
        yield with_bucket(state, request.node.nodeid)


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    """Twenty milliseconds away from the server, which has many images."""

    def put(number: int) -> None:
        out = io.BytesIO()
        Image.new("RGB", (16, 16), (number % 256, number // 256, 7)).save(out, "PNG")
        server.write(f"in/a/{number:05}.png", out.getvalue())

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, range(_IMAGES)))
    with FaultProxy(server.endpoint) as proxy:
        proxy.set(latency=_LATENCY_SECONDS)
        yield proxy


def test_images_are_read_ahead(
    server: Server, proxy: FaultProxy, tmp_path: Path, headline: Headline
) -> None:
    """2,000 images, with 20 ms on each request: ten times as fast as one by one."""
    # Compiled, as an installed program is; the first run compiles it.
    compiled = {
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled"),
    }
    program = Program(server.through(proxy.endpoint), tmp_path, **compiled)
    alone = subprocess.run(
        [sys.executable, "-c", _ONE_BY_ONE, f"{server.url}/in", str(_ALONE)],
        env=program.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    one_by_one = float(alone.stdout) * _IMAGES / _ALONE
    times: list[float] = []
    # The best of some: this machine may be at something else as well.
    while len(times) < _RUNS and not (times and one_by_one > _RATIO * min(times)):
        target = f"out-{len(times)}"
        begin = time.perf_counter()
        program.run("convert", f"{server.url}/in", f"{server.url}/{target}")
        times.append(time.perf_counter() - begin)
        assert assert_whole(server, target).records == _IMAGES
    seconds = min(times)
    headline(
        "H14",
        f"{server.store}, 20 ms a request: 2,000 images in {seconds:.1f} s, one by one "
        f"{one_by_one:.1f} s ({one_by_one / seconds:.1f}x)",
    )
    assert one_by_one > _RATIO * seconds


# Rounds in turn, the first of them to warm up; in a process of its own, likewise.
_SHUFFLED = """
import statistics, sys, time
import beam_tfrecord
view = beam_tfrecord.open_dataset(sys.argv[1])["train"]
mixed = view.shuffled(seed=1, run=int(sys.argv[2]))
ratios = []
for _ in range(6):
    begin = time.perf_counter()
    size = sum(map(len, view.records))
    between = time.perf_counter()
    assert sum(map(len, mixed.records)) == size
    ratios.append((between - begin) / (time.perf_counter() - between))
print(statistics.median(ratios[1:]))
"""


def test_shuffled_runs_are_read_about_as_fast_as_records_in_order(
    server: Server, tmp_path: Path, headline: Headline
) -> None:
    """20,000 records of 10 kB in runs of 8 MB: at least 0.7 of the speed in order."""
    noise = np.random.default_rng(0)
    rows = [noise.bytes(_RECORD_BYTES) for _ in range(_RECORDS)]
    source = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"data": pa.array(rows, pa.binary())}), source)
    program = Program(server, tmp_path)
    target = f"{server.url}/out"
    program.run("convert", source, target, "--splits", "train=1", "--shards", "4")
    ratios: list[float] = []
    while len(ratios) < _RUNS and max(ratios, default=0) < _SHUFFLED_RATIO:
        done = subprocess.run(
            [sys.executable, "-c", _SHUFFLED, target, str(8_000_000 // _RECORD_BYTES)],
            env=program.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        ratios.append(float(done.stdout))
    headline("H14", f"{server.store}, shuffled runs: {ratios[-1]:.2f} of the speed")
    assert max(ratios) >= _SHUFFLED_RATIO, ratios
