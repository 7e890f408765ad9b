"""The examples of images and Kubernetes, and the page about them, as they are written.

The Flink, the pool and the images of all tests here come from these files, too.
"""

import dataclasses
import shlex

import pytest

from tests.clusters.elsewhere.conftest import Local
from tests.clusters.elsewhere.containers import Container, containers
from tests.clusters.elsewhere.images import given
from tests.clusters.elsewhere.machines import Machine
from tests.clusters.elsewhere.sites import Site
from tests.storage.conftest import Server
from tests.storage.program import assert_same
from tests.support.pages import ELSEWHERE, PAGES, blocks_of

COMMANDS = [
    shlex.split(line)
    for page in PAGES
    for block in blocks_of(page)
    if block.language == "sh" and block.word == ELSEWHERE
    for line in block.text.replace("\\\n", " ").splitlines()
]


@pytest.fixture(scope="module")
def bucket(site: Site) -> Server:
    """The bucket that the examples name, with images."""
    store = dataclasses.replace(site.store, bucket="my-bucket")
    store.arrow(allow_bucket_creation=True).create_dir(store.bucket)
    for key in site.store.keys("raw/photos/"):
        if not key.endswith("/"):
            store.write(key.removeprefix("raw/"), site.store.read(key))
    return store


@pytest.fixture(scope="module")
def machine(site: Site) -> Machine:
    """One that has the image alone, to submit from."""
    return site.machine("submitter", given(site.image))


@pytest.fixture(scope="module")
def convert(site: Site) -> Container:
    """The container that submits."""
    return containers("convert.yaml", site.addresses())["convert"]


def check(
    site: Site, machine: Machine, container: Container, bucket: Server, local: Local
) -> None:
    """Runs a container to its end; its last argument but flags is the output."""
    process = site.start(machine, container)
    assert process.wait(300) == 0, site.logs()
    outputs = [each for each in container.command if f"{bucket.url}/sets/" in each]
    assert_same(bucket, outputs[0].removeprefix(f"{bucket.url}/"), local("images"))


def test_the_job_of_kubernetes(
    site: Site,
    pool: object,
    flink_elsewhere: None,
    machine: Machine,
    convert: Container,
    bucket: Server,
    local: Local,
) -> None:
    """It commits the dataset of a local run."""
    check(site, machine, convert, bucket, local)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_commands_of_the_pages(
    command: list[str],
    site: Site,
    pool: object,
    flink_elsewhere: None,
    machine: Machine,
    convert: Container,
    bucket: Server,
    local: Local,
) -> None:
    """Each does what it says, in the image and with the Job's variables."""
    said = dataclasses.replace(convert, command=tuple(command), arguments=())
    check(site, machine, said, bucket, local)
