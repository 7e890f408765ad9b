"""The commands and programs of the README and the docs, run as they are there."""

import importlib
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from beam_pipeline.settings.options import SETTINGS
from tests.support.page_sources import write_everything
from tests.support.pages import PAGES, ROOT, blocks_of, packages_of, run_page
from transforms.formats.registry import FORMATS

sys.path.insert(0, str(ROOT / "docs"))
code_parts = importlib.import_module("code_parts")
PARTS = code_parts.PARTS
PART_IN_PAGE: re.Pattern[str] = code_parts.PART_IN_PAGE


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a source of every kind."""
    folder = tmp_path_factory.mktemp("sources")
    write_everything(folder)
    return folder


@pytest.mark.parametrize("page", [page for page in PAGES if blocks_of(page)])
def test_every_block_works(
    page: str, sources: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The blocks of a page succeed in order, in a folder that has the sources alone."""
    if packages_of(page):
        pytest.importorskip("tensorflow")
        pytest.importorskip("tensorflow_datasets")
    folder = tmp_path / "page"
    shutil.copytree(sources, folder)
    run_page(page, folder)


def test_links_name_pages_that_exist() -> None:
    """The README's relative links lead to files; Sphinx checks those of the docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


def pages_of(name: str) -> list[str]:
    """Returns the pages with this part of the reference."""
    return [page for page in PAGES if f"<!-- from the code: {name} -->" in read(page)]


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", [page for page in PAGES if PART_IN_PAGE.search(read(page))]
)
def test_the_reference_says_what_the_code_does(page: str) -> None:
    """`python docs/code_parts.py` writes what has changed in the code."""
    assert code_parts.with_parts(read(page)) == read(page)


@pytest.mark.parametrize("name", sorted(PARTS))
def test_the_code_says_every_part_of_the_reference(name: str) -> None:
    """A part has no empty cell where the code must say what something is."""
    text = PARTS[name]()
    assert len(pages_of(name)) == 1
    assert text.strip()
    assert not re.search(r"\| +\| *$", text.replace("| |", "|")), name


def keys_of(value: object) -> set[str]:
    """Returns the names of fields in JSON; names of features and the like are none."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    return set(value) if isinstance(value, dict) else set()


def test_every_field_is_documented(
    sources: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The pages of the manifest and the report name the fields of real ones."""
    output, path = tmp_path / "out", tmp_path / "report.json"
    command = (
        "convert",
        str(sources / "photos"),
        str(output),
        "--report-json",
        str(path),
    )
    subprocess.run(
        [sys.executable, "-m", "beam_pipeline", *command, "--quiet"],
        cwd=ROOT,
        check=True,
    )
    manifest = json.loads((output / "manifest.json").read_text())
    dataset = manifest["dataset"]
    fields = keys_of([manifest, dataset, manifest["run"], dataset["account"]])
    for name in ("features", "splits", "files"):
        fields |= keys_of(dataset[name])
    fields |= keys_of([shard for s in dataset["splits"] for shard in s["shards"]])
    # What declares a feature is on the page of its options, but for these.
    fields -= {"derived", "is_label", "derived_from"}
    assert not {f for f in fields if f"`{f}`" not in read("docs/reference/manifest.md")}
    report = keys_of(json.loads(path.read_text()))
    assert not {f for f in report if f"`{f}`" not in read("docs/reference/results.md")}


def test_the_reference_has_every_setting() -> None:
    """One row each, with its option, default and formats."""
    rows = {
        line.split("`")[1]: line
        for line in PARTS["settings"]().splitlines()
        if line.startswith("| `")
    }
    assert set(rows) == set(SETTINGS)
    for name in SETTINGS.keys() - {"source", "output", "features"}:
        assert all(f"`{flag}" in rows[name] for flag in SETTINGS[name].flags.split("/"))
    assert "| CSV, archives | CSV: remove spaces" in rows["trim"]
    assert "[keep]" in rows["trim"]
    assert r"`--exif keep\|apply`" in rows["exif"]
    assert "`--seed N`" in rows["seed"]
    assert "tables, also of --labels" in rows["label_column"]
    assert all(name in rows["format"] for name in FORMATS)
