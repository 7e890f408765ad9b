"""Dataflow without Google: what is submitted, and that it gives the same bytes.

The program runs as a user runs it, in an environment with Beam's parts for Google
Cloud, against an emulator of Google's store and a stand-in for Dataflow's API; see
`fake_dataflow`. Jobs are run by an environment that holds what was staged, and nothing
else of this project.
"""

import contextlib
import importlib.metadata
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.clusters.conftest import write_rows
from tests.clusters.fake_dataflow import Service, fetched
from tests.clusters.google import (
    BUCKET,
    LAUNCHER,
    Google,
    environment_of_google,
    install,
    pack,
)
from tests.clusters.runs import ROOT, committed, convert, same

Folder = pathlib.Path


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Google]:
    """The store, empty, and an environment that is made once and kept."""
    folder = tmp_path_factory.mktemp("gcs")
    script = [sys.executable, str(ROOT / "scripts" / "storage"), "gcs"]
    if shutil.which("go") is None:
        pytest.skip("the store is built by Go, which is not on the PATH")
    up = subprocess.run(
        [*script, "up", str(folder)], capture_output=True, text=True, check=False
    )
    assert up.returncode == 0, up.stderr
    try:
        made = Google(environment_of_google(), json.loads(up.stdout)["endpoint"])
        made.store().create_dir(BUCKET.removeprefix("gs://"))
        yield made
    finally:
        subprocess.run([*script, "down", str(folder)], check=False)


@pytest.fixture(scope="session")
def many_rows(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """More than 8 MB of rows, which wait in files until they are written."""
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    write_rows(path, range(400_000))
    return path


@pytest.fixture(scope="session")
def rows(google: Google, many_rows: Folder) -> str:
    """The rows, in the store."""
    return google.put(many_rows, f"{BUCKET}/in/rows.csv")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The program, packed."""
    return pack(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="session")
def worker(
    google: Google, package: Folder, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """A clean environment in which the program was installed by pip."""
    return install(google, package, tmp_path_factory.mktemp("worker"))


@pytest.fixture
def service(
    google: Google, package: Folder, worker: str, tmp_path: Folder
) -> Iterator[Service]:
    """Dataflow."""
    made = Service(tmp_path, python=worker, storage=google.storage)
    made.package = package
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()


def flags_for(service: Service, source: str, output: str) -> list[str]:
    return [
        *(f"--source={source}", f"--output={output}", "--runner=dataflow", *LAUNCHER),
        *(f"--dataflow_endpoint={service.endpoint}", "--no_auth"),
        f"--extra_package={service.package}",
    ]


def test_a_job_says_what_google_gets(
    google: Google, service: Service, rows: str
) -> None:
    """Packages, threads and labels; a small graph; no session, no path of here."""
    done = google.run(
        *flags_for(service, rows, f"{BUCKET}/out/nightly"),
        *("--splits=train=0.9,test=0.1", "--overwrite=true", "--max_reject_rate=0.001"),
        *("--job_name=nightly", '--labels={"team": "vision"}', "--workers=3"),
    )
    assert done.returncode == 0, done.stderr
    (job,) = service.jobs.values()
    assert job["name"] == "nightly"
    assert job["labels"] == {"team": "vision"}
    pool = job["environment"]["workerPools"][0]
    names = [package["name"] for package in pool["packages"]]
    ours = {re.sub(r"-\d.*\.tar", ".tar", name) for name in names}
    # A list of all that is installed here goes along where Beam could make one.
    assert ours - {"submission_environment_dependencies.txt"} == {
        "beam_tfrecord.tar.gz",
        "extra_packages.txt",
    }
    assert pool["numThreadsPerWorker"] == 2
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 3
    (image,) = pool["sdkHarnessContainerImages"]
    version = importlib.metadata.version("apache-beam")
    assert image["containerImage"].endswith(f"_sdk:{version}")
    options = job["environment"]["sdkPipelineOptions"]["options"]
    graph = fetched(google.storage, options["pipelineUrl"])
    assert len(graph) < 1_000_000
    assert str(ROOT).encode() not in graph


def test_rows_are_the_same(
    google: Google, service: Service, rows: str, many_rows: Folder, tmp_path: Folder
) -> None:
    """Waited for, with segment files: committed, the bytes of here, nothing left."""
    output = f"{BUCKET}/out/rows"
    done = google.run(*flags_for(service, rows, output), "--shards=4")
    assert done.returncode == 0, done.stderr
    assert f"Created job with id: [{next(iter(service.jobs))}]" in done.stderr
    assert "committed" in done.stdout
    committed(convert(many_rows, tmp_path / "here", "--shards", "4"), tmp_path / "here")
    same(google.get(output, tmp_path / "there"), tmp_path / "here")
    assert google.names(f"{BUCKET}/out/.rows.beam-tfrecord") == []


def test_images_are_the_same(
    google: Google, service: Service, data: Folder, tmp_path: Folder
) -> None:
    """They are written by workers that share nothing with this machine."""
    photos = data / "sample" / "photos"
    output = f"{BUCKET}/out/photos"
    done = google.run(
        *flags_for(service, google.put(photos, f"{BUCKET}/in/photos"), output)
    )
    assert done.returncode == 0, done.stderr
    committed(convert(photos, tmp_path / "here"), tmp_path / "here")
    same(google.get(output, tmp_path / "there"), tmp_path / "here")
    assert google.names(f"{BUCKET}/out/.photos.beam-tfrecord") == []


def test_our_message_reaches_the_terminal(
    google: Google, service: Service, tmp_path: Folder
) -> None:
    """Too many rejects: exit 3 with our words, out of the job's own messages."""
    local = tmp_path / "bad.csv"
    lines = [f"{n},{n}{',more' * (n % 5 == 4)}\n" for n in range(1_000)]
    local.write_text("a,b\n" + "".join(lines))
    source = google.put(local, f"{BUCKET}/in/bad.csv")
    done = google.run(*flags_for(service, source, f"{BUCKET}/out/bad"))
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("error: At most 1.000% of the items may be rejected; 200 of")
    assert "manifest.json" not in google.names(f"{BUCKET}/out/bad")


def test_stopped_jobs_are_cancelled(
    google: Google, service: Service, rows: str, tmp_path: Folder
) -> None:
    """Ctrl-C ends the job there too, and nothing is published."""
    output = f"{BUCKET}/out/stopped"
    process = google.start(*flags_for(service, rows, output), "--shards=4")
    with process, _killed_at_the_end(process):
        assert process.stderr is not None
        assert "Created job with id" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    (job,) = service.jobs.values()
    assert job["currentState"] == "JOB_STATE_CANCELLED"
    assert "manifest.json" not in google.names(output)


def test_refused_job_publishes_nothing(
    google: Google, service: Service, rows: str
) -> None:
    """What Dataflow does not take ends with its words, and publishes nothing."""
    output = f"{BUCKET}/out/refused"
    done = google.run(
        *flags_for(service, rows, output),
        "--job_name=refused",
    )
    assert done.returncode == 1
    assert "the account may not" in done.stderr
    assert "Traceback" not in done.stderr
    assert google.names(output) == []


@contextlib.contextmanager
def _killed_at_the_end(process: "subprocess.Popen[str]") -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
