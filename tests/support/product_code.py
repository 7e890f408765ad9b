"""The modules of the program, and their syntax trees."""

import ast
import functools
import pathlib

ROOT = pathlib.Path(__file__).parents[2]


def module_names() -> list[str]:
    names = []
    for package in ("transforms", "beam_pipeline", "beam_tfrecord"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            names.append(".".join(p for p in parts if p != "__init__"))
    return names


MODULES = module_names()


@functools.cache
def tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


_KINDS = (ast.Module, ast.ClassDef, ast.FunctionDef)


def docstrings(module: str) -> list[str]:
    """Returns all docstrings of a module."""
    nodes = (node for node in ast.walk(tree(module)) if isinstance(node, _KINDS))
    return [text for node in nodes if (text := ast.get_docstring(node))]
