"""Each program that `code --as` prints runs as it is pasted, and prints a batch."""

import pathlib
import re

import pytest

from beam_pipeline.reader_programs import READERS
from tests.opens_in.conftest import Datasets
from tests.opens_in.environments import python_of

ENVIRONMENT = {"tensorflow": "tensorflow", "beam": "own"}
# Keras on either backend.
RUNS = [*((reader, ENVIRONMENT.get(reader, "torch")) for reader in READERS)]
RUNS.append(("keras", "tensorflow"))


@pytest.mark.parametrize("dataset", ["photos", "table"])
@pytest.mark.parametrize(("reader", "environment"), RUNS)
def test_it_runs_as_pasted(
    reader: str,
    environment: str,
    dataset: str,
    datasets: Datasets,
    tmp_path: pathlib.Path,
) -> None:
    """It names the features that it read, and counts the records where it can."""
    folder = getattr(datasets, dataset)
    command = ["-m", "beam_pipeline", "code", folder, "--as", reader]
    printed = python_of("own", *command)
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "pasted.py").write_text(printed.stdout, encoding="utf-8")
    backend = {"KERAS_BACKEND": environment}
    done = python_of(environment, "pasted.py", cwd=tmp_path, variables=backend)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    name = "image" if dataset == "photos" else "id"
    assert re.search(rf"\b{name}\b", done.stdout)
    if reader not in ("tensorflow", "beam"):
        count = len(datasets.photo_rows if dataset == "photos" else datasets.table_rows)
        assert f"{count} records" in done.stdout
