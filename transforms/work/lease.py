"""Leases: how runs on other machines know that a run is alive.

    .<name>.beam-tfrecord/
      holder            the note of the run that works here, as JSON
      others/<run>      notes of runs beside it

A note is the lease of its run. Whoever may still write for the run writes the note
again every `RENEW_SECONDS`: the program that submitted it, and each worker that has a
task. What counts is the age of the object, which the store says by its own clock in one
answer. After `EXPIRY_SECONDS` another run may take over: it writes its own note, on the
condition that the object is still the one that it looked at.

A lease proves nothing about a process that was paused: two runs may both believe that
they hold the target. Only one of them can publish, because the manifest too is written
on a condition.
"""

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from transforms import files
from transforms.errors import CommitError, StorageError, TargetError
from transforms.storage.object_store import Look, OvertakenError
from transforms.work.versions import look_at, put_if

RENEW_SECONDS = 15.0
"""Between two renewals."""
EXPIRY_SECONDS = 60.0
"""From the last renewal until another run may take over."""

# Another process of the run may have renewed it a moment ago.
_RECENT_SECONDS = RENEW_SECONDS / 2
_LOOK_SECONDS = 1.0
# The field of a note that somebody renews. A note without it never expires: it is of an
# older version, of a store without conditions, or of a job that was handed over and has
# not started.
_LEASED = "leased"
# How often a note was renewed.
_RENEWALS = "renewals"
# The runs of which this process knows that others have taken their leases.
_taken: set[str] = set()


@dataclasses.dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a run.

    Attributes:
      path: of its note.
      run: a word that no other run has.
    """

    path: str
    run: str

    @property
    def is_taken(self) -> bool:
        """Whether the note is no longer this run's, as the store says now."""
        note = note_at(self.path)
        return note is None or note["run"] != self.run


def leased(note: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a note that is going to be renewed."""
    return {**note, _LEASED: True}


def is_leased(note: Mapping[str, Any]) -> bool:
    """Whether a note is renewed as long as its run is alive."""
    return bool(note.get(_LEASED))


def note_at(path: str) -> dict[str, Any] | None:
    """Returns the note on a run; None where there is no such note.

    Raises:
      TargetError: the note is damaged, or another program wrote it.
    """
    try:
        note = json.loads(files.read_bytes(path))
    except FileNotFoundError:
        return None
    except ValueError:
        note = None
    if isinstance(note, dict) and note.keys() >= {"host", "process", "start", "run"}:
        return note
    raise TargetError(
        f"{path!r} must be the note of a run, in JSON, and is not. Make sure that no "
        f"run is at work there, remove it, and run again."
    )


def renew(lease: Lease) -> None:
    """Renews a lease, unless another process of the run has done so just now.

    Raises:
      CommitError: it is another run's by now, or was removed.
    """
    look, note = look_at(lease.path), note_at(lease.path)
    if note is None or note["run"] != lease.run:
        _taken.add(lease.run)
        check_held(lease)
    elif look.age >= _RECENT_SECONDS or not is_leased(note):
        # Other bytes each time: the version that S3 tells is a digest of the content.
        again = {**leased(note), _RENEWALS: int(note.get(_RENEWALS, 0)) + 1}
        # Where another process was quicker, the lease is renewed.
        with contextlib.suppress(OvertakenError):
            put_if(lease.path, json.dumps(again).encode(), look.version)


def describe(lease: Lease, facts: Mapping[str, str]) -> None:
    """Adds facts to the note of a run, for the run that may take it over.

    Raises:
      CommitError: it is another run's by now, or was removed.
    """
    while True:
        look, note = look_at(lease.path), note_at(lease.path)
        if note is None or note["run"] != lease.run:
            _taken.add(lease.run)
            check_held(lease)
            return
        with contextlib.suppress(OvertakenError):
            put_if(lease.path, json.dumps({**note, **facts}).encode(), look.version)
            return


def check_held(lease: Lease | None) -> None:
    """Raises CommitError where this process knows that a lease was taken."""
    if lease is not None and lease.run in _taken:
        raise CommitError(
            f"A run must renew {lease.path!r} within {EXPIRY_SECONDS:.0f} seconds; it "
            f"did not, and another run has taken its place. This one has committed "
            f"nothing; look at what the other one says."
        )


@contextlib.contextmanager
def renewed(lease: Lease) -> Iterator[None]:
    """Renews a lease from a thread of its own meanwhile."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(RENEW_SECONDS):
            try:
                renew(lease)
            except CommitError:
                return
            except (OSError, StorageError):
                # The store may answer again before the lease expires.
                continue

    thread = threading.Thread(target=work, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def runs_out(path: str, look: Look) -> bool:
    """Waits until a lease is renewed or expires; returns whether it has expired.

    Args:
      path: of the note.
      look: what the store last said about it.
    """
    end = time.monotonic() + EXPIRY_SECONDS - look.age
    while time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
        if look_at(path).version != look.version:
            return False
    return True
