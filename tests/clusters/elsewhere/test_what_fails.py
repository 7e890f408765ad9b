"""Set-ups that cannot work: refused early, in words that name the cause."""

import pathlib
import shutil
import time

import pytest

from beam_pipeline.version import __version__
from tests.clusters.elsewhere.engine_machines import flags_of
from tests.clusters.elsewhere.images import AT, PATH, given, link, program_image
from tests.clusters.elsewhere.machines import stop
from tests.clusters.elsewhere.sites import Site
from tests.storage.program import Done

Folder = pathlib.Path

_POOL = "localhost:50020"
WITHOUT_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
on_both = pytest.mark.parametrize("engine", ["prism", "flink_elsewhere"], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """An engine that runs, by its name."""
    request.getfixturevalue(request.param)
    return str(request.param).partition("_")[0]


def failed(
    site: Site, engine: str, source: str, name: str, code: int, *flags: str
) -> Done:
    """Runs a conversion that fails in a worker; nothing is committed."""
    done = site.submitter(within=engine == "prism").run(
        *("convert", f"{site.store.url}/raw/{source}", f"{site.store.url}/out/{name}"),
        *(*flags, *flags_of(engine, site, _POOL)),
        code=code,
    )
    assert "manifest.json" not in str(site.store.keys(f"out/{name}/"))
    return done


def test_workers_without_keys(site: Site, prism: None) -> None:
    """The message names the worker's host and the variables that it lacks."""
    with site.running_pool(_POOL, environment=WITHOUT_KEYS):
        done = failed(site, "prism", "few.csv", "no-keys", 1)
    last = done.err.strip().splitlines()[-1]
    assert site.workers.name in last
    assert "AWS_ACCESS_KEY_ID" in last


@on_both
def test_workers_without_the_program(site: Site, engine: str, tmp_path: Folder) -> None:
    """Beam's own pool, in an image that lacks it; the message says what to install.

    In about half of its attempts, and in most on a busy machine, Flink waits for three
    minutes for the worker to take data, and does not see the error that it has sent.
    """
    image = tmp_path / "image"
    shutil.copytree(site.image, image, symlinks=True, copy_function=link)
    for name in ("beam_pipeline", "transforms", "beam_tfrecord*"):
        for path in image.glob(f"lib/python*/site-packages/{name}"):
            shutil.rmtree(path)
    machine = site.machine("bare", {**given(site.image), AT: image})
    module = "apache_beam.runners.worker.worker_pool_main"
    port = _POOL.partition(":")[2]
    begin = [f"{AT}/bin/python", "-m", module, f"--service_port={port}"]
    variables = {"PATH": PATH, "HOME": "/tmp/home"}
    pool = machine.start(begin, variables, site.log("bare"))
    try:
        site.until_listening(_POOL, pool)
        done = failed(site, engine, "few.csv", f"bare-{engine}", 1)
    finally:
        stop(pool)
    last = done.err.strip().splitlines()[-1]
    assert f"Every worker must have beam-tfrecord {__version__}" in last
    assert f"pip install 'beam-tfrecord=={__version__}'" in last


@on_both
def test_workers_without_the_client_of_the_store(
    site: Site, hidden: list[Folder], wheels: Folder, tmp_path: Folder, engine: str
) -> None:
    """They could not write on a condition; the message says what to install."""
    image = tmp_path / "image"
    program_image(image, wheels, hidden, extras="[heif]")
    with site.running_pool(_POOL, machine=site.machine("plain", given(image))):
        done = failed(site, engine, "few.csv", f"plain-{engine}", 1)
    last = done.err.strip().splitlines()[-1]
    assert "'plain'" in last
    assert "pip install 'beam-tfrecord[s3]==" in last


@on_both
def test_a_disk_that_is_not_shared(site: Site, engine: str) -> None:
    """What --shared-output claims is checked; what is not visible is no reject."""
    here, few = site.side / "labels.csv", f"{site.store.url}/raw/few.csv"
    flags = ("--shared-output", *flags_of(engine, site, _POOL))
    with site.running_pool(_POOL):
        for source, output in (
            (here, f"{site.store.url}/out/shared"),
            (few, site.side / "shared"),
        ):
            done = site.submitter(within=engine == "prism").run(
                "convert", source, output, *flags, code=1
            )
            last = done.err.strip().splitlines()[-1]
            assert str(site.side) in last
            assert "not visible" in last
            assert repr(site.workers.name) in last
    assert not (site.side / "shared").exists()


def test_a_table_that_names_an_image_of_the_submitter(site: Site, prism: None) -> None:
    """The worker that reads its row refuses it, and names both."""
    local = site.side / "local.jpg"
    shutil.copy(site.side.parent / "flat" / "000.jpg", local)
    rows = [f"{local if n == 28 else 'flat/000.jpg'},a" for n in range(40)]
    site.store.write("raw/local.csv", "\n".join(["path,label", *rows, ""]).encode())
    with site.running_pool(_POOL):
        done = failed(site, "prism", "local.csv", "local", 1)
    last = done.err.strip().splitlines()[-1]
    assert str(local) in last
    assert "row 29 of local.csv" in last


def test_too_many_rejects_on_flink(site: Site, flink_elsewhere: None) -> None:
    """The job ends at the first refusal, though a hundred attempts are allowed."""
    begun = time.monotonic()
    with site.running_pool(_POOL):
        done = site.submitter().run(
            *("convert", f"{site.store.url}/raw/bad.csv"),
            *(f"{site.store.url}/out/refused", "--max-reject-rate=0"),
            *flags_of("flink", site, _POOL),
            code=3,
        )
    assert time.monotonic() - begun < 45
    assert "--max-reject-rate" in done.err
