"""Paths with a scheme, and paths that a worker never saw."""

import pathlib
import pickle
from collections.abc import Callable

import pytest

from transforms.core.image.policy import ImagePolicy
from transforms.core.reasons import Fault, Reason
from transforms.errors import InputError, SpecError, WorkerError
from transforms.formats.table import reading
from transforms.shards.image_loading import load_image
from transforms.storage import paths, visibility
from transforms.storage.stores import _matches
from transforms.storage.visibility import unseen


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins without parameters."""
    monkeypatch.setattr(paths, "_parameters", {})
    monkeypatch.setattr(paths, "_of_this_job", {})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("data/rows.csv", "data/rows.csv"),
        ("file:///data/a%20b.csv", "/data/a b.csv"),
        ("s3://bucket/dir/rows.csv", "s3://bucket/dir/rows.csv"),
        ("S3://bucket//dir///rows.csv", "s3://bucket/dir/rows.csv"),
        ("gs://bucket/what? yes#1%20.csv", "gs://bucket/what? yes#1%20.csv"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://b/k?endpoint_override=127.0.0.1:9&scheme=http", "s3://b/k"),
        ("hdfs://name:8020/dir", "hdfs://name:8020/dir"),
        ("hdfs://name:8020/k?replication=2", "hdfs://name:8020/k"),
        ("abfs://c@a.example.net/k", "abfs://c@a.example.net/k"),
    ],
)
def test_plain(given: str, expected: str) -> None:
    """A path keeps what is its own, and loses what says how to reach it."""
    assert paths.plain(given) == expected


@pytest.mark.parametrize(
    ("given", "place", "expected"),
    [
        # What one path says of its bucket holds for every path there, and no other.
        ("s3://b/k?region=x&scheme=http", "s3://b", {"region": "x", "scheme": "http"}),
        ("s3://b/k?region=x", "s3://d", {}),
        (
            "s3://b/in?access_key=me&secret_key=hush s3://b/out?region=x "
            "s3://b/more?region=",
            "s3://b",
            {"access_key": "me", "secret_key": "hush", "region": "x"},
        ),
        # Keys are base64, which has `+`, `/` and `=`.
        (
            "s3://b/k?access_key=a+b&secret_key=c+d/e%2Bf%20g==",
            "s3://b",
            {"access_key": "a+b", "secret_key": "c+d/e+f g=="},
        ),
        (
            "abfs://c/k?account_name=n&account_key=a+/b==",
            "abfs://c",
            {"account_name": "n", "account_key": "a+/b=="},
        ),
        # Arrow knows those of other places.
        ("hdfs://name:8020/k?replication=2", "hdfs://name:8020", {"replication": "2"}),
    ],
)
def test_parameters(given: str, place: str, expected: dict[str, str]) -> None:
    """What paths say of a place holds together, there alone."""
    for path in given.split():
        paths.plain(path)
    assert paths.parameters_of(place) == expected


@pytest.mark.parametrize(
    "path",
    [
        "s3://AK:hu/sh@b/k",
        "s3://AK:/hush@b/k",
        "s3://AK:hush?a=sh@b/k",
        "gs://AK:hu/sh@b/k",
        "abfs://c:hu/sh@a.example.net/k",
        "hdfs://user:hush@h:9000/k",
        "s3://b/k?secret_key=hu?sh",
        "s3://b/k?region=x&secret_key=hu?sh&scheme=http",
        "s3://b/k?secret_key=hu&sh",
        "s3://b/k?secret_key=hu&hu%2Fsh=",
        "gs://AK:hush@b/k",
        "s3://hush@b/k",
        "abfs://c:hush@a.example.net/k",
    ],
)
def test_secrets_that_are_written_wrongly(path: str) -> None:
    """They are not taken for a part of the path, and no message shows them."""
    with pytest.raises(SpecError) as caught:
        paths.plain(path)
    assert "hu" not in str(caught.value)
    assert "sh" not in str(caught.value)
    assert paths.parameters_given() == {}


@pytest.mark.parametrize(
    ("path", "wrong", "known"),
    [
        ("s3://b/k?endpoint=hush:9000", "endpoint", "endpoint_override"),
        ("s3://b/k?region=x&sesion_token=hush", "sesion_token", "session_token"),
        ("gs://b/k?region=hush", "region", "endpoint_override"),
        ("gcs://b/k?secret_key=hush", "secret_key", "anonymous"),
        ("abfs://c@a.example.net/k?access_key=hush", "access_key", "account_key"),
        ("abfss://c/k?anonymous=hush", "anonymous", "sas_token"),
    ],
)
def test_unknown_parameters(path: str, wrong: str, known: str) -> None:
    """Ignored, they would send a run elsewhere; the message does not hold the value."""
    with pytest.raises(SpecError, match=rf"\b{known}\b.*found '{wrong}'") as caught:
        paths.plain(path)
    assert "hush" not in str(caught.value)


def test_parameters_that_contradict_each_other() -> None:
    """Neither wins silently, and neither is shown."""
    paths.plain("s3://b/in?secret_key=hush")
    with pytest.raises(SpecError, match=r"'secret_key'.*'s3://b'") as caught:
        paths.plain("s3://b/k?secret_key=other")
    assert "hush" not in str(caught.value)
    assert "other" not in str(caught.value)
    assert paths.parameters_of("s3://b") == {"secret_key": "hush"}


def test_another_job_may_print_it_again() -> None:
    """What a job says of a place is all that holds there; saying nothing keeps it."""
    paths.plain("s3://b/in?secret_key=wrong&region=x")
    paths.another_job()
    paths.plain("s3://b/in")
    assert paths.parameters_of("s3://b") == {"secret_key": "wrong", "region": "x"}
    paths.plain("s3://b/in?secret_key=right")
    paths.plain("s3://b/out?access_key=me")
    assert paths.parameters_of("s3://b") == {"secret_key": "right", "access_key": "me"}


def test_access_goes_to_other_processes_and_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Unpickled elsewhere, the parameters hold there; printed, they do not show."""
    paths.plain("s3://b/k?secret_key=hush")
    assert "hush" not in repr(paths.Access())
    data = pickle.dumps(paths.Access())
    monkeypatch.setattr(paths, "_parameters", {})
    pickle.loads(data)
    assert paths.parameters_of("s3://b") == {"secret_key": "hush"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        *((f"{scheme}://y/a", r"s3://.*found '") for scheme in ("http", "ftp", "x")),
        *((path, "must name a bucket") for path in ("s3://", "gs:///key", "s3:///")),
    ],
)
def test_unknown_places(path: str, said: str) -> None:
    """What cannot be reached is refused with what can; a path must name a bucket."""
    with pytest.raises(SpecError, match=said):
        paths.plain(path)


def test_is_remote() -> None:
    """Only what begins with a scheme is."""
    assert paths.is_remote("s3://b/k")
    assert not paths.is_remote("dir/s3://b")
    assert not paths.is_remote("/abs/path")
    assert not paths.is_remote("1x://b")


def test_relative_and_common_folder() -> None:
    """Folders are compared by whole names, on every place."""
    assert paths.relative("s3://b/x/y/z", "s3://b/x") == "y/z"
    assert paths.common_folder(["s3://b/x/y/1", "s3://b/x/yy/2"]) == "s3://b/x"
    assert paths.common_folder(["s3://b/x/y/1"]) == "s3://b/x/y"
    assert paths.common_folder(["s3://b/1", "s3://b/x/2"]) == "s3://b"
    assert paths.common_folder(["/a/b/1", "/a/c/2"]) == "/a"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.csv", "a.csv", True),
        ("*.csv", "d/a.csv", False),
        ("*.csv", ".a.csv", False),
        (".*.csv", ".a.csv", True),
        ("**/*.csv", "a.csv", True),
        ("**/*.csv", "d/e/a.csv", True),
        ("**/*.csv", "d/.e/a.csv", False),
        ("d/[ab]?.csv", "d/a1.csv", True),
        ("d/[ab]?.csv", "d/c1.csv", False),
        ("d/**", "d/e/f", True),
    ],
)
def test_globs(pattern: str, path: str, expected: bool) -> None:
    """A glob means elsewhere what it means here."""
    assert _matches(path.split("/"), pattern.split("/")) is expected


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
    with pytest.raises(InputError, match="it is gone"), reading(path):
        raise FileNotFoundError(2, "No such file", path)


def test_a_worker_elsewhere_sees_no_local_path(
    tmp_path: Folder, become: Become
) -> None:
    """Not even one that its own disk happens to have: it is another file."""
    become(True)
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    assert unseen("s3://bucket/rows.csv") is None
    with pytest.raises(WorkerError) as error, reading(str(path)):
        raise FileNotFoundError(2, "No such file", str(path))
    seen = str(error.value)
    assert f"{str(path)!r} is not visible to the worker on host 'pod-7'" in seen
    assert "the workers are elsewhere" in seen
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
    with pytest.raises(WorkerError), reading(path):
        raise FileNotFoundError(2, "No such file", path)
