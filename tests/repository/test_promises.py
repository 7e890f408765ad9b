"""The page of promises: its tests and commands exist, and no proof is missing."""

import ast
import pathlib
import re

import pytest

Folder = pathlib.Path

ROOT = Folder(__file__).parents[2]
PAGE = (ROOT / "docs" / "internals" / "promises.md").read_text(encoding="utf-8")
INVARIANTS = 6
_TEST = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)(?:::(\w+))?`")
_NAME = re.compile(r"\btest_\w+")
_ROW = re.compile(r"^\| (?!promise |---)(.+?) \| (.+) \| (.+) \|$", re.M)


def sections() -> list[str]:
    """Returns the text of each invariant."""
    return re.split(r"^## \d\. ", PAGE, flags=re.M)[1:]


def names_in(path: Folder) -> set[str]:
    """Returns the functions and classes of a module."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, kinds)}


def proofs_with_headline() -> set[str]:
    """Returns `file::test` of each test that notes a headline figure."""
    return {
        f"{path.relative_to(ROOT / 'tests').as_posix()}::{node.name}"
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and "headline" in [each.arg for each in node.args.args]
    }


def test_every_invariant_has_promises_with_tests_and_a_command() -> None:
    """A row without a test or without a command would be a promise alone."""
    assert len(sections()) == INVARIANTS
    for section in sections():
        rows = _ROW.findall(section)
        assert rows
        for _, tests, commands in rows:
            assert _TEST.search(tests), tests
            assert re.fullmatch(r"(`make [a-z-]+`(, )?)+", commands), commands


@pytest.mark.parametrize("path", sorted({path for path, _ in _TEST.findall(PAGE)}))
def test_the_tests_exist(path: str) -> None:
    """The page names no file, class or function that does not exist."""
    places = [ROOT / "tests" / path, ROOT / path]
    (found,) = [place for place in places if place.exists()]
    wanted = {name for each, name in _TEST.findall(PAGE) if each == path and name}
    assert wanted <= names_in(found)


def test_no_page_names_a_test_that_is_gone() -> None:
    """Nor do the tables of tests that are run elsewhere."""
    pages = [*(ROOT / "docs").glob("*/*.md"), *(ROOT / "tests").glob("*.t*")]
    named = {name for page in pages for name in _NAME.findall(page.read_text())}
    tests = {*(ROOT / "tests").rglob("test_*.py")}
    exist = {name for path in tests for name in {path.stem, *names_in(path)}}
    assert len(named) > 50
    # A file of CIFAR-10.
    assert named - exist == {"test_batch"}


def test_the_commands_exist() -> None:
    """Each is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    commands = set(re.findall(r"`make ([a-z-]+)`", PAGE))
    assert len(commands) > 3
    assert commands <= targets


def test_every_headline_figure_is_a_proof() -> None:
    """What `make stress` runs is on the page: the test itself or its whole file."""
    named = {f"{path}::{name}" if name else path for path, name in _TEST.findall(PAGE)}
    tests = proofs_with_headline()
    assert len(tests) > 20
    assert [
        each for each in sorted(tests) if not {each, each.split("::")[0]} & named
    ] == []
