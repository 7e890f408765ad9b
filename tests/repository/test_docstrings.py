"""The examples in docstrings, and that the words of the model have one."""

import doctest
import importlib

import pytest

from tests.support.product_code import MODULES, docstrings


def has_examples(module: str) -> bool:
    """Whether a docstring of a module shows a session of the interpreter."""
    return any(">>> " in text for text in docstrings(module))


@pytest.mark.parametrize("module", sorted(filter(has_examples, MODULES)))
def test_the_examples_are_right(module: str) -> None:
    """What the docstrings show is what comes out."""
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0
