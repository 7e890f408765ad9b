"""Paths that a worker never saw are told from files that have gone."""

import pathlib
from collections.abc import Callable

import pytest

from transforms.core.image.policy import ImagePolicy
from transforms.core.reasons import Fault, Reason
from transforms.errors import InputError, WorkerError
from transforms.formats.table import unreadable
from transforms.shards.image_loading import load_image
from transforms.storage import visibility
from transforms.storage.visibility import unseen

Folder = pathlib.Path
Become = Callable[[bool], object]
POLICY = ImagePolicy()


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Become:
    """Makes this process a worker, elsewhere or not."""
    monkeypatch.setattr(visibility, "_known", None)
    monkeypatch.setattr("socket.gethostname", lambda: "pod-7")
    return lambda elsewhere: visibility.become(elsewhere=elsewhere)


def test_the_program_itself_sees_what_is_there(
    tmp_path: Folder, become: Become
) -> None:
    """In a local run a file that is missing has gone, whatever else has."""
    path = str(tmp_path / "not" / "here.csv")
    assert unseen(path) is None
    error = unreadable(path, FileNotFoundError(2, "No such file", path))
    assert isinstance(error, InputError)
    assert "it is gone" in str(error)


def test_a_worker_elsewhere_sees_no_local_path(
    tmp_path: Folder, become: Become
) -> None:
    """Not even one that its own disk happens to have: it is another file."""
    become(True)
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    assert unseen("s3://bucket/rows.csv") is None
    error = unreadable(str(path), FileNotFoundError(2, "No such file", str(path)))
    assert isinstance(error, WorkerError)
    assert f"{str(path)!r} is not visible to the worker on host 'pod-7'" in str(error)
    assert "the workers are elsewhere" in str(error)
    with pytest.raises(WorkerError, match="the workers are elsewhere"):
        load_image(path.name, 0, str(tmp_path), POLICY)


def test_a_missing_folder_is_told_from_a_missing_file(
    tmp_path: Folder, become: Become
) -> None:
    """On machines that share a disk a file may go; its folder does not."""
    become(False)
    image = load_image("gone.png", 7, str(tmp_path), POLICY)
    assert image is not None
    assert isinstance(image.result, Fault)
    assert image.result.reason is Reason.CHANGED_DURING_RUN
    with pytest.raises(WorkerError, match="not even its folder is there"):
        load_image("gone.png", 7, str(tmp_path / "elsewhere"), POLICY)
    path = str(tmp_path / "not" / "here.csv")
    error = unreadable(path, FileNotFoundError(2, "No such file", path))
    assert isinstance(error, WorkerError)
