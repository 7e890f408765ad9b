"""One digest over hash seeds, workers, runners, segments, locales and time zones."""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.conftest import Headline
from tests.support.golden_datasets import (
    GOLDEN_MEASURES,
    GOLDEN_PETS,
    MEASURES_OPTIONS,
    PETS_OPTIONS,
    digests,
    measures,
    pets,
)
from tests.support.outputs import contents, dataset
from tests.support.segments import IN_FILES, IN_MEMORY

Folder = pathlib.Path

# "random" is what Python does when nothing is said.
HASH_SEEDS = ("0", "1", "4242", "random")
# One runs in the process itself, more under the runner for many processes.
WORKERS = (1, 2, 4)
SEGMENTS = (IN_MEMORY, IN_FILES)
# What is not installed counts too: the program must not stumble over it.
PLACES = (
    {"LC_ALL": "C", "LANG": "C", "TZ": "America/New_York"},
    {"LC_ALL": "C.UTF-8", "TZ": "UTC"},
    {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Asia/Kathmandu"},
    {"LC_ALL": "de_DE.UTF-8", "LC_NUMERIC": "de_DE.UTF-8", "TZ": "Europe/Berlin"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "1", "TZ": "Pacific/Apia"},
    {"LC_ALL": "ko_KR.EUC-KR", "PYTHONUTF8": "1", "TZ": "Asia/Seoul"},
)
ALL = tuple(
    (*chosen, PLACES[number // 4 % len(PLACES)])
    for number, chosen in enumerate(itertools.product(HASH_SEEDS, WORKERS, SEGMENTS))
)
# Two that differ in every value; `make stress` takes them all.
FEW = (0, 21)
COMBINATIONS = [
    pytest.param(each, marks=() if number in FEW else pytest.mark.stress)
    for number, each in enumerate(ALL)
]

PROGRAM = """
import json, sys
from beam_pipeline.cli import main
from tests.support.segments import decide
if __name__ == "__main__":
    decide(sys.argv[2])
    for arguments in json.loads(sys.argv[1]):
        try:
            main([str(each) for each in arguments])
        except SystemExit as stop:
            if stop.code:
                raise
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    folder = tmp_path_factory.mktemp("source")
    pets(folder / "pets")
    measures(folder / "measures.csv")
    return folder


@pytest.mark.parametrize(
    "combination", COMBINATIONS, ids=lambda c: f"{c[0]} {c[1]} {c[2]} {c[3]['LC_ALL']}"
)
def test_fault_134_136_one_digest(
    combination: tuple[str, int, str, dict[str, str]],
    source: Folder,
    tmp_path: Folder,
    headline: Headline,
) -> None:
    """Every committed file is the same, of a table and of a tree of images."""
    seed, workers, where, place = combination
    options = ("--workers", workers)
    jobs = [
        ["convert", source / name, tmp_path / name, *settings, *options]
        for name, settings in (
            ("pets", PETS_OPTIONS),
            ("measures.csv", MEASURES_OPTIONS),
        )
    ]
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(jobs, default=str), where],
        env={**os.environ, "PYTHONHASHSEED": seed, **place},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert digests(tmp_path / "pets") == GOLDEN_PETS
    assert digests(tmp_path / "measures.csv") == GOLDEN_MEASURES
    # The digests are of these: nothing else was committed but the catalogue.
    catalogue = {f"catalogue/{name}-00000-of-00001.pq" for name in ("train", "test")}
    names = contents(tmp_path / "pets").keys() | {"manifest.json"}
    assert names == GOLDEN_PETS.keys() | catalogue
    found = [dataset(tmp_path / name)["digest"] for name in ("pets", "measures.csv")]
    text = " and ".join(digest[:12] for digest in found)
    headline("H7", f"{{}} combinations, 1 digest of each dataset: {text}", 1)
