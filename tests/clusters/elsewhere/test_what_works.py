"""Conversions on engines whose workers see no disk of the submitter."""

import pytest

from tests.clusters.elsewhere.cases import CASES
from tests.clusters.elsewhere.conftest import Local
from tests.clusters.elsewhere.engine_machines import flags_of
from tests.clusters.elsewhere.sites import Site
from tests.storage.program import assert_same

FIRST = list(CASES)[:5]


def check(site: Site, engine: str, title: str, local: Local) -> None:
    """Runs a case on an engine, and compares it with the local run of the same."""
    name = f"{engine}-{title.replace(' ', '-')}"
    output = f"{site.store.url}/out/{name}"
    submitter = site.submitter(within=engine == "prism")
    CASES[title].run(submitter, site, name, output, *flags_of(engine, site))
    assert_same(site.store, f"out/{name}", local(title))
    lock = site.side / "own" / name / "rows.lock"
    if lock.exists():
        here = site.side / "own" / f"local-{title.replace(' ', '-')}" / "rows.lock"
        assert lock.read_bytes() == here.read_bytes()


@pytest.mark.parametrize("title", CASES)
def test_prism_gives_the_same(
    title: str, site: Site, pool: object, prism: None, local: Local
) -> None:
    """The bytes of a local run, and nothing else in the store."""
    check(site, "prism", title, local)


@pytest.mark.parametrize("title", CASES)
def test_flink_gives_the_same(
    title: str, site: Site, pool: object, flink_elsewhere: None, local: Local
) -> None:
    """Likewise, with Flink in containers, and a job server that runs already."""
    check(site, "flink", title, local)


@pytest.mark.parametrize("title", FIRST)
def test_spark_gives_the_same(
    title: str, site: Site, pool: object, spark_elsewhere: None, local: Local
) -> None:
    """Likewise, with Spark."""
    check(site, "spark", title, local)


def test_disks_are_empty(site: Site) -> None:
    """Nothing of all these runs is left on the workers' machine."""
    assert site.workers.files() == []
