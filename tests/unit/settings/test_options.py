"""The table of settings, what derives from it, and the settings that are gone."""

import importlib.util
import inspect
import json
import pathlib
import types

import pytest
from click.testing import CliRunner

import beam_pipeline
from beam_pipeline.commands.group import cli
from beam_pipeline.own_pipelines.parameters import spec_of
from beam_pipeline.settings import keywords
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.removed import OLD_DEFAULTS, REMOVED, REMOVED_VALUES
from beam_pipeline.settings.spec import Spec, load_spec, make_spec
from transforms.core.manifest import FORMAT
from transforms.errors import SpecError

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


# Name, value, and what to do instead.
GONE = [
    *((name, "x", instead) for name, instead in REMOVED.items()),
    *(
        (name, value, instead)
        for name, values in REMOVED_VALUES.items()
        for value, instead in values.items()
    ),
]


def test_no_removed_setting_is_still_there() -> None:
    """A name is in one table alone, and values are gone from settings that stay."""
    assert not REMOVED.keys() & SETTINGS.keys()
    assert REMOVED_VALUES.keys() <= SETTINGS.keys()


@pytest.mark.parametrize(("name", "value", "instead"), GONE)
def test_python_specs_and_own_pipelines(name: str, value: str, instead: str) -> None:
    """A setting or value that is gone is refused with what to do instead."""
    with pytest.raises(SpecError) as error:
        make_spec({"source": "a.csv", "output": "out", name: value})
    assert instead in str(error.value)
    with pytest.raises(SpecError) as error:
        spec_of("out", label=None, splits=None, key=None, settings={name: value})
    assert instead in str(error.value)


@pytest.mark.parametrize(("name", "value", "instead"), GONE)
@pytest.mark.parametrize("together", [False, True])
def test_flags(name: str, value: str, instead: str, together: bool) -> None:
    """Its flag ends the command with 2, with its value in the same argument or not."""
    flag = f"--{name.replace('_', '-')}"
    arguments = [f"{flag}={value}"] if together else [flag, value]
    result = CliRunner().invoke(cli, ["plan", "a.csv", *arguments], obj={})
    assert result.exit_code == 2
    assert instead in " ".join(result.output.split())


@pytest.mark.parametrize("name", REMOVED)
def test_older_manifests(name: str, tmp_path: pathlib.Path) -> None:
    """A manifest of before is a spec still, unless its job had set the setting."""
    path = tmp_path / "manifest.json"
    spec = {"source": "a.csv", name: OLD_DEFAULTS.get(name)}
    path.write_text(json.dumps({"format": FORMAT, "run": {"spec": spec}}))
    assert load_spec(str(path)) == {"source": "a.csv"}
