"""The work folder beside an output: ours by its marker, or it is left alone."""

import errno
import os
import pathlib
import re
from collections.abc import Callable

import pytest

from beam_pipeline.planning.plan import make_plan
from beam_pipeline.running.convert import convert_plan
from beam_pipeline.settings.spec import make_spec
from tests.support.direct_run import forked, run_directly
from tests.support.file_operations import failing_once, watched
from tests.support.outputs import tree
from tests.support.runs import command, done, failed
from tests.support.tfrecord_pipelines import write
from transforms.errors import RaceError, TargetError
from transforms.publishing.own_folder import OwnFolder
from transforms.storage import folders, retry
from transforms.storage.files import storage

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")

RUN = "0123456789abcdef" * 2
MARKER = "made-by-beam-tfrecord"


@pytest.fixture
def parent(tmp_path: Folder) -> Folder:
    """A folder of datasets."""
    path = tmp_path / "sets"
    path.mkdir()
    return path


def hidden(parent: Folder) -> Folder:
    return parent / ".out.beam-tfrecord"


def precious(folder: Folder) -> Folder:
    """Writes what a user would miss, also under a name as runs have it."""
    for inner in ("photos", RUN, RUN[:16]):
        (folder / inner).mkdir(parents=True)
        (folder / inner / "p").write_text("precious")
    return folder


def with_link(name: str, to: str = "") -> Callable[[Folder, Folder], None]:
    def make(at: Folder, mine: Folder) -> None:
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).symlink_to(mine / to)

    return make


def with_pipe(name: str) -> Callable[[Folder, Folder], None]:
    def make(at: Folder, mine: Folder) -> None:
        (at / name).parent.mkdir(exist_ok=True)
        os.mkfifo(at / name)

    return make


def with_folder(name: str) -> Callable[[Folder, Folder], None]:
    def make(at: Folder, mine: Folder) -> None:
        precious(at / name)

    return make


LAYOUTS: dict[str, Callable[[Folder, Folder], object]] = {
    "link to a folder": with_link(""),
    "link to nothing": with_link("", "nothing"),
    "link to itself": lambda at, mine: at.symlink_to(at),
    "file": lambda at, mine: at.write_bytes(b"precious"),
    "pipe": with_pipe(""),
    "foreign folder": with_folder(""),
    "foreign run": with_folder(RUN),
    "link in it": with_link(RUN),
    "link in a run": with_link(f"{RUN}/segments"),
    "lock that is a link": with_link("lock", "photos/p"),
    "lock that is a pipe": with_pipe("lock"),
    "lock that is a folder": with_folder("lock"),
    "marker that is a link": with_link(MARKER, "photos/p"),
}


@pytest.fixture(params=LAYOUTS)
def layout(
    request: pytest.FixtureRequest, parent: Folder, tmp_path: Folder
) -> Callable[[Folder], object]:
    """Puts something that is not ours under the name of a work folder."""
    mine = precious(tmp_path / "mine")
    return lambda at: LAYOUTS[request.param](at, mine)


def test_what_is_not_ours_is_refused_and_not_touched(
    layout: Callable[[Folder], None],
    small: Folder,
    parent: Folder,
    tmp_path: Folder,
) -> None:
    """Exit 2 before anything is read, and `clean` leaves it too and says so."""
    layout(hidden(parent))
    before = tree(tmp_path)
    run = failed(2, "convert", small, parent / "out")
    assert f"/{hidden(parent).name}" in run.err
    assert tree(tmp_path) == before
    for place in (parent / "out", parent):
        run = failed(2, "clean", place)
        assert f"/{hidden(parent).name}" in run.err
        assert "not ours, left" in run.out
        assert tree(tmp_path) == before


@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("name", [".DS_Store", ".nfs000000001", "._x", "Thumbs.db"])
def test_what_systems_leave_in_it_is_left(
    name: str, marked: bool, small: Folder, parent: Folder
) -> None:
    """The output is converted; `clean` names the file, which stays."""
    hidden(parent).mkdir()
    (hidden(parent) / name).write_text("mine")
    if marked:
        (hidden(parent) / MARKER).write_bytes(b"")
    run = done("convert", small, parent / "out")
    for _ in range(2):
        assert tree(hidden(parent)).keys() == {name, MARKER}
        assert (hidden(parent) / name).read_text() == "mine"
        run = done("clean", parent / "out")
        assert "left, for it holds" in run.out
        assert name in run.out
    assert (parent / "out" / "manifest.json").exists()


def test_foreign_files_in_a_marked_folder_are_left(
    small: Folder, parent: Folder
) -> None:
    """The marker says that the folder is ours, not what others put into it."""
    (hidden(parent) / "mine").mkdir(parents=True)
    (hidden(parent) / "mine" / "p").write_text("precious")
    (hidden(parent) / MARKER).write_bytes(b"")
    for work in (("convert", small, parent / "out"), ("clean", parent / "out")):
        (hidden(parent) / RUN / "segments").mkdir(parents=True)
        run = done(*work)
        assert (hidden(parent) / "mine" / "p").read_text() == "precious"
        assert not (hidden(parent) / RUN).exists()
    assert "the folder stays" in run.out


@pytest.mark.parametrize("names", [[], ["lock"]])
def test_a_folder_that_lost_its_marker_to_a_kill(
    names: list[str], small: Folder, parent: Folder
) -> None:
    """The next run goes on in a folder that was just made, or was being removed."""
    hidden(parent).mkdir()
    for name in names:
        (hidden(parent) / name).write_bytes(b"")
    done("convert", small, parent / "out")
    assert os.listdir(parent) == ["out"]


def test_the_folder_is_never_without_its_marker(small: Folder, parent: Folder) -> None:
    """At no step of a run is there a work folder of ours without a marker in it."""
    seen = []

    def look(what: str, path: str) -> None:
        if hidden(parent).exists():
            seen.append(what)
            names = os.listdir(hidden(parent))
            # In the end it is empty for an instant, which is adopted.
            assert MARKER in names or names == []

    def work() -> None:
        with watched(look):
            run_directly({"source": str(small), "output": str(parent / "out")})
        assert len(seen) > 20

    assert forked(work) == 0


def test_overtaken_by_a_run_of_the_same_job(small: Folder, parent: Folder) -> None:
    """The run denies its own commit, though what is there is what it would write."""
    spec = make_spec({"source": str(small), "output": str(parent / "out")})
    plan = make_plan(spec)
    assert command("convert", small, parent / "out").code == 0
    with pytest.raises(RaceError, match="this one has committed nothing") as caught:
        convert_plan(plan)
    assert not getattr(caught.value, "__notes__", [])
    assert os.listdir(parent) == ["out"]
    assert command("verify", parent / "out").code == 0


OWN = re.compile("[0-9a-f]{32}")


def own(parent: Folder) -> OwnFolder:
    return OwnFolder(str(hidden(parent)), OWN)


def test_a_transient_error_at_every_step(
    parent: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making, holding and removing the folder are tried again."""
    policy = retry.RetryPolicy(first_pause=0.0)
    monkeypatch.setattr(retry, "POLICY", policy)
    for number in range(1000):
        with failing_once(number, errno.EIO) as calls, own(parent).held():
            pass
        with own(parent).held():
            pass
        assert os.listdir(parent) == []
        if len(calls) <= number:
            break
    assert number > 10


def test_deletions_follow_no_link_that_comes_meanwhile(
    parent: Folder, tmp_path: Folder
) -> None:
    """A folder on the way that is exchanged for a link is an error, and stays."""
    mine = tmp_path / "mine"
    (mine / RUN / "dataset").mkdir(parents=True)
    (mine / RUN / "dataset" / "p").write_text("precious")
    hidden(parent).symlink_to(mine)
    before = tree(mine)
    with pytest.raises(NotADirectoryError):
        own(parent).remove_run(RUN)
    path = str(hidden(parent) / RUN / "dataset" / "p")
    with pytest.raises(NotADirectoryError):
        storage(path).remove_file(below=str(parent))
    # Python 3.13 names the folder instead of the reason.
    with pytest.raises(OSError, match=r"symbolic link|out\.beam-tfrecord"):
        storage(str(hidden(parent))).remove_tree(below=str(parent))
    assert tree(mine) == before


def test_a_folder_that_cannot_be_removed(
    parent: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clean` does not say that it was removed."""
    (hidden(parent) / RUN / "segments").mkdir(parents=True)
    (hidden(parent) / MARKER).write_bytes(b"")

    def denied(path: str) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(folders, "remove_empty", denied)
    run = command("clean", parent / "out")
    assert "the folder stays" in run.out
    assert os.listdir(hidden(parent)) == [MARKER]


# --- WriteTFRecords ------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["foreign folder", "link in it"], indirect=True)
def test_files_are_not_written_beside_what_is_not_ours(
    layout: Callable[[Folder], None], parent: Folder, tmp_path: Folder
) -> None:
    """`WriteTFRecords` refuses the same, and touches nothing."""
    at = parent / ".x-SSSSS-of-NNNNN.beam-tfrecord"
    layout(at)
    before = tree(tmp_path)
    with pytest.raises(TargetError, match="work folder"):
        write(parent / "x", [b"a", b"b"])
    assert tree(tmp_path) == before
