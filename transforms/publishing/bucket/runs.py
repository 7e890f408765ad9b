"""Runs that are working on a target in an object store.

    .<name>.beam-tfrecord/
      holder            the run that works here: host, process, its start, its job
      others/<run>      runs of other machines beside it

A note is also the lease of its run; see `transforms.work.lease`. See
`transforms.publishing.bucket.target` on what follows from that.
"""

import contextlib
import dataclasses
import enum
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from transforms import files
from transforms.core.manifest import DERIVED_FOLDERS
from transforms.errors import BusyError, SourceError, StorageError, TargetError
from transforms.storage.object_clients import client_of
from transforms.storage.object_store import Look, OvertakenError
from transforms.storage.paths import work_folder
from transforms.work.lease import (
    EXPIRY_SECONDS,
    Lease,
    is_leased,
    leased,
    note_at,
    renewed,
    runs_out,
)
from transforms.work.versions import look_at, put_if

HOLDER = "holder"
OTHERS = "others"
_TOKEN_BYTES = 6
_UNSEEN = "unseen"
# Stores tell times in whole seconds.
_SECOND = 1.0


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """A work folder that a run holds.

    Attributes:
      apart: a word for the run where another may be at work there; else empty. See
        `transforms.publishing.bucket.target`.
      lease: of the run; None on a disk, where a lock does its work. Only a store that
        writes on a condition keeps it.
      former: the note of the run whose expired lease this one has taken; None for none.
        That run may only be paused, so what it left stays until this one has published.
    """

    apart: str = ""
    lease: Lease | None = None
    former: Mapping[str, Any] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether another run has taken the lease, as the store says now."""
        return self.lease is not None and self.lease.is_taken


class State(enum.Enum):
    """What is known of a run."""

    HERE = enum.auto()  # its process runs on this machine
    GONE = enum.auto()  # it ran on this machine, and nothing of it is left
    EXPIRED = enum.auto()  # nobody has renewed its lease; it may be paused
    UNKNOWN = enum.auto()  # it may be alive elsewhere


@contextlib.contextmanager
def held(
    directory: str, job: str = "", say: Callable[[str], None] = lambda _text: None
) -> Iterator[Hold]:
    """Holds the work folder of a target, as far as an object store can hold it.

    Where the hold is not `apart`, files of a fresh target may be put into the target
    itself. Otherwise this run puts its files into folders of its own.

    Args:
      directory: the target.
      job: digest of the job; a run of the same one is taken over once its lease has
        expired. Empty for none.
      say: called with what the run waits for.

    Raises:
      TargetError: another run on this machine holds it; or one on another machine
        does, and without the store's client nothing would decide between them.
    """
    folder = work_folder(directory)
    run = {**this_run(), "job": job}
    decides = client_of(directory) is not None
    hold = _take(folder, leased(run) if decides else run, decides, say)
    try:
        with (
            renewed(hold.lease) if decides and hold.lease else contextlib.nullcontext()
        ):
            yield hold
    finally:
        _let_go(folder, run["run"])


def _let_go(folder: str, run: str) -> None:
    """Removes the notes of a run that ends.

    A failure is ignored: later runs on this machine see that the process is dead.
    """
    with contextlib.suppress(OSError, SourceError, StorageError):
        for path in (f"{folder}/{HOLDER}", f"{folder}/{OTHERS}/{run}"):
            note = note_at(path)
            if note is not None and note["run"] == run:
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
    path = job_lease(directory, token).path
    files.write_file(path, json.dumps(run).encode(), attempts="")


def job_lease(directory: str, token: str) -> Lease:
    """Returns the lease of a job that `note_job` has noted; its workers renew it."""
    return Lease(f"{work_folder(directory)}/{OTHERS}/{token}", token)


def forget_job(directory: str, token: str) -> None:
    """Removes what `note_job` has written; it may be gone already."""
    files.remove_file(job_lease(directory, token).path)


def _take(
    folder: str, run: dict[str, Any], decides: bool, say: Callable[[str], None]
) -> Hold:
    """Notes a run in a work folder.

    Args:
      folder: the work folder.
      run: the note.
      decides: whether the store lets only one of two manifests be written.
      say: see `held`.
    """
    path, word, mine = f"{folder}/{HOLDER}", run["run"], json.dumps(run).encode()
    beside_it = Lease(f"{folder}/{OTHERS}/{word}", word)
    waits = True
    while True:
        look = look_at(path)
        holder = note_at(path) if look.version else None
        if look.version and holder is None:
            # The holder has ended between the two requests.
            continue
        former = None
        if holder is not None and (state := _state(holder, look)) is not State.GONE:
            if not decides or state is State.HERE:
                raise _is_held(path, holder)
            goes_on = is_leased(holder) and run["job"] == holder.get("job")
            if goes_on and state is State.UNKNOWN and waits:
                say(_waiting(holder, look))
                waits = runs_out(path, look)
                continue
            if not goes_on or state is not State.EXPIRED:
                _others_elsewhere(folder)
                files.write_file(beside_it.path, mine, attempts="")
                # Ask again: a run that takes the folder from now on finds this note.
                if _is_of(path, holder):
                    return Hold(word, beside_it)
                files.remove_file(beside_it.path)
                continue
            former = holder
        try:
            put_if(path, mine, look.version)
        except OvertakenError:
            # It may be this run's own, where the answer to a first try was lost.
            if not _is_of(path, run):
                continue
        try:
            is_alone = not _others_elsewhere(folder)
        except BaseException:
            _let_go(folder, word)
            raise
        return (
            Hold("", Lease(path, word), former)
            if is_alone
            else Hold(word, Lease(path, word))
        )


def _waiting(holder: Mapping[str, Any], look: Look) -> str:
    return (
        f"process {holder['process']} on {holder['host']!r} was at work on the same "
        f"job {look.age:.0f} seconds ago; this run takes its work over if nothing is "
        f"heard of it for {EXPIRY_SECONDS:.0f} seconds"
    )


def _is_of(path: str, run: Mapping[str, Any]) -> bool:
    """Whether a note is there, and of a run."""
    note = note_at(path)
    return note is not None and note["run"] == run["run"]


def others(folder: str) -> list[tuple[str, dict[str, Any]]]:
    """Returns (path, note) of other runs that may be alive; removes dead notes."""
    found = []
    for name in names_in(f"{folder}/{OTHERS}"):
        path = f"{folder}/{OTHERS}/{name}"
        run = note_at(path)
        if run is not None and _state(run, Look()) is not State.GONE:
            found.append((path, run))
        else:
            files.remove_file(path)
    return found


def _others_elsewhere(folder: str) -> list[tuple[str, dict[str, Any]]]:
    """As `others`; raises TargetError where one of them is a run on this machine."""
    found = others(folder)
    for path, run in found:
        if _state(run, Look()) is State.HERE:
            raise _is_held(path, run)
    return found


def beside(folder: str, hold: Hold) -> list[tuple[str, dict[str, Any]]]:
    """Returns (path, note) of all runs that may be alive but the one that asks."""
    mine = "" if hold.lease is None else hold.lease.run
    path = f"{folder}/{HOLDER}"
    holder = note_at(path)
    runs = [*others(folder), *([] if holder is None else [(path, holder)])]
    return [(path, run) for path, run in runs if run["run"] != mine]


def forget_expired(folder: str, hold: Hold, manifest: Look) -> bool:
    """Removes the notes of runs that cannot publish any more; returns whether any was.

    That is, of runs whose lease was last renewed before the current manifest was put:
    they have seen the target before that. Such a run may be paused. It finds that its
    note is gone, and ends.

    Args:
      folder: the work folder.
      hold: of the run that asks.
      manifest: what the store says of the target's manifest.
    """
    found = False
    for path, _ in beside(folder, hold):
        look, run = look_at(path), note_at(path)
        if run is not None and _is_over(run, look, manifest):
            files.remove_file(path)
            found = True
    return found


def _is_over(run: Mapping[str, Any], look: Look, manifest: Look) -> bool:
    expired = _state(run, look) is State.EXPIRED
    return expired and bool(manifest.version) and look.age > manifest.age + _SECOND


def _is_held(path: str, holder: Mapping[str, str]) -> BusyError:
    return BusyError(
        f"Only one run may write to a target at a time; process {holder['process']} on "
        f"{holder['host']!r} holds {path!r}. Wait for it, or write to another output; "
        f"if it is dead, remove what it has left with 'beam-tfrecord clean'."
    )


def this_run() -> dict[str, str]:
    """Returns the note on a run of this very process."""
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


def _state(run: Mapping[str, Any], look: Look) -> State:
    """Returns what is known of a run by its note, and by what the store says of that.

    Where an engine runs the job, the end of the process that submitted it says nothing.
    """
    if (run["host"], run.get("machine", "")) == (socket.gethostname(), _machine()):
        if _start_of(int(run["process"])) in (run["start"], _UNSEEN):
            return State.HERE
        if not run.get("engine"):
            return State.GONE
    is_old = is_leased(run) and look.age >= EXPIRY_SECONDS
    return State.EXPIRED if is_old else State.UNKNOWN


def state_of(path: str) -> State:
    """Returns what is known of a run by its note alone, which may be missing."""
    try:
        note = note_at(path)
    except TargetError:
        note = None
    return State.UNKNOWN if note is None else _state(note, Look())


def forget_dead(folder: str, manifest: Look, *, sure: bool) -> bool:
    """Removes the notes on dead runs; returns whether no other is noted.

    Args:
      folder: the work folder.
      manifest: what the store says of the target's manifest.
      sure: whether those of other machines are known to be dead. If not, and there are
        such that may still publish, nothing is removed.

    Raises:
      TargetError: a run on this machine is at work there.
    """
    runs = [(path, run, look_at(path)) for path, run in beside(folder, Hold())]
    for path, run, look in runs:
        if (state := _state(run, look)) is State.HERE:
            raise _is_held(path, run)
        is_dead = state is State.GONE or _is_over(run, look, manifest)
        if not (sure or is_dead):
            return False
    for path, run, _ in runs:
        if _is_of(path, run):
            files.remove_file(path)
    return True


def names_in(folder: str) -> list[str]:
    """Returns the names of what is in a folder; none where there is no such."""
    try:
        return files.names_in(folder)
    except FileNotFoundError:
        return []


def names_with(folder: str) -> list[str]:
    """As `names_in`, with the names in the folders of derived files as `index/...`."""
    try:
        return files.names_with(folder, DERIVED_FOLDERS)
    except FileNotFoundError:
        return []
