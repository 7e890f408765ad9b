"""Names in docstrings exist: modules, files of a folder, classes."""

import ast
import re

import pytest

from tests.support.product_code import MODULES, ROOT, docstrings, tree

_QUOTED = re.compile(r"`((?:transforms|beam_pipeline|beam_tfrecord)(?:\.(?!py`)\w+)+)`")
_CLASS = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`")
_FILE = re.compile(r"(?<![\w`./])([a-z_]\w*\.py)\b")
# Classes of other projects that the docstrings speak of.
_OTHERS = {
    "BeamRunPythonPipelineOperator",
    "DatasetInfo",
    "TensorProto",
    "TfExampleFields",
}


def names_of(module: str) -> set[str]:
    """Returns every name that a module defines, imports or uses."""
    if module == "beam_tfrecord":
        return names_of("beam_pipeline") | names_of("transforms")
    names: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.alias):
            names.add(node.name)
    return names


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    module = name
    while module and module not in MODULES:
        module = module.rpartition(".")[0]
    rest = name.removeprefix(module).strip(".").split(".")
    return bool(module) and (rest == [""] or set(rest) <= names_of(module))


@pytest.mark.parametrize("module", MODULES)
def test_dotted_names_exist(module: str) -> None:
    """A docstring that sends its reader to a module names one that is there."""
    quoted = {name for text in docstrings(module) for name in _QUOTED.findall(text)}
    assert not {name for name in quoted if not exists(name)}


def test_classes_exist() -> None:
    """A class in a docstring is one that the program defines or uses."""
    known = set().union(*map(names_of, MODULES))
    missing = {
        (module, name)
        for module in MODULES
        for text in docstrings(module)
        for name in _CLASS.findall(text)
        if name not in known | _OTHERS
    }
    assert not missing


@pytest.mark.parametrize(
    "module", [m for m in MODULES if ROOT.joinpath(*m.split(".")).is_dir()]
)
def test_files_that_a_folder_draws_exist(module: str) -> None:
    """The picture in the docstring of a package names its own files."""
    text = ast.get_docstring(tree(module)) or ""
    there = {path.name for path in ROOT.joinpath(*module.split(".")).iterdir()}
    assert set(_FILE.findall(text)) <= there
    assert set(re.findall(r"^ *(\w+)/ ", text, re.M)) <= there
