"""The front door: which names are public, that asking is cheap, and who uses them."""

import ast
import importlib
import pathlib

import pytest

import beam_pipeline
import beam_tfrecord
import transforms
from tests.support.runs import python

ROOT = pathlib.Path(__file__).parents[2]
FRONTS = {module.__name__: module for module in (beam_pipeline, transforms)}
PROGRAM = """
    __version__ convert Report make_spec make_plan convert_plan
    ReadRows RowsRead WriteDataset Committed ReadDataset open_dataset
""".split()
LIBRARY = """
    ListBlocks ReadBlocks PlaceRows CountShards WriteShards CommitDataset
    ReadTFRecords ReadAllTFRecords WriteTFRecords
    Batch Schema Feature Kind rows_of
    encode_example decode_example EncodeExamples DecodeExamples
    encode_examples decode_examples
    BeamTFRecordError UsageError SpecError SourceError InputError TargetError BusyError
    RejectLimitError RecordCountError DamageError TFRecordError ExampleError
    EncodingError StorageError WorkerError ConservationError CommitError RaceError
""".split()
# What the documentation named before there was one front door, and where.
DOCUMENTED = {
    "beam_pipeline": "convert",
    "beam_pipeline.conversion": "convert_plan",
    "beam_pipeline.plan": "make_plan",
    "beam_pipeline.spec": "make_spec",
    "transforms.core.rows.feature_values": "rows_of",
    "transforms.errors": "BeamTFRecordError",
    "transforms.tfrecord": "ReadTFRecords WriteTFRecords",
}


def checked_imports(package: str) -> dict[str, set[str]]:
    """Returns module -> the names that type checkers see the package import of it."""
    path = str(importlib.import_module(package).__file__)
    tree = ast.parse(pathlib.Path(path).read_text(encoding="utf-8"))
    (branch,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {}
    for node in branch.body:
        assert isinstance(node, ast.ImportFrom)
        names = {alias.name for alias in node.names}
        module = importlib.import_module(str(node.module))
        if names == {"*"}:
            names = {*vars(module)} & {*FRONTS[package].__all__}
        seen[module.__name__] = names
    return seen


def test_the_public_names_are_these() -> None:
    """Names are added and removed on purpose only, and the CHANGELOG says so."""
    assert beam_pipeline.__all__ == PROGRAM
    assert transforms.__all__ == LIBRARY
    assert beam_tfrecord.__all__ == PROGRAM + LIBRARY


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("FixedLenFeature", "shape"),
        ("RowLengths", "shape"),
        ("read_examples", "open_dataset"),
    ],
)
def test_a_removed_name_says_what_to_do(name: str, instead: str) -> None:
    """The error names what takes its place, however the name is imported."""
    with pytest.raises(ImportError, match=instead):
        getattr(beam_tfrecord, name)
    with pytest.raises(ImportError, match=instead):
        exec(f"from beam_tfrecord import {name}")


@pytest.mark.parametrize("package", FRONTS)
def test_type_checkers_see_what_is_imported(package: str) -> None:
    """The imports for type checkers give the public names, each from its own module."""
    seen = checked_imports(package)
    names = [name for some in seen.values() for name in some]
    assert sorted(names) == sorted({*FRONTS[package].__all__} - {"__version__"})
    for module, some in seen.items():
        for name in some:
            own = getattr(importlib.import_module(module), name)
            assert getattr(FRONTS[package], name) is own
            assert getattr(beam_tfrecord, name) is own


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As of any module; the shell can guess the name that was meant."""
    with pytest.raises(AttributeError, match="no attribute 'read_exampels'") as caught:
        _ = beam_tfrecord.read_exampels  # type: ignore[attr-defined]
    assert (caught.value.name, caught.value.obj) == ("read_exampels", beam_tfrecord)


def test_names_keep_working_where_they_were_documented() -> None:
    """Programs that were written before the front door import what they did."""
    lines = ["import beam_tfrecord"]
    for module, names in DOCUMENTED.items():
        for name in names.split():
            lines.append(f"from {module} import {name}")
            lines.append(f"assert {name} is beam_tfrecord.{name}")
    python("-c", "\n".join(lines), cwd=ROOT, check=True)


@pytest.mark.parametrize("module", ["beam_pipeline", "beam_pipeline.sample"])
def test_modules_that_are_programs_keep_their_names(module: str) -> None:
    """`python -m` with a documented name answers; without arguments, how it is used."""
    done = python("-m", module, cwd=ROOT)
    assert done.returncode == 2
    assert "usage" in (done.stdout + done.stderr).lower()
