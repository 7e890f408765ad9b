"""The examples in the docstrings of the model's words."""

import dataclasses
import doctest
import types

import pytest

from transforms.core import manifest, model, schema

MODULES = (model, schema, manifest)
# They are drawn by the words that consist of them, or by the README's manifest.
WITHOUT = {"FeatureFacts", "Manifest", "ShardFacts"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_the_examples_are_right(module: types.ModuleType) -> None:
    """What the docstrings show is what comes out."""
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_every_word_has_an_example() -> None:
    """A new word of the model comes with one."""
    bare = {
        name
        for module in MODULES
        for name, word in vars(module).items()
        if dataclasses.is_dataclass(word)
        and isinstance(word, type)
        and word.__module__ == module.__name__
        and ">>>" not in (word.__doc__ or "")
    }
    assert bare == WITHOUT
