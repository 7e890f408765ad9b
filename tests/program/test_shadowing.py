"""A user's own `transforms` beside their script: one sentence names it."""

import os
import pathlib

import pytest

from tests.support import runs

Folder = pathlib.Path
ROOT = Folder(__file__).parents[2]
# A file, or a package, that Python finds before the installed one.
SHADOWS = ["transforms.py", "transforms/__init__.py"]


@pytest.fixture(params=SHADOWS)
def shadow(request: pytest.FixtureRequest, tmp_path: Folder) -> Folder:
    """Writes what hides the package; returns the path that must be named."""
    path = tmp_path / request.param
    path.parent.mkdir(exist_ok=True)
    path.write_text("print('mine')\n")
    return path.parent if path.stem == "__init__" else path


def python(folder: Folder, *arguments: str, **more: str) -> tuple[int, str]:
    """Runs Python in a folder; returns its exit code and what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    done = runs.python(*arguments, cwd=folder, env=environment)
    return done.returncode, done.stdout + done.stderr


def sentence(shadow: Folder) -> str:
    """Returns the message about a file or folder."""
    return (
        f"'{shadow}' hides the package 'transforms' of beam-tfrecord: rename it, or "
        f"start Python where its folder is not on sys.path.\n"
    )


@pytest.mark.parametrize("module", ["beam_pipeline", "beam_pipeline.sample"])
def test_the_program_ends_with_one_sentence(shadow: Folder, module: str) -> None:
    """`python -m` there: exit code 2, the file's name, no traceback."""
    message = f"error: {sentence(shadow)}"
    assert python(shadow.parent, "-m", module, "--help") == (2, message)


def test_the_installed_command_ends_with_one_sentence(
    shadow: Folder, tmp_path: Folder
) -> None:
    """The command of a wheel is a script; the user's folder is on PYTHONPATH."""
    command = tmp_path / "bin" / "beam-tfrecord"
    command.parent.mkdir()
    command.write_text("from beam_pipeline.cli import program\nprogram()\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    found = python(ROOT.parent, str(command), "--help", PYTHONPATH=path)
    assert found == (2, f"error: {sentence(shadow)}")


@pytest.mark.parametrize(
    "program", ["import beam_pipeline", "import transforms; import beam_tfrecord"]
)
def test_importing_is_an_import_error(shadow: Folder, program: str) -> None:
    """In a script the sentence is an ImportError; also where theirs is loaded."""
    code, output = python(shadow.parent, "-c", program)
    assert code == 1
    assert output.endswith(f"\nImportError: {sentence(shadow)}")


def test_a_folder_without_modules_hides_nothing(tmp_path: Folder) -> None:
    """A folder of data named `transforms` is no package: Python passes over it."""
    (tmp_path / "transforms").mkdir()
    assert python(tmp_path, "-m", "beam_pipeline", "--version")[0] == 0
