"""Pools that are killed, and jobs that are stopped; what the next run makes of them."""

import json
import pathlib
import subprocess
import time
import urllib.request
from typing import Any

import pytest

from tests.clusters.elsewhere.engine_machines import flags_of
from tests.clusters.elsewhere.images import given
from tests.clusters.elsewhere.machines import Machine, kill
from tests.clusters.elsewhere.sites import Site
from tests.storage.program import assert_same, until

Folder = pathlib.Path

# Many blocks, so that there is a middle of the job.
_ROWS = 1_500_000
_FLAGS = ("--shards", "4")
_POOL = "localhost:50010"
_OTHER_POOL = "localhost:50011"


@pytest.fixture(scope="module")
def long_source(site: Site) -> str:
    """Rows that take some seconds."""
    lines = (f"{n},name {n * 7919 % 1009},{n / 8}\n" for n in range(_ROWS))
    text = "number,name,share\n" + "".join(lines)
    site.store.write("raw/long.csv", text.encode())
    return f"{site.store.url}/raw/long.csv"


@pytest.fixture(scope="module")
def expected(site: Site, long_source: str) -> Folder:
    """What a local run makes of them."""
    output = site.folder / "local" / "long"
    site.submitter().run("convert", long_source, output, *_FLAGS)
    return output


@pytest.fixture(scope="module")
def lossy(site: Site) -> Machine:
    """The machine of the pools that are killed."""
    return site.machine("lossy", given(site.image))


def kept(site: Site, name: str, folder: str) -> list[str]:
    """Returns the files that a run has put into a folder of its work so far."""
    keys = site.store.keys(f"out/.{name}.beam-tfrecord/")
    return [key for key in keys if f"/{folder}/" in key and not key.endswith("/")]


def jobs_of(site: Site, name: str) -> list[dict[str, str]]:
    """Returns the jobs of Flink whose names begin so."""
    with asked(site, "jobs/overview") as answer:
        found = json.load(answer)["jobs"]
    return [job for job in found if job["name"].startswith(f"{name}-")]


def cancel(site: Site, job: str) -> None:
    """Cancels a job of Flink."""
    asked(site, f"jobs/{job}?mode=cancel", "PATCH").close()


def asked(site: Site, path: str, method: str = "GET") -> Any:
    """Returns the answer of Flink's REST interface."""
    url = f"http://{site.network.there}:8081/{path}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(urllib.request.Request(url, method=method), timeout=10)


def begun(site: Site, source: str, name: str) -> "subprocess.Popen[str]":
    """Starts a run on Flink, and returns it in the middle of its job."""
    process = site.submitter().started(
        *("convert", source, f"{site.store.url}/out/{name}", *_FLAGS),
        *flags_of("flink", site, _POOL),
    )
    # A run that ends keeps the segments that a receipt names.
    until(lambda: process.poll() is not None or kept(site, name, "receipts"))
    assert process.poll() is None, process.communicate()
    return process


def test_flink_goes_on_with_a_new_pool(
    site: Site,
    lossy: Machine,
    flink_elsewhere: None,
    long_source: str,
    expected: Folder,
) -> None:
    """The same job ends well, after Flink has restarted it."""
    with site.running_pool(_POOL, machine=lossy) as pool:
        process = begun(site, long_source, "replaced")
        kill(pool)
        # A pod takes some seconds to start again.
        time.sleep(6)
        with site.running_pool(_POOL, machine=lossy):
            done = site.submitter().ended(process)
        assert done.code == 0, done.err
    assert_same(site.store, "out/replaced", expected)


def test_a_job_without_its_submitter(
    site: Site,
    lossy: Machine,
    flink_elsewhere: None,
    long_source: str,
    expected: Folder,
) -> None:
    """Flink's job goes on and commits; the next run finds the dataset up to date."""
    with site.running_pool(_POOL, machine=lossy):
        process = begun(site, long_source, "orphan")
        process.kill()
        process.communicate()
        until(lambda: site.store.keys("out/orphan/manifest.json"))
        again = site.submitter().run(
            *("convert", long_source, f"{site.store.url}/out/orphan", *_FLAGS),
            *flags_of("flink", site, _POOL),
        )
        assert "up to date" in again.out
    assert_same(site.store, "out/orphan", expected)


def test_a_job_that_nobody_works_for(
    site: Site,
    lossy: Machine,
    flink_elsewhere: None,
    long_source: str,
    expected: Folder,
) -> None:
    """Submitter and pool are killed: the next run goes on at once with what is there.

    Flink tries the other job again until somebody ends it; it cannot publish any more.
    """
    with site.running_pool(_POOL, machine=lossy) as pool:
        process = begun(site, long_source, "left")
        process.kill()
        process.communicate()
        kill(pool)
    (left,) = jobs_of(site, "beam-tfrecord-left")
    assert left["state"] in ("RUNNING", "RESTARTING", "FAILING")
    with site.running_pool(_OTHER_POOL, machine=lossy):
        again = site.submitter().run(
            *("convert", long_source, f"{site.store.url}/out/left", *_FLAGS),
            *flags_of("flink", site, _OTHER_POOL),
        )
    assert "going on where an earlier run ended" in again.err
    assert_same(site.store, "out/left", expected)
    jobs = {job["jid"]: job["state"] for job in jobs_of(site, "beam-tfrecord-left")}
    assert jobs.pop(left["jid"]) in ("RUNNING", "RESTARTING", "FAILING")
    assert [*jobs.values()] == ["FINISHED"]
    cancel(site, left["jid"])
