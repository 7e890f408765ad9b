"""Retries: temporary failures are retried, lasting ones reported, nothing is lost."""

import errno
import io
import itertools
import logging
import os
import pathlib
import stat
import time
from collections.abc import Callable
from typing import Any

import pytest

from beam_pipeline.planning import sizes
from tests.support.outputs import contents, names
from tests.support.runs import convert, failed, python, refused
from tests.support.segments import IN_FILES
from tests.support.sources import write_csv
from transforms.core.tfrecord.writer import TFRecordWriter
from transforms.errors import MAX_MESSAGE_BYTES, StorageError
from transforms.storage import local, retry
from transforms.storage.files import storage
from transforms.storage.retry import RetryPolicy, is_transient, persistently

Folder = pathlib.Path

TRANSIENT = (
    "EIO EAGAIN EINTR ESTALE ETIMEDOUT EBUSY ECONNRESET ECONNREFUSED ECONNABORTED "
    "ENETUNREACH EHOSTUNREACH"
).split()
LASTING = (
    "ENOENT EACCES EPERM ENOSPC EDQUOT EROFS EFBIG EISDIR ENOTDIR ELOOP EXDEV EINVAL "
    "ENAMETOOLONG EEXIST"
).split()
# As Arrow says them, for a server that answers so and for one that is not there.
ARROW_TRANSIENT = [
    "When reading information for key 'k' in bucket 'b': AWS Error UNKNOWN (HTTP "
    "status 503) during HeadObject operation: No response body.",
    "When reading information for key 'k' in bucket 'b': AWS Error UNKNOWN (HTTP "
    "status 429) during HeadObject operation: No response body.",
    "When reading information for key 'k' in bucket 'b': AWS Error NETWORK_CONNECTION "
    "during HeadObject operation: curlCode: 7, Could not connect to server",
    "When uploading part: AWS Error SLOW_DOWN during UploadPart operation: slow down",
    "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message "
    "of Received HTTP status code: 503 error_info={reason=})",
    "google::cloud::Status(DEADLINE_EXCEEDED: Retry policy exhausted)",
]
ARROW_LASTING = [
    "When reading information for key 'k' in bucket 'b': AWS Error ACCESS_DENIED "
    "during HeadObject operation: No response body.",
    "When reading 'k': AWS Error NO_SUCH_BUCKET during GetObject operation: 503 rows",
    "google::cloud::Status(PERMISSION_DENIED: Permanent error)",
    "Invalid Parquet file size is 0 bytes",
]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries again at once."""
    monkeypatch.setattr(retry, "POLICY", RetryPolicy(first_pause=0.0))


def fails(code: int, times: int, path: str | None = None) -> Callable[..., None]:
    """Returns a function that raises the error at its first calls."""
    left = itertools.count(times, -1)

    def work(*arguments: object, **options: object) -> None:
        if next(left) > 0:
            raise OSError(code, os.strerror(code), path)

    return work


def now_and_then(
    real: Callable[..., Any],
    code: int,
    every: int,
    only: Callable[..., Any] = lambda *_: True,
) -> Callable[..., Any]:
    """Returns the function, failing at every n-th call that counts."""
    calls = itertools.count(1)

    def work(*arguments: Any, **options: Any) -> Any:
        if only(*arguments) and next(calls) % every == 0:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    return work


class TestPolicy:
    @pytest.mark.parametrize(
        ("error", "passes"),
        [
            *((OSError(getattr(errno, name), "x"), True) for name in TRANSIENT),
            *((OSError(getattr(errno, name), "x"), False) for name in LASTING),
            *((OSError(text), True) for text in ARROW_TRANSIENT),
            *((OSError(text), False) for text in ARROW_LASTING),
            (ValueError("a fault of the program"), False),
        ],
        ids=repr,
    )
    def test_what_passes_and_what_stays(self, error: Exception, passes: bool) -> None:
        """What stays is tried once: another try would only take time (rows 8, 13)."""
        assert is_transient(error) is passes
        calls = []

        def work() -> None:
            calls.append(1)
            raise error

        with pytest.raises(StorageError if passes else type(error)):
            persistently(work)
        assert len(calls) == (5 if passes else 1)

    def test_time_is_bounded(self) -> None:
        """All pauses together stay below half a minute, and differ each time."""
        drawn = [tuple(RetryPolicy().pauses()) for _ in range(50)]
        assert len(set(drawn)) == 50
        for pauses in drawn:
            assert len(pauses) == 4
            assert sum(pauses) < RetryPolicy().bound
            assert list(pauses) == sorted(pauses)

    def test_no_try_begins_after_the_bound(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Work that takes long to fail is given up sooner."""
        now = itertools.count(0, 20)
        monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
        with pytest.raises(StorageError, match="tried 2 times"):
            persistently(fails(errno.ETIMEDOUT, 99))

    def test_it_ends_with_what_is_known(self) -> None:
        """Path, number of tries and cause, in at most 1 KiB; chained."""
        path = "/data/" + "x" * 5000
        with pytest.raises(StorageError) as caught:
            persistently(fails(errno.EIO, 99), path=path)
        message = str(caught.value)
        assert len(message.encode()) <= MAX_MESSAGE_BYTES
        assert "tried 5 times" in message
        with pytest.raises(StorageError, match="'/d/f': Input/output error"):
            persistently(fails(errno.EIO, 99, "/d/f"))
        assert isinstance(caught.value.__cause__, OSError)

    def test_it_is_reported(self, caplog: pytest.LogCaptureFixture) -> None:
        """Each repetition is logged; a success at the first try is not."""
        with caplog.at_level(logging.WARNING):
            persistently(fails(errno.EIO, 2, "/d/f"))
            persistently(lambda: None)
        assert [record.getMessage() for record in caplog.records] == [
            "'/d/f': Input/output error; it is tried again"
        ] * 2

    def test_a_given_up_failure_is_not_repeated_above(self) -> None:
        """Retries within retries do not multiply."""
        calls = []

        def inner() -> None:
            calls.append(1)
            raise OSError(errno.EIO, "x")

        with pytest.raises(StorageError):
            persistently(lambda: persistently(inner))
        assert len(calls) == 5


class TestFiles:
    """Every operation of the file layer, with errors on its way."""

    @pytest.fixture
    def path(self, tmp_path: Folder) -> Folder:
        path = tmp_path / "file"
        path.write_bytes(bytes(range(256)) * 20_000)
        return path

    def test_streams(self, path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stream goes on where it was, whatever asks it in whatever pieces."""
        data = path.read_bytes()

        class Flaky:
            readinto = now_and_then(io.FileIO.readinto, errno.EIO, 2)

        monkeypatch.setattr(io, "FileIO", Flaky)
        with storage(str(path)).open_input() as stream:
            found = stream.read(10)
            found += stream.readline()
            found += b"".join(iter(lambda: stream.read(999_999), b""))
            stream.seek(77)
            assert stream.read(5) == data[77:82]
        assert found == data

    def test_listing(self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
        """No folder is listed in part or twice, none is taken for a file."""
        for number in range(30):
            write_csv(tmp_path / f"{number % 3}" / f"{number}.csv", "a", ["1"])
        calm = list(storage(str(tmp_path)).list_tree())
        monkeypatch.setattr(os, "scandir", now_and_then(os.scandir, errno.EIO, 2))
        monkeypatch.setattr(os, "stat", now_and_then(os.stat, errno.ETIMEDOUT, 3))
        assert list(storage(str(tmp_path)).list_tree()) == calm
        assert storage(str(tmp_path / "0" / "0.csv")).size_of() == calm[0].size

    def test_a_failed_sync_is_never_just_repeated(
        self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kernel would report success on a retry; the file is written again."""
        synced = []
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            if len(synced) == 1:
                raise OSError(errno.EIO, "x")
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        storage(str(tmp_path / "f")).write_file(b"abc", attempts=str(tmp_path))
        assert len(synced) == len(set(synced)) == 2

    def test_a_rename_whose_answer_was_lost(
        self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was done and said to have failed: that is no failure (row 17)."""
        real = os.replace
        calls = []

        def replace(source: str, target: str) -> None:
            real(source, target)
            calls.append(target)
            raise OSError(errno.ETIMEDOUT, "x")

        monkeypatch.setattr(os, "replace", replace)
        (tmp_path / "old").write_bytes(b"old")
        storage(str(tmp_path / "old")).write_file(b"new", attempts=str(tmp_path))
        assert (tmp_path / "old").read_bytes() == b"new"
        assert len(calls) == 1

    @pytest.mark.parametrize(
        ("name", "code"),
        [
            ("write", errno.ENOSPC),
            ("write", errno.EDQUOT),
            ("fsync", errno.ENOSPC),
            ("close", errno.EDQUOT),
            ("write", errno.EFBIG),
            ("open", errno.EROFS),
            ("replace", errno.EXDEV),
            ("replace", errno.EACCES),
        ],
    )
    def test_what_cannot_be_written_is_reported(
        self, name: str, code: int, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Path, bytes and reason; nothing appears, the old file stays (row 13)."""
        path = tmp_path / "f"
        path.write_bytes(b"old")
        flaky_writes(monkeypatch, name, code, every=1)
        with pytest.raises(StorageError) as caught:
            storage(str(path)).write_file(b"x" * 1234, attempts=str(tmp_path))
        message = str(caught.value)
        assert f"{str(path)!r} of 1,234 bytes" in message
        assert os.strerror(code) in message
        assert names(tmp_path) == ["f"]
        assert path.read_bytes() == b"old"


def flaky_writes(
    monkeypatch: pytest.MonkeyPatch, name: str, code: int, *, every: int
) -> Callable[[], int]:
    """Makes a step of writing files fail at every n-th time; returns how often."""
    failed = []
    calls = itertools.count(1)

    def fail() -> None:
        if next(calls) % every == 0:
            failed.append(name)
            raise OSError(code, os.strerror(code))

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            if name == "write":
                fail()
            return super().write(data)

        def close(self) -> None:
            closed = self.closed
            super().close()
            if name == "close" and not closed and self.writable_once:
                fail()

        writable_once = True

    def new_attempt(folder: str) -> io.FileIO:
        if name == "open":
            fail()
        with real(folder) as file:
            path = file.name
        return Raw(path, "wb")

    def patched(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any) -> Any:
            # A folder that cannot be synced is different: it is not created again.
            if not isinstance(first, int) or stat.S_ISREG(os.fstat(first).st_mode):
                fail()
            return function(first, *rest)

        return call

    real = local._open_attempt
    monkeypatch.setattr(local, "_open_attempt", new_attempt)
    if name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, patched(getattr(os, name)))
    return lambda: len(failed)


def flaky_reads(monkeypatch: pytest.MonkeyPatch, source: Folder, every: int) -> None:
    """Makes every n-th reading of a file or of the source's folders fail."""

    def of_file(descriptor: int, *_: int) -> bool:
        # The warnings are collected in a file without a name, which must be readable.
        state = os.fstat(descriptor)
        return stat.S_ISREG(state.st_mode) and state.st_nlink > 0

    def of_source(path: object = ".") -> bool:
        return str(path).startswith(str(source))

    flaky = (now_and_then(f, errno.EIO, every, of_file) for f in (os.pread, os.read))
    for name, function in zip(("pread", "read"), flaky, strict=True):
        monkeypatch.setattr(os, name, function)
    scandir = now_and_then(os.scandir, errno.EIO, every, of_source)
    monkeypatch.setattr(os, "scandir", scandir)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    lines = (f"{number},w{number % 7}" for number in range(3000))
    return write_csv(tmp_path_factory.mktemp("table") / "t.csv", "n,w", lines)


OPTIONS = (IN_FILES, "--shards", 3, "--workers", 1)


class TestWholeRuns:
    @pytest.mark.parametrize(("source", "every"), [("table", 2), ("photos", 3)])
    def test_a_flaky_disk_changes_nothing(
        self,
        source: str,
        every: int,
        tmp_path: Folder,
        request: pytest.FixtureRequest,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Errors at each second or third step: the same bytes, and warnings (row 8)."""
        folder = request.getfixturevalue(source)
        convert(folder, tmp_path / "calm", *OPTIONS, "--name", "x")
        flaky_reads(monkeypatch, folder, every)
        flaky_writes(monkeypatch, "fsync", errno.EIO, every=every)
        run = convert(folder, tmp_path / "flaky", *OPTIONS, "--name", "x")
        assert "it is tried again" in run.err
        assert names(tmp_path) == ["calm", "flaky"]
        assert contents(tmp_path / "calm") == contents(tmp_path / "flaky")

    def test_an_image_that_is_there_is_no_reject(
        self, photos: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that the disk will not give fails the job: it is not lost (row 8)."""
        victim = sorted(photos.rglob("*.jpg"))[3]
        real = os.open

        def failing(path: Any, *arguments: Any, **named: Any) -> int:
            if path == str(victim):
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
            return real(path, *arguments, **named)

        monkeypatch.setattr(os, "open", failing)
        error = last_words(photos, tmp_path / "out", "--max-reject-rate", "1")
        assert str(victim) in error
        assert "Input/output error" in error
        assert "tried 5 times" in error
        assert not (tmp_path / "out").exists()


def last_words(source: object, output: object, *options: object) -> str:
    """Runs `convert`, which must end with 1; returns its error, the last line."""
    run = failed(1, "convert", source, output, *options)
    error = run.err.splitlines()[-1]
    assert error.startswith("error: ")
    return error


_FLAKY_WORKERS = """
import errno, itertools, os, sys
from beam_pipeline.beam_internals.loading import spare_imports
from beam_pipeline.cli import main
from transforms.storage import retry
retry.POLICY = retry.RetryPolicy(first_pause=0.0)
real, calls = os.pread, itertools.count(1)
def pread(*arguments):
    if os.getpid() != parent and next(calls) % 2:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return real(*arguments)
parent, os.pread = os.getpid(), pread
# The process is the program's own, whose workers are forks.
spare_imports()
main(sys.argv[1:])
"""


def test_retries_of_workers_are_reported(table: Folder, tmp_path: Folder) -> None:
    """Repetitions in other processes come to the terminal too, also when quiet."""
    outs = tmp_path / "outs"
    outs.mkdir()
    arguments = ["convert", table, outs / "out", "--shards", 3, "--quiet"]
    run = python("-c", _FLAKY_WORKERS, *arguments, "--workers", 2)
    assert run.returncode == 0, run.stderr
    lines = run.stderr.splitlines()
    assert lines[0].startswith("warning: ")
    assert lines[0].endswith("Input/output error; it is tried again")
    assert len(lines) <= 6
    assert names(outs) == ["out"]


def test_far_too_little_room(
    table: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run asks for room before anything is read (row 37)."""
    monkeypatch.setattr(sizes, "free_bytes", lambda _: 10)
    error = refused(1, table, tmp_path / "out")
    assert "There must be room for the output" in error
    assert "10 B are free on its file system" in error
    assert names(tmp_path) == []


class TestThreads:
    """What fails in a thread beside the task fails the task (row 16)."""

    @pytest.mark.parametrize("source", ["table", "photos"])
    def test_writing(
        self,
        source: str,
        tmp_path: Folder,
        request: pytest.FixtureRequest,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """The thread that writes one piece behind the encoder; its last piece too."""

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError("the writer broke")

        for name in ("write_framed", "write_pieces"):
            monkeypatch.setattr(TFRecordWriter, name, fail)
        error = refused(1, request.getfixturevalue(source), tmp_path / "out")
        assert "the writer broke" in error
        assert not (tmp_path / "out").exists()

    def test_loading(
        self, photos: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The threads that read images ahead."""
        from transforms.shards import image_loading

        calls = itertools.count()
        real = image_loading.load_image

        def fail(*arguments: Any) -> object:
            if next(calls) == 5:
                raise RuntimeError("the loader broke")
            return real(*arguments)

        monkeypatch.setattr(image_loading, "load_image", fail)
        monkeypatch.setattr(image_loading, "_is_far", lambda *_: True)
        error = refused(1, photos, tmp_path / "out")
        assert "the loader broke" in error
        assert not (tmp_path / "out").exists()
