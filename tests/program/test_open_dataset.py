"""`open_dataset` in other processes, and what it imports."""

import concurrent.futures
import multiprocessing
import pathlib
import pickle
import subprocess
import sys

import pytest

import beam_tfrecord
from tests.support.datasets import animals, write_dataset
from transforms.reading.view import View

Folder = pathlib.Path


def _sum_of_ids(view: View) -> int:
    return sum(row["id"] for row in view)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(tmp_path: Folder, method: str) -> None:
    """They open the files themselves."""
    write_dataset(tmp_path / "d", {"train": animals(5, 6)})
    view = beam_tfrecord.open_dataset(tmp_path / "d")["train"]
    assert view[3]["id"] == 3
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        parts = [*pool.map(_sum_of_ids, [view[::2], view[1::2]])]
    assert sum(parts) == sum(range(11))


def test_another_working_folder(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view of a relative path is the same one wherever it is unpickled."""
    write_dataset(tmp_path / "d", {"train": animals(3)})
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps(beam_tfrecord.open_dataset("d")["train"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert _sum_of_ids(pickle.loads(data)) == 3


def test_neither_beam_nor_tensorflow(tmp_path: Folder) -> None:
    """Opening and reading import neither."""
    write_dataset(tmp_path / "d", {"train": animals(3)})
    program = (
        "import sys, beam_tfrecord\n"
        f"rows = [*beam_tfrecord.open_dataset({str(tmp_path / 'd')!r})['train']]\n"
        "assert len(rows) == 3\n"
        "assert not {'apache_beam', 'tensorflow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
