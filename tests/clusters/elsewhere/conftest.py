"""Machines with an image of the program, engines, and a store that both sides see."""

import functools
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.clusters.elsewhere import images
from tests.clusters.elsewhere.cases import CASES, put_data
from tests.clusters.elsewhere.engine_machines import start_flink, start_spark
from tests.clusters.elsewhere.machines import Machine, connect, stop, unable
from tests.clusters.elsewhere.sites import Site, served
from tests.clusters.runs import ROOT
from tests.storage.conftest import with_bucket

Folder = pathlib.Path
Local = Callable[[str], Folder]
"""Makes the dataset of a case by a local run, once; returns it."""


@pytest.fixture(scope="session")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> list[Folder]:
    """What only the submitter has."""
    return [ROOT, Folder(sys.prefix), tmp_path_factory.getbasetemp(), Folder.home()]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """Folder of the wheel, once an image was made."""
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture(scope="session")
def program_image(
    hidden: list[Folder], wheels: Folder, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Folder]:
    """Folder of the image that examples/image makes."""
    if why := unable():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("images") / "program"
    images.program_image(folder, wheels, hidden)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def site(
    program_image: Folder,
    hidden: list[Folder],
    data: Folder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A machine for workers, and S3 where they reach it, with sources."""
    folder = tmp_path_factory.mktemp("site")
    side = folder / "side"
    side.mkdir()
    workers = Machine("workers", hidden=hidden, given=images.given(program_image))
    try:
        network = connect(workers)
        with served("s3", folder / "s3", network.here) as state:
            store = with_bucket(state, "elsewhere")
            put_data(store, data, side)
            made = Site(folder, program_image, hidden, workers, network, side, store)
            yield made
            made.end()
    finally:
        workers.end()


@pytest.fixture(scope="session")
def pool(site: Site) -> "Iterator[subprocess.Popen[bytes]]":
    """The pool of the examples."""
    process = site.start_pool()
    yield process
    stop(process)


@pytest.fixture(scope="session")
def flink_elsewhere(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """A Flink that runs as examples/kubernetes says."""
    folder = tmp_path_factory.mktemp("images") / "flink"
    start_flink(site, folder)
    yield
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def spark_elsewhere(site: Site) -> None:
    """A Spark of one worker."""
    start_spark(site)


@pytest.fixture(scope="session")
def local(site: Site) -> Local:
    """Returns the dataset of a case that the local runner makes."""

    @functools.cache
    def made(title: str) -> Folder:
        output = site.folder / "local" / title.replace(" ", "-")
        CASES[title].run(site.submitter(), site, f"local-{output.name}", output)
        return output

    return made
