"""The examples in docstrings, and that the words of the model have one."""

import dataclasses
import doctest
import importlib
import types

import pytest

from tests.support.product_code import MODULES, docstrings
from transforms.core import manifest, model, schema
from transforms.core.placing import placement, shard_rows, splitting

WORDS = (model, schema, manifest, placement, shard_rows, splitting)


def has_examples(module: str) -> bool:
    """Whether a docstring of a module shows a session of the interpreter."""
    return any(">>> " in text for text in docstrings(module))


@pytest.mark.parametrize("module", sorted(filter(has_examples, MODULES)))
def test_the_examples_are_right(module: str) -> None:
    """What the docstrings show is what comes out."""
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("module", WORDS, ids=lambda module: module.__name__)
def test_every_word_has_an_example(module: types.ModuleType) -> None:
    """A new word of the model comes with one."""
    assert not {
        name
        for name, word in vars(module).items()
        if dataclasses.is_dataclass(word)
        and isinstance(word, type)
        and word.__module__ == module.__name__
        and ">>>" not in (word.__doc__ or "")
    }
