"""Other stores, keys and ways to start workers; what workers open and leave."""

import dataclasses
import json
import pathlib
import re
import shutil

import pytest

from tests.clusters.elsewhere.cases import CASES
from tests.clusters.elsewhere.conftest import Local
from tests.clusters.elsewhere.engine_machines import flags_of
from tests.clusters.elsewhere.images import AT
from tests.clusters.elsewhere.sites import Site, served
from tests.storage.conftest import with_bucket
from tests.storage.program import assert_same

Folder = pathlib.Path

WITHOUT_KEYS = {
    "AWS_ACCESS_KEY_ID": "",
    "AWS_SECRET_ACCESS_KEY": "",
    "AWS_ENDPOINT_URL": "",
    "AWS_REGION": "",
}
_OPENED = re.compile(r'\b(?:open|openat|openat2|creat)\([^"]*"([^"]*)"([^=\n]*)')
_WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT")


def test_keys_of_the_paths_alone(site: Site, prism: None, local: Local) -> None:
    """Neither the submitter nor the pool has variables of the store."""
    with site.running_pool("localhost:50001", environment=WITHOUT_KEYS):
        site.submitter(within=True, **WITHOUT_KEYS).run(
            "convert",
            site.store.place("raw/rows.csv"),
            site.store.place("out/keys"),
            *CASES["rows"].flags,
            *flags_of("prism", site, "localhost:50001"),
        )
    assert_same(site.store, "out/keys", local("rows"))


def test_flink_starts_the_workers(
    site: Site, flink_elsewhere: None, local: Local
) -> None:
    """From its own image, which has the program; a second run finds it up to date."""
    flags = flags_of("flink", site)
    config = {
        "command": f"{AT}/bin/beam-tfrecord-worker",
        "env": dict(site.store.environment),
    }
    pool = flags.index("--") + 1
    flags[pool : pool + 2] = [
        "--environment_type=PROCESS",
        f"--environment_config={json.dumps(config)}",
    ]
    arguments = ("convert", f"{site.store.url}/raw/rows.csv")
    output = f"{site.store.url}/out/command"
    run = (*arguments, output, *CASES["rows"].flags, *flags)
    site.submitter().run(*run)
    assert_same(site.store, "out/command", local("rows"))
    assert "up to date" in site.submitter().run(*run).out


@pytest.mark.parametrize("title", ["rows", "images"])
def test_googles_store_gives_the_same(
    title: str, site: Site, data: Folder, prism: None, local: Local
) -> None:
    """Its emulator is where the bucket is."""
    folder = site.folder / f"gcs-{title}"
    with served("gcs", folder, site.network.here) as state:
        store = with_bucket(state, "elsewhere")
        store.write("raw/rows.csv", (data / "rows.csv").read_bytes())
        if title == "images":
            store.write_tree("raw/photos", data / "sample" / "photos")
        of_google = dataclasses.replace(site, store=store)
        with of_google.running_pool("localhost:50002"):
            CASES[title].run(
                of_google.submitter(within=True),
                of_google,
                f"gcs-{title}",
                f"{store.url}/out/{title}",
                *flags_of("prism", site, "localhost:50002"),
            )
        assert_same(store, f"out/{title}", local(title))


def test_workers_open_nothing_of_the_submitter(
    site: Site, prism: None, local: Local
) -> None:
    """Not even a name below its folders, found or not; they write below /tmp alone."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not on the PATH")
    trace = "/tmp/trace"
    by = [
        "strace",
        "--follow-forks",
        "--seccomp-bpf",
        "--trace=%file",
        f"--output={trace}",
    ]
    titles = ["labels of the submitter", "spec and vocabulary of the submitter"]
    with site.running_pool("localhost:50003", by):
        for title in titles:
            CASES[title].run(
                site.submitter(within=True),
                site,
                f"traced-{title.partition(' ')[0]}",
                f"{site.store.url}/out/traced-{title.partition(' ')[0]}",
                *flags_of("prism", site, "localhost:50003"),
            )
    lines = site.workers.shell(f"cat {trace}; rm {trace}")
    opened = _OPENED.findall(lines)
    assert any(name.startswith(AT) for name, _ in opened)
    of_submitter = [str(site.folder), *map(str, site.own_folders)]
    assert not [each for each in of_submitter if each in lines]
    written = {name for name, flags in opened if _WRITING.search(flags)}
    assert not {name for name in written if not re.match("/(tmp|dev|proc)(/|$)", name)}
    assert site.workers.files() == []
