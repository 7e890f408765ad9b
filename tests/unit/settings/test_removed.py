"""Settings that are gone: at each door an error says what to do instead."""

import json
import pathlib

import pytest
from click.testing import CliRunner

from beam_pipeline.commands.group import cli
from beam_pipeline.own_pipelines.parameters import spec_of
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.removed import REMOVED, REMOVED_VALUES
from beam_pipeline.settings.spec import load_spec, make_spec
from transforms.core.manifest import FORMAT
from transforms.errors import SpecError

# Name, value, and what to do instead.
GONE = [
    *((name, "x", gone.instead) for name, gone in REMOVED.items()),
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
def test_python_and_specs(name: str, value: str, instead: str) -> None:
    """A setting or value that is gone is refused with what to do instead."""
    with pytest.raises(SpecError) as error:
        make_spec({"source": "a.csv", "output": "out", name: value})
    assert instead in str(error.value)


@pytest.mark.parametrize(("name", "value", "instead"), GONE)
def test_own_pipelines(name: str, value: str, instead: str) -> None:
    """`WriteDataset` refuses it with the same words."""
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
    spec = {"source": "a.csv", name: REMOVED[name].default}
    path.write_text(json.dumps({"format": FORMAT, "run": {"spec": spec}}))
    assert load_spec(str(path)) == {"source": "a.csv"}
