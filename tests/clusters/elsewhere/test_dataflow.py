"""Dataflow's stand-in, whose workers are on a machine of their own."""

import pathlib
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.clusters.elsewhere.cases import CASES
from tests.clusters.elsewhere.conftest import Local
from tests.clusters.elsewhere.sites import Site, served
from tests.clusters.fake_dataflow import Service
from tests.clusters.google import (
    BUCKET,
    LAUNCHER,
    Google,
    environment_of_google,
    install,
    pack,
)
from tests.clusters.runs import same

Folder = pathlib.Path

TITLES = ["split ids of the submitter", "labels of the submitter"]


@pytest.fixture(scope="module")
def google(site: Site, data: Folder) -> Iterator[Google]:
    """The store, where both the submitter and the workers reach it, with sources."""
    with served("gcs", site.folder / "dataflow", site.network.here) as state:
        made = Google(environment_of_google(), state["endpoint"])
        made.store().create_dir(BUCKET.removeprefix("gs://"))
        made.put(data / "rows.csv", f"{BUCKET}/raw/rows.csv")
        made.put(site.folder / "flat", f"{BUCKET}/raw/flat")
        yield made


@pytest.fixture(scope="module")
def service(
    site: Site, google: Google, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Dataflow: its machine has a clean environment with the program."""
    folder = tmp_path_factory.mktemp("dataflow")
    package = pack(folder)
    python = install(google, package, folder)
    libraries = Folder(google.python).parents[1]
    places = [folder, libraries, Folder(sys.base_prefix)]
    machine = site.machine("dataflow", {str(place): place for place in places})
    made = Service(folder, python=python, storage=google.storage, by=machine.inside())
    made.package = package
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield made
    made.shutdown()
    assert machine.files() == ["/tmp/hosts"]


@pytest.mark.parametrize("title", TITLES)
def test_dataflow_gives_the_same(
    title: str,
    site: Site,
    google: Google,
    service: Service,
    local: Local,
    tmp_path: Folder,
) -> None:
    """The bytes of a local run; what the submitter has travels with the job."""
    case, output = CASES[title], f"{BUCKET}/out/{title.partition(' ')[0]}"
    done = google.run(
        *(f"--source={BUCKET}/raw/{case.source}", f"--output={output}", *LAUNCHER),
        *("--runner=dataflow", f"--dataflow_endpoint={service.endpoint}", "--no_auth"),
        f"--extra_package={service.package}",
        *(each.format(side=site.side) for each in case.flags),
    )
    assert done.returncode == 0, done.stderr
    same(google.get(output, tmp_path / "there"), local(title))
    assert google.names(f"{BUCKET}/out/.{title.partition(' ')[0]}.beam-tfrecord") == []
