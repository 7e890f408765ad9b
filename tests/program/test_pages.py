"""The commands and programs of the README and the docs, run as they are there."""

import functools
import importlib
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

import pytest

from tests.support.page_sources import write_everything
from tests.support.pages import PAGES, ROOT, blocks_of, packages_of, run_page

sys.path.insert(0, str(ROOT / "docs"))
PARTS: dict[str, Callable[[], str]] = importlib.import_module("code_parts").PARTS

# A page that needs a reader's package is run with it, in `tests/readers`.
RUN_HERE = [page for page in PAGES if blocks_of(page) and not packages_of(page)]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a source of every kind."""
    folder = tmp_path_factory.mktemp("sources")
    write_everything(folder)
    return folder


@pytest.mark.parametrize("page", RUN_HERE)
def test_every_block_works(
    page: str, sources: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """The blocks of a page succeed in order, in a folder that has the sources alone."""
    folder = tmp_path / "page"
    shutil.copytree(sources, folder)
    run_page(page, folder)


def test_links_name_pages_that_exist() -> None:
    """The README's relative links lead to files; Sphinx checks those of the docs."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert targets
    assert not [target for target in targets if not (ROOT / target).exists()]


@functools.cache
def part(name: str) -> str:
    return PARTS[name]()


@pytest.mark.parametrize("name", sorted(PARTS))
def test_the_code_says_every_part_of_the_reference(name: str) -> None:
    """A part has no empty cell where the code must say what something is."""
    assert part(name).strip()
    assert not re.search(r"\| +\| *$", part(name).replace("| |", "|")), name
