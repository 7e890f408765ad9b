"""The README's commands and programs, run as they stand there."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from beam_pipeline.settings.spec import Spec
from tests.support.readme_data import write_everything

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"
_BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.M | re.S)


def blocks(kind: str) -> list[str]:
    """Returns the code blocks of a kind, in order."""
    text = README.read_text(encoding="utf-8")
    return [m["text"] for m in _BLOCK.finditer(text) if m["kind"] == kind]


def named_blocks(kind: str) -> dict[str, str]:
    """Returns the code blocks of a kind that are files, by name."""
    text = README.read_text(encoding="utf-8")
    found = ((m["kind"].split(), m["text"]) for m in _BLOCK.finditer(text))
    return {
        words[1]: body for words, body in found if words[:1] == [kind] and words[1:]
    }


def run(*command: str, cwd: pathlib.Path) -> str:
    """Runs a command to its success; returns what it prints."""
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with a source of every kind, after all shell commands were run in it."""
    folder = tmp_path_factory.mktemp("readme")
    write_everything(folder)
    for name, text in named_blocks("yaml").items():
        (folder / name).write_text(text, encoding="utf-8")
    for block in blocks("sh"):
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "beam-tfrecord", line
            run(sys.executable, "-m", "beam_pipeline", *arguments, cwd=folder)
    return folder


def test_the_shell_commands_work_one_after_the_other(place: pathlib.Path) -> None:
    """Every line of every sh block exits with 0 and leaves the datasets it names."""
    assert (place / "out/photos/manifest.json").exists()
    assert (place / "out/rows/manifest.json").exists()


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_programs_work(place: pathlib.Path, number: int) -> None:
    """Every Python block runs by itself, in a fresh interpreter."""
    run(sys.executable, "-c", blocks("python")[number], cwd=place)


@pytest.mark.reads_with_tensorflow
def test_the_program_that_uses_tfds_works(place: pathlib.Path) -> None:
    """The TFDS lines open the folder and find every image."""
    pytest.importorskip("tensorflow_datasets")
    (program,) = blocks("python tensorflow")
    program += "\nprint(len(list(photos)))"
    assert run(sys.executable, "-c", program, cwd=place).strip() == "60"


def test_the_yaml_is_a_valid_spec(place: pathlib.Path) -> None:
    """The YAML block converts as it stands."""
    (text,) = blocks("yaml")
    (place / "job.yaml").write_text(text, encoding="utf-8")
    command = ("convert", "--spec", "job.yaml")
    run(sys.executable, "-m", "beam_pipeline", *command, cwd=place)
    assert (place / "out/rows-from-spec/manifest.json").exists()


def test_every_setting_has_its_flag_in_the_table() -> None:
    """The table of options leaves no setting out."""
    text = README.read_text(encoding="utf-8")
    flags = {
        "shuffle": "--no-shuffle",
        "header": "--no-header",
        "feature_names": "--feature-name",
        "features": "features:",
    }
    for name in set(Spec.model_fields) - {"source", "output"}:
        assert flags.get(name, "--" + name.replace("_", "-")) in text, name
