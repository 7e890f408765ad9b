"""`open_dataset` in other processes, and what it imports."""

import concurrent.futures
import multiprocessing
import pathlib
import pickle

import pytest

import beam_tfrecord
from tests.support.datasets import animals, write_dataset
from tests.support.runs import command, python
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


def test_shards_of_several_datasets(tmp_path: Folder) -> None:
    """Manifests may contradict each other; without them, files are read as they are."""
    for number in (1, 2):
        write_dataset(tmp_path / f"{number}", {"train": [animals(3)[0]]})
    with pytest.raises(beam_tfrecord.InputError, match="merge"):
        beam_tfrecord.open_dataset(f"{tmp_path}/?/*train*")
    for path in tmp_path.glob("?/*.*"):
        if "tfrecord" not in path.name:
            path.unlink()
    bare = beam_tfrecord.open_dataset(f"{tmp_path}/?/*train*")
    assert [row["id"] for row in bare[""]] == [0, 1, 2, 0, 1, 2]


def test_neither_beam_nor_tensorflow(tmp_path: Folder) -> None:
    """Opening and reading import neither; to open takes less than 50 ms."""
    write_dataset(tmp_path / "d", {"train": animals(3)})
    program = (
        "import sys, time, beam_tfrecord\n"
        "times = []\n"
        "for _ in range(5):\n"
        "    begin = time.perf_counter()\n"
        f"    train = beam_tfrecord.open_dataset({str(tmp_path / 'd')!r})['train']\n"
        "    times.append(time.perf_counter() - begin)\n"
        "assert len([*train]) == 3\n"
        "assert not {'apache_beam', 'tensorflow'} & set(sys.modules)\n"
        "print(min(times))\n"
    )
    done = python("-c", program, check=True)
    assert float(done.stdout) < 0.05


# In a process of its own, for its limit.
_FEW_FILES = """
import os, resource, sys
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, most))
import beam_tfrecord
before = len(os.listdir("/proc/self/fd"))
train = beam_tfrecord.open_dataset(sys.argv[1])["train"]
for turn in range(2):
    assert [train[place]["id"] for place in range(200)] == [*range(200)]
    assert [row["id"] for row in train.shuffled()] != [*range(200)]
print(len(os.listdir("/proc/self/fd")) - before)
"""


def test_a_quarter_of_the_files_that_a_process_may_have(tmp_path: Folder) -> None:
    """Of 100 shards, at most 15 are open, and the folder, where 60 files may be."""
    write_dataset(tmp_path / "d", {"train": animals(*[2] * 100)})
    assert command("index", tmp_path / "d").code == 0
    done = python("-c", _FEW_FILES, tmp_path / "d", check=True)
    assert 1 < int(done.stdout) <= 16
