"""The tests themselves: who loads TensorFlow, and what they share."""

import ast
import pathlib
import re
from collections.abc import Iterator

import pytest

TESTS = pathlib.Path(__file__).parents[1]
MODULES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py"))
TENSORFLOW = {"tensorflow", "tensorflow_datasets", "tensorflow_metadata", "tfx_bsl"}
# Module elsewhere than in `readers` that loads TensorFlow -> why it must.
LOADS_TENSORFLOW = {
    **{
        f"opens_in/readers/{name}.py": "runs in an environment of its library"
        for name in ("beam_tfrecord", "tf_data", "tfds_folder", "tfds_load", "tfx_bsl")
    },
    "unit/sidecars/test_tensorflow_metadata.py": "messages alone, no TensorFlow",
    "storage/test_conversions.py": "TFDS reads what a running store has held",
    "opens_in/test_buckets.py": "as those, in an environment of its own",
}
_IN_A_PROGRAM = re.compile(
    rf"(?:^|;)\s*(?:import|from) (?:{'|'.join(TENSORFLOW)})\b", re.M
)
_LOADING = {"importorskip", "import_module", "__import__"}


def texts_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def imported(tree: ast.AST) -> set[str]:
    """Returns the modules that a syntax tree imports, wherever it does so."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in _LOADING:
                found |= set(texts_of(node.args[0]))
    return found


def loads_tensorflow(text: str) -> bool:
    """Whether a module imports TensorFlow, or holds a program that does."""
    tree = ast.parse(text)
    roots = {name.partition(".")[0] for name in imported(tree)}
    return bool(roots & TENSORFLOW) or any(map(_IN_A_PROGRAM.search, texts_of(tree)))


@pytest.mark.parametrize(
    "text",
    [
        "import tensorflow as tf",
        "def f():\n    from tensorflow.io import gfile",
        'tf = pytest.importorskip("tensorflow")',
        'importlib.import_module("tensorflow_datasets")',
        'run([sys.executable, "-c", "import tensorflow"])',
        'run([sys.executable, "-c", "import os; import tensorflow"])',
        'CODE = """\nimport os\nimport tensorflow as tf\n"""',
    ],
)
def test_each_way_to_load_tensorflow_is_found(text: str) -> None:
    """Also inside functions, by name, and in programs that a test starts."""
    assert loads_tensorflow(text)


def test_naming_tensorflow_does_not_load_it() -> None:
    """A test may say that TensorFlow was not imported."""
    assert not loads_tensorflow("assert 'tensorflow' not in sys.modules")


def test_only_readers_load_tensorflow() -> None:
    """The import takes seconds; one process runs all tests in `readers`."""
    found = {name for name in MODULES if loads_tensorflow((TESTS / name).read_text())}
    found.discard("unit/test_suite.py")
    assert any(name.startswith("readers/") for name in found)
    elsewhere = {name for name in found if not name.startswith("readers/")}
    assert elsewhere == LOADS_TENSORFLOW.keys()


def test_no_module_imports_a_test_module() -> None:
    """What tests share is in `tests/support`, so that tests can move freely."""
    found = {
        name: [each for each in names if re.match(r"tests\.(.*\.)?test_", each)]
        for name in MODULES
        if (names := imported(ast.parse((TESTS / name).read_text())))
    }
    assert {name: names for name, names in found.items() if names} == {}


def test_test_modules_are_short() -> None:
    """A module of more lines is about more than one subject."""
    lines = {name: (TESTS / name).read_text().count("\n") for name in MODULES}
    assert {name for name, count in lines.items() if count > 800} == set()
