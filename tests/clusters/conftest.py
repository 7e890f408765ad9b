"""Real engines for tests: started once, stopped at the end.

Not part of the plain suite: `make test-clusters` runs what is here. What the engines
are made of is downloaded into the user's cache the first time.
"""

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
from clusters import notes as cluster

from tests.clusters.runs import NAME, ROOT, SCRIPT

Folder = pathlib.Path


def control(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs `scripts/cluster`."""
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="session")
def prism() -> None:
    """Prism, built."""
    if shutil.which("go") is None:
        pytest.skip("Prism is built by Go, which is not on the PATH")
    done = control("prism", "up")
    assert done.returncode == 0, done.stderr


def started(engine: str) -> Iterator[cluster.Cluster]:
    done = control(engine, "up", "--name", NAME)
    try:
        assert done.returncode == 0, done.stderr
        found = cluster.read_cluster(engine, NAME)
        assert found is not None
        yield found
    finally:
        control(engine, "down", "--name", NAME)


@pytest.fixture(scope="session")
def flink() -> Iterator[cluster.Cluster]:
    """A Flink of two task managers."""
    yield from started("flink")


@pytest.fixture(scope="session")
def spark() -> Iterator[cluster.Cluster]:
    """A Spark of two workers."""
    yield from started("spark")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Folder of `sample/photos`, and of `rows.csv` with 200,000 rows."""
    folder = tmp_path_factory.mktemp("data")
    make = [sys.executable, "-m", "beam_pipeline.sample", str(folder / "sample")]
    subprocess.run(make, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    write_rows(folder / "rows.csv", range(200_000))
    return folder


def write_rows(path: Folder, numbers: Sequence[int]) -> None:
    with path.open("w") as file:
        file.write("number,name,share\n")
        file.writelines(f"{n},name {n * 7919 % 1009},{n / 8}\n" for n in numbers)
