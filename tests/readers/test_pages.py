"""The pages of the docs whose programs read with TensorFlow or PyTorch."""

import pathlib

import pytest

from tests.support.page_sources import write_everything
from tests.support.pages import PAGES, packages_of, run_page


@pytest.mark.parametrize("page", [page for page in PAGES if packages_of(page)])
def test_every_block_works(page: str, tmp_path: pathlib.Path) -> None:
    """The blocks of a page succeed in order, those for TensorFlow among them."""
    pytest.importorskip("tensorflow")
    pytest.importorskip("tensorflow_datasets")
    write_everything(tmp_path)
    run_page(page, tmp_path)
