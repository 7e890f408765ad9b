"""The table of settings: all that derives from it says the same."""

import importlib.util
import inspect
import pathlib
import types

import pytest

import beam_pipeline
from beam_pipeline.settings import keywords
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.spec import Spec, make_spec

ROOT = pathlib.Path(__file__).parents[3]
NAMES = set(SETTINGS) - {"source", "output"}


def script() -> types.ModuleType:
    path = ROOT / "scripts" / "write_keywords.py"
    spec = importlib.util.spec_from_file_location("write_keywords", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_spec_holds_every_setting_and_its_default() -> None:
    """The spec's fields are the table's entries, in their order."""
    assert list(Spec.model_fields) == list(SETTINGS)
    spec = make_spec({"source": "in", "output": "out"})
    for name in NAMES:
        assert getattr(spec, name) == SETTINGS[name].default


def test_keywords_are_as_the_table_says() -> None:
    """After a change of settings: run `make settings`."""
    written = script().keywords()
    assert pathlib.Path(keywords.__file__).read_text("utf-8") == written
    assert set(keywords.Keywords.__annotations__) == NAMES


def test_keywords_of_rows_are_those_that_it_takes() -> None:
    """`WriteDataset` has the settings that are not refused."""
    assert "part" in keywords.WriteKeywords.__annotations__
    assert "delimiter" not in keywords.WriteKeywords.__annotations__


def test_convert_lists_every_setting() -> None:
    """`help`, notebooks and editors see names, defaults and a line on each."""
    parameters = inspect.signature(beam_pipeline.convert).parameters
    assert set(parameters) > NAMES
    assert parameters["shards"].default is None
    assert parameters["trim"].default is False
    text = inspect.getdoc(beam_pipeline.convert) or ""
    for name in NAMES:
        assert f"\n  {name}: {SETTINGS[name].python_help}" in text


@pytest.mark.parametrize(
    ("name", "kind", "flags"),
    [
        ("trim", "switch", "--trim/--no-trim"),
        ("header", "switch", "--header/--no-header"),
        ("format", "choice", "--format"),
        ("channels", "int", "--channels"),
        ("shards", "int", "--shards"),
        ("shard_size", "text", "--shard-size"),
        ("max_reject_rate", "float", "--max-reject-rate"),
        ("workers", "text", "--workers"),
        ("splits", "text", "--splits"),
        ("vocabulary", "text", "--vocabulary"),
        ("null_values", "joined", "--null-values"),
        ("include", "list", "--include"),
        ("feature_names", "pairs", "--feature-name"),
        ("features", "pairs", ""),
    ],
)
def test_what_the_command_line_takes(name: str, kind: str, flags: str) -> None:
    """The type of a setting decides how it is given."""
    assert (SETTINGS[name].kind, SETTINGS[name].flags) == (kind, flags)
