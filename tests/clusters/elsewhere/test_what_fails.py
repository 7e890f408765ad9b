"""Set-ups that cannot work: refused early, in words that name the cause."""

import contextlib
import pathlib
import re
import shutil
import signal
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from beam_pipeline.version import __version__
from tests.clusters.elsewhere.engine_machines import flags_of
from tests.clusters.elsewhere.images import AT, PATH, given, link, program_image
from tests.clusters.elsewhere.machines import stop
from tests.clusters.elsewhere.sites import POOL, Site
from tests.storage.program import Done, until

Folder = pathlib.Path

_POOL = "localhost:50020"
_BEAMS = ("--", "--environment_type=EXTERNAL", f"--environment_config={POOL}")
_PRISM = ("--runner=prism", *_BEAMS)
# Of Flink, which is not asked before a job is refused.
_FAR = ("--runner=flink", "--flink-master=10.77.0.9:8081")
_NEAR = ("--runner=flink", "--flink-master=localhost:9", *_BEAMS)
WITHOUT_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
on_both = pytest.mark.parametrize("engine", ["prism", "flink_elsewhere"], indirect=True)
before_planning = pytest.mark.parametrize(
    "engine", [_PRISM, _NEAR], ids=["prism", "flink"]
)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """An engine that runs, by its name."""
    request.getfixturevalue(request.param)
    return str(request.param).partition("_")[0]


def refused(site: Site, *arguments: str) -> str:
    """Returns the one line by which the program refuses a job."""
    done = site.submitter(within=True).run("convert", *arguments, code=2)
    (line,) = done.err.strip().splitlines()
    return line


def test_nobody_starts_the_workers(site: Site, prism: None) -> None:
    """Both ways to start workers there are named before a disk that all share."""
    raw, out = f"{site.store.url}/raw/few.csv", f"{site.store.url}/out/nobody"
    said = refused(site, raw, out, *_FAR)
    assert said.index("=EXTERNAL") < said.index("=PROCESS") < said.index("TMPDIR")


@before_planning
def test_local_paths(site: Site, engine: tuple[str, ...]) -> None:
    """Source, output and the folder of images are refused before anything is read."""
    few, out = f"{site.store.url}/raw/few.csv", f"{site.store.url}/out/paths"
    here = str(site.side / "labels.csv")
    photos = str(site.folder / "flat")
    images = ("--image-columns", "image", "--images-root", photos)
    for arguments, what in (
        ((here, out), here),
        ((photos, out), photos),
        ((few, str(site.side / "out")), str(site.side / "out")),
        ((f"{site.store.url}/raw/table.csv", out, *images), photos),
    ):
        said = refused(site, *arguments, *engine)
        assert what in said
        assert "are elsewhere" in said


@before_planning
def test_local_images_in_a_table(site: Site, engine: tuple[str, ...]) -> None:
    """The row is named; nothing is lost within the tolerance of rejects."""
    image = sorted((site.folder / "flat").iterdir())[0]
    rows = site.store.read("raw/table.csv").decode().splitlines()
    rows[7] = f"{image},circle"
    site.store.write("raw/mixed.csv", ("\n".join(rows) + "\n").encode())
    source, out = f"{site.store.url}/raw/mixed.csv", f"{site.store.url}/out/mixed"
    said = refused(site, source, out, "--image-columns", "image", *engine)
    assert str(image) in said
    assert "row 7 of" in said


def test_a_pool_on_another_host(site: Site, prism: None) -> None:
    """It would wait for ever: the engine gives it loopback addresses."""
    few, out = f"{site.store.url}/raw/few.csv", f"{site.store.url}/out/host"
    said = refused(site, few, out, *flags_of("prism", site, "flink:50000"))
    assert "'flink'" in said
    assert "localhost:50000" in said


def test_no_job_server(site: Site, prism: None) -> None:
    """It is named at once."""
    few, out = f"{site.store.url}/raw/few.csv", f"{site.store.url}/out/server"
    server = "--job-endpoint=localhost:9"
    said = refused(site, few, out, *_FAR, server, *_BEAMS)
    assert "'localhost:9'" in said


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


def test_no_pool(site: Site, prism: None) -> None:
    """Prism says at once that nothing listens there."""
    done = failed(site, "prism", "few.csv", "no-pool", 1)
    assert "refused" in done.err


def test_workers_without_keys(site: Site, prism: None) -> None:
    """The message names the worker's host and the variables that it lacks."""
    with site.running_pool(_POOL, environment=WITHOUT_KEYS):
        done = failed(site, "prism", "few.csv", "no-keys", 1)
    last = done.err.strip().splitlines()[-1]
    assert site.workers.name in last
    assert "AWS_ACCESS_KEY_ID" in last


@on_both
def test_workers_of_another_version(site: Site, engine: str, tmp_path: Folder) -> None:
    """They stop before they touch data; the message names both versions."""
    image = tmp_path / "image"
    shutil.copytree(site.image, image, symlinks=True, copy_function=link)
    (version,) = image.glob("lib/python*/site-packages/beam_pipeline/version.py")
    # It is a link to that of the image.
    text = re.sub(r'"[0-9.]+"', '"0.0.9"', version.read_text())
    version.unlink()
    version.write_text(text)
    machine = site.machine("older", {**given(site.image), AT: image})
    with site.running_pool(_POOL, machine=machine):
        done = failed(site, engine, "few.csv", f"older-{engine}", 1)
    last = done.err.strip().splitlines()[-1]
    assert "0.0.9 and not" in last
    assert "pip install" in last


@on_both
def test_workers_without_the_program(site: Site, engine: str, tmp_path: Folder) -> None:
    """Beam's own pool, in an image that lacks it; the message says what to install.

    In about half of its attempts Flink waits for three minutes for the worker to
    connect, before it takes the error that the worker has sent.
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
    """What --shared-output claims is checked; what is not visible is no reject.

    Workers that do not see the output have no place for a report there, either: then
    the engine's own account of the failure is read.
    """
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


def test_too_many_rejects_on_flink(site: Site, flink_elsewhere: None) -> None:
    """The job ends at the first refusal, though a hundred attempts are allowed."""
    begun = time.monotonic()
    with site.running_pool(_POOL):
        process = site.submitter().started(
            *("convert", f"{site.store.url}/raw/bad.csv"),
            *(f"{site.store.url}/out/refused", "--max-reject-rate=0"),
            *flags_of("flink", site, _POOL),
        )
        work = "out/.refused.beam-tfrecord/"
        until(
            lambda: (
                process.poll() is not None or ".failure" in str(site.store.keys(work))
            )
        )
        reported = time.monotonic()
        done = site.submitter().ended(process)
    assert done.code == 3
    assert time.monotonic() - reported < 20
    assert time.monotonic() - begun < 45
    assert "--max-reject-rate" in done.err


def test_no_pool_on_flink(site: Site, flink_elsewhere: None) -> None:
    """Flink tries again and again; who waits is told what to check, and stops it."""
    process = site.submitter().started(
        *("convert", f"{site.store.url}/raw/few.csv"),
        f"{site.store.url}/out/no-pool-flink",
        *flags_of("flink", site, "localhost:50029"),
    )
    time.sleep(75)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    done = site.submitter().ended(process)
    assert done.code == 130
    assert "a pool at localhost:50029 runs on each of its machines" in done.err


@contextlib.contextmanager
def forwarded(host: str, port: int) -> Iterator[str]:
    """Forwards a port of this machine to another's, as kubectl does; gives its name."""

    def copy(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, port)) as there:
                back = threading.Thread(target=copy, args=(there, self.request))
                back.start()
                copy(self.request, there)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"localhost:{server.server_address[1]}"
        server.shutdown()


def test_a_flink_behind_a_forwarded_port(site: Site, flink_elsewhere: None) -> None:
    """Its address is loopback, but its machines do not see what starts workers."""
    few, out = f"{site.store.url}/raw/few.csv", f"{site.store.url}/out/forwarded"
    with forwarded(site.network.there, 8081) as master:
        flags = ("--runner=flink", f"--flink-master={master}")
        done = site.submitter().run("convert", few, out, *flags, code=2)
    last = done.err.strip().splitlines()[-1]
    assert "must see the file that starts them" in last
    assert "=EXTERNAL" in last
    assert "TMPDIR" in last
    assert site.store.keys("out/forwarded/") == []


def test_flink_without_keys_says_so_soon(site: Site, flink_elsewhere: None) -> None:
    """Whatever Flink's restart strategy is: a hundred attempts are allowed."""
    begun = time.monotonic()
    with site.running_pool(_POOL, environment=WITHOUT_KEYS):
        done = failed(site, "flink", "few.csv", "flink-no-keys", 1)
    assert time.monotonic() - begun < 45
    last = done.err.strip().splitlines()[-1]
    assert site.workers.name in last
    assert "AWS_ACCESS_KEY_ID" in last
