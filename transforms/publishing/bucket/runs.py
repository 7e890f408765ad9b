"""Runs that are working on a target in an object store.

    .<name>.beam-tfrecord/
      holder            the run that works here: host, process, its start
      others/<run>      runs of other machines beside it

See `transforms.publishing.bucket.target` on what follows from that.
"""

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping

from transforms import files
from transforms.errors import SourceError, StorageError, TargetError
from transforms.storage.object_clients import client_of
from transforms.storage.object_store import OvertakenError
from transforms.storage.paths import work_folder
from transforms.work.versions import put_if, version_of

__all__ = [
    "HOLDER",
    "OTHERS",
    "forget_dead",
    "forget_job",
    "held",
    "names_in",
    "note_job",
    "others",
]

HOLDER = "holder"
OTHERS = "others"
_TOKEN_BYTES = 6
_UNSEEN = "unseen"


@contextlib.contextmanager
def held(directory: str) -> Iterator[str]:
    """Holds the work folder of a target, as far as an object store can hold it.

    Yields "" where no other run can be at work: then files of a fresh target may be put
    into the target itself. Otherwise yields a word that no other run has, and this run
    puts its files into folders of its own.

    Raises:
      TargetError: another run on this machine holds it; or one on another machine
        does, and without the store's client nothing would decide between them.
    """
    folder = work_folder(directory)
    run = _this_run()
    alone = _take(folder, run, decides=client_of(directory) is not None)
    try:
        yield "" if alone else run["run"]
    finally:
        _let_go(folder, run, alone)


def _let_go(folder: str, run: Mapping[str, str], alone: bool) -> None:
    """Removes the notes of a run that ends.

    A failure is ignored: later runs on this machine see that the process is dead.
    """
    notes = [f"{folder}/{HOLDER}"]
    if not alone:
        notes.append(f"{folder}/{OTHERS}/{run['run']}")
    with contextlib.suppress(OSError, SourceError, StorageError):
        for path in notes:
            if _run_at(path) == run:
                files.remove_file(path)
        if client_of(folder) is None and not files.list_tree(folder):
            # Some stores keep a folder that is empty.
            files.remove_tree(folder)


def note_job(directory: str, name: str, *, engine: str, token: str) -> None:
    """Notes a job that an engine runs after the program that submitted it has ended.

    Args:
      directory: the target.
      name: of the job, for a person.
      engine: that runs it, for a person.
      token: a word that no other run has.
    """
    run = {"host": engine, "process": name, "start": "", "run": token}
    path = f"{work_folder(directory)}/{OTHERS}/{token}"
    files.write_file(path, json.dumps(run).encode(), attempts="")


def forget_job(directory: str, token: str) -> None:
    """Removes what `note_job` has written; it may be gone already."""
    files.remove_file(f"{work_folder(directory)}/{OTHERS}/{token}")


def _take(folder: str, run: dict[str, str], *, decides: bool) -> bool:
    """Notes a run in a work folder; returns whether no other can be at work there.

    Args:
      folder: the work folder.
      run: the note.
      decides: whether the store lets only one of two manifests be written.
    """
    path, mine = f"{folder}/{HOLDER}", json.dumps(run).encode()
    while True:
        version = version_of(path)
        holder = _run_at(path) if version else None
        if version and holder is None:
            # The holder has ended between the two requests.
            continue
        if holder is not None and _may_live(holder):
            if not decides or _is_here(holder):
                raise _is_held(path, holder)
            _others_elsewhere(folder)
            files.write_file(f"{folder}/{OTHERS}/{run['run']}", mine, attempts="")
            # Ask again: a run that takes the folder from now on finds this note.
            if _run_at(path) == holder:
                return False
            files.remove_file(f"{folder}/{OTHERS}/{run['run']}")
            continue
        try:
            put_if(path, mine, version)
        except OvertakenError:
            # It may be this run's own, where the answer to a first try was lost.
            if _run_at(path) != run:
                continue
        try:
            return not _others_elsewhere(folder)
        except BaseException:
            _let_go(folder, run, True)
            raise


def others(folder: str) -> list[tuple[str, dict[str, str]]]:
    """Returns (path, note) of other runs that may be alive; removes dead notes."""
    found = []
    for name in names_in(f"{folder}/{OTHERS}"):
        path = f"{folder}/{OTHERS}/{name}"
        run = _run_at(path)
        if run is not None and _may_live(run):
            found.append((path, run))
        else:
            files.remove_file(path)
    return found


def _others_elsewhere(folder: str) -> list[tuple[str, dict[str, str]]]:
    """As `others`; raises TargetError where one of them is a run on this machine."""
    found = others(folder)
    for path, run in found:
        if _is_here(run):
            raise _is_held(path, run)
    return found


def _is_held(path: str, holder: Mapping[str, str]) -> TargetError:
    return TargetError(
        f"Only one run may write to a target at a time; process {holder['process']} on "
        f"{holder['host']!r} holds {path!r}. Wait for it, or write to another output; "
        f"if it is dead, remove what it has left with 'beam-tfrecord clean'."
    )


def _this_run() -> dict[str, str]:
    pid = os.getpid()
    return {
        "host": socket.gethostname(),
        "machine": _machine(),
        "process": str(pid),
        "start": _start_of(pid),
        "run": secrets.token_hex(_TOKEN_BYTES),
    }


def _machine() -> str:
    """Returns what is equal for processes that can see each other's numbers.

    The name of the host is not enough: containers may share it, and each numbers its
    processes from 1.
    """
    found = []
    with contextlib.suppress(OSError), open("/etc/machine-id", "rb") as file:
        found.append(file.read(64).decode("ascii", "replace").strip())
    with contextlib.suppress(OSError):
        found.append(os.readlink("/proc/self/ns/pid"))
    return " ".join(found)


def _start_of(pid: int) -> str:
    """Returns when a process was started, as the kernel counts it.

    A number alone would not do: a later process may get it again. Returns "" if the
    process has ended, `_UNSEEN` if it exists and its start cannot be read.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        # The process name before it may hold anything, even a closing bracket.
        return file.read().rpartition(b")")[2].split()[19].decode()
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        # Another user's.
        pass
    return _UNSEEN


def _is_here(run: Mapping[str, str]) -> bool:
    here = (socket.gethostname(), _machine())
    return (run["host"], run.get("machine", "")) == here


def _may_live(run: Mapping[str, str]) -> bool:
    if not _is_here(run):
        return True
    return _start_of(int(run["process"])) in (run["start"], _UNSEEN)


def _run_at(path: str) -> dict[str, str] | None:
    """Returns the run that a note speaks of; None where there is no such note.

    Raises:
      TargetError: the note is damaged, or another program wrote it.
    """
    try:
        run = json.loads(files.read_bytes(path))
    except FileNotFoundError:
        return None
    except ValueError:
        run = None
    if isinstance(run, dict) and run.keys() >= {"host", "process", "start", "run"}:
        return run
    raise TargetError(
        f"{path!r} must be the note of a run, in JSON, and is not. Make sure that no "
        f"run is at work there, remove it, and run again."
    )


def forget_dead(folder: str, *, sure: bool) -> bool:
    """Removes the notes on dead runs; returns whether no other is noted.

    Args:
      folder: the work folder.
      sure: whether those of other machines are known to be dead. If not, and there are
        such, nothing is removed.

    Raises:
      TargetError: a run on this machine is at work there.
    """
    path = f"{folder}/{HOLDER}"
    runs = others(folder)
    if (holder := _run_at(path)) is not None:
        runs.append((path, holder))
    for noted, run in runs:
        if _is_here(run) and _may_live(run):
            raise _is_held(noted, run)
    if not sure and any(not _is_here(run) for _, run in runs):
        return False
    for noted, run in runs:
        if _run_at(noted) == run:
            files.remove_file(noted)
    return True


def names_in(folder: str) -> list[str]:
    """Returns the names of what is in a folder; none where there is no such."""
    try:
        return files.names_in(folder)
    except FileNotFoundError:
        return []
