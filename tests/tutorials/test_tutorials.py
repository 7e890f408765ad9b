"""Every tutorial runs from start to end and prints what its page says.

A tutorial is `examples/tutorials/NAME.ipynb`, or a program `NAME.py` or `NAME.sh` with
what it prints in `NAME.txt`. Each runs in an empty folder that has the sample of
`beam_pipeline.sample` alone. Numbers with a fraction depend on the processor and on
versions of libraries, and are compared as `#.#`.

`BEAM_TFRECORD_WRITE_OUTPUTS=1 make test-tutorials` writes what they print.
"""

import os
import pathlib
import re
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from beam_pipeline import sample

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "examples" / "tutorials"
NOTEBOOKS = sorted(path.name for path in TUTORIALS.glob("*.ipynb"))
PROGRAMS = sorted(path.name for path in TUTORIALS.glob("*.txt"))
WRITES = bool(os.environ.get("BEAM_TFRECORD_WRITE_OUTPUTS"))
# What a program needs beside the sample: folders of BEAM_TFRECORD_TEST_DATA.
DATA = {"cifar_10": "cifar-10-batches-bin"}
SECONDS = 280


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where a tutorial runs: a folder with the sample, and the program on the path."""
    sample.write_photos(tmp_path / "photos")
    sample.write_rows(tmp_path / "rows.csv")
    programs = pathlib.Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def comparable(printed: str) -> str:
    """Returns a text without fractions, times and the folder of the test."""
    printed = re.sub(r"\(\d+\.\d s, [\d,]+ records/s, ", "(", printed)
    printed = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", printed)
    return re.sub(r"\d+\.\d+", "#.#", printed).strip()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_prints_what_it_shows(name: str, folder: pathlib.Path) -> None:
    """All cells run in order; what they print is what the file holds."""
    path = TUTORIALS / name
    shown = nbformat.read(path, 4)
    run = nbformat.from_dict(shown)
    for cell in run.cells:
        cell.pop("outputs", None)
    NotebookClient(
        run,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    if WRITES:
        _without_noise(run)
        nbformat.write(run, path)
        return
    for number, (ran, was) in enumerate(zip(run.cells, shown.cells, strict=True)):
        assert comparable(_printed(ran)) == comparable(_printed(was)), number


def _printed(cell: nbformat.NotebookNode) -> str:
    outputs = cell.get("outputs", [])
    return "".join(each.get("text", "") for each in outputs if each.name == "stdout")


def _without_noise(run: nbformat.NotebookNode) -> None:
    """Leaves of what ran the text of standard output, in one part a cell."""
    run.metadata.pop("widgets", None)
    run.metadata.language_info = {"name": "python"}
    for cell in run.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            text, cell.execution_count = _printed(cell), None
            cell.outputs = []
            if text:
                cell.outputs.append(
                    nbformat.v4.new_output("stream", name="stdout", text=text)
                )


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_its_page_shows(name: str, folder: pathlib.Path) -> None:
    """It succeeds and prints the text beside it."""
    expected = TUTORIALS / name
    if expected.stem in DATA:
        _link_data(folder, DATA[expected.stem])
    script = expected.with_suffix(".sh")
    command = ["sh"] if script.exists() else [sys.executable]
    path = script if script.exists() else expected.with_suffix(".py")
    done = subprocess.run(
        [*command, str(path)],
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    printed = done.stdout.replace(str(folder), "/data")
    if WRITES:
        expected.write_text(printed, encoding="utf-8")
    assert comparable(printed) == comparable(expected.read_text(encoding="utf-8"))


def _link_data(folder: pathlib.Path, name: str) -> None:
    root = os.environ.get("BEAM_TFRECORD_TEST_DATA")
    if not root:
        pytest.skip(f"BEAM_TFRECORD_TEST_DATA is not set: there is no {name}")
    if not (pathlib.Path(root) / name).is_dir():
        pytest.skip(f"BEAM_TFRECORD_TEST_DATA has no {name}")
    (folder / name).symlink_to(pathlib.Path(root) / name)
