"""A target in an object store: held, checked, published.

Nothing can be renamed there, so files are put where they stay, and `manifest.json`
comes last, on the condition that it is still what the run has seen at its start. Until
then what lies there is no dataset; afterwards it is one, whole.

    <target>/manifest.json
    <target>/<files>              of a dataset where none stood before
    <target>/data-<job>/<files>   of a dataset that has replaced one, which its
                                  manifest names, and TFDS's files beside that
    .<name>.beam-tfrecord/        the work folder; see `transforms.work_folder`
      holder                      the run that works here: host, process, its start
      places/<job>                the work digest of each job that puts files there
      names/<work>/<file>         what a job may have put into the target itself
      publishing                  the manifest that is being replaced

Locks that end with their process do not exist there. A run whose process is gone from
this machine is dead, and its work is taken over; of one on another machine nothing is
known, and so it is left alone: the later run puts its files into a folder of their own,
and the manifest decides which of the two has won.
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping

from transforms import files, object_clients
from transforms.core.manifest import MANIFEST_NAME, Manifest
from transforms.errors import CommitError, DamageError, TargetError
from transforms.object_clients import Client, OvertakenError
from transforms.paths import split_remote, work_folder

__all__ = [
    "check_contents",
    "check_replaceable",
    "held",
    "clear",
    "place_of",
    "publish",
    "recover",
    "remove_job",
    "remove_notes",
    "remove_work",
    "state",
]

_HOLDER = "holder"
_NAMES = "names"
_PLACES = "places"
_PUBLISHING = "publishing"
# How many foreign names an error shows.
_SHOWN = 5


def state(directory: str) -> str:
    """Returns a word for the dataset that stands there now; "" for none."""
    path = _manifest_path(directory)
    if (client := _client(path)) is not None:
        return client.version(split_remote(path)[1])
    if not files.is_file(path):
        return ""
    entry = files.stat_entry(path, directory)
    return f"{entry.size}-{entry.modified_ns}"


def check_contents(directory: str) -> Manifest | None:
    """Returns the manifest of the dataset at the target; None where nothing stands.

    Raises:
      TargetError: it holds anything but a dataset of ours, what its manifest names,
        and what runs of ours are putting there; or it cannot be written safely.
    """
    place, key = split_remote(directory)
    if not key.strip("/"):
        raise TargetError(
            f"The output must be a folder in a bucket, as in {place}/dataset; found "
            f"{directory!r}."
        )
    names = _names_in(directory)
    manifest = None
    if MANIFEST_NAME in names:
        path = _manifest_path(directory)
        try:
            manifest = Manifest.from_bytes(files.read_bytes(path), path)
        except (DamageError, OSError) as error:
            raise TargetError(
                f"What stands at {directory!r} cannot be replaced safely: {error} "
                f"Move it away, or choose another output."
            ) from error
    foreign = sorted(set(names) - _known(directory, manifest))
    if foreign:
        what = "what its manifest names" if manifest else "a dataset of this tool"
        raise TargetError(
            f"The output may hold only {what}; {directory!r} holds {_shown(foreign)}. "
            f"Move that away, or choose another output."
        )
    return manifest


def _known(directory: str, manifest: Manifest | None) -> set[str]:
    """Returns the names in a target that are ours: of its dataset, and of runs."""
    folder = work_folder(directory)
    known = {_data(job) for job in _names_in(f"{folder}/{_PLACES}")}
    known |= {name for _, name in _announced(folder)}
    if manifest is not None:
        known |= {MANIFEST_NAME, *manifest.root_names}
        known |= {manifest.folder} - {""}
    return known


@contextlib.contextmanager
def held(directory: str) -> Iterator[bool]:
    """Holds the work folder of a target, as far as that can be.

    Yields whether no other run can be at work; then files of a fresh target may be put
    into the target itself.

    Raises:
      TargetError: another run on this machine holds it; or one on another machine
        does, and without the store's client nothing would decide between them.
    """
    folder = work_folder(directory)
    path = f"{folder}/{_HOLDER}"
    client = _client(directory)
    mine = json.dumps(_this_process()).encode()
    alone = _take(path, mine, client)
    try:
        yield alone
    finally:
        with contextlib.suppress(OSError):
            if alone and files.read_bytes(path) == mine:
                files.remove_file(path)


def check_replaceable(directory: str) -> None:
    """Raises TargetError where a dataset cannot be replaced safely."""
    if _client(directory) is None:
        raise _wants_extra(directory, "Replacing a dataset")


def _take(path: str, mine: bytes, client: Client | None) -> bool:
    while True:
        version = _version(path, client)
        if version:
            holder = _holder(path)
            if holder is None:
                # It went in between.
                continue
            if _may_live(holder):
                if holder["host"] != _this_process()["host"] and client is not None:
                    return False
                raise _is_held(path, holder)
        try:
            _put_if(path, mine, version, client)
        except OvertakenError:
            continue
        return True


def _is_held(path: str, holder: Mapping[str, str]) -> TargetError:
    return TargetError(
        f"Only one run may write to a target at a time; process {holder['process']} on "
        f"{holder['host']!r} holds {path!r}. Wait for it, or write to another output; "
        f"if it is dead, remove what it has left with 'beam-tfrecord clean'."
    )


def _this_process() -> dict[str, str]:
    pid = os.getpid()
    return {"host": socket.gethostname(), "process": str(pid), "start": _start_of(pid)}


def _start_of(pid: int) -> str:
    """Returns when a process was started, as the kernel counts it; "" if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name before it may hold anything, a closing bracket too.
            return file.read().rpartition(b")")[2].split()[19].decode()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return ""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return "alive"
    return ""


def _may_live(holder: dict[str, str]) -> bool:
    if holder["host"] != socket.gethostname():
        return True
    return _start_of(int(holder["process"])) == holder["start"]


def _holder(path: str) -> dict[str, str] | None:
    try:
        return dict(json.loads(files.read_bytes(path)))
    except FileNotFoundError:
        return None


def place_of(
    directory: str, *, alone: bool, job: str, work: str, seen: str
) -> tuple[str, str]:
    """Returns the folder that a job puts its files into, and that of notes on them.

    Where a job has a folder of its own there are no notes on files, but one on that.

    Args:
      directory: the target.
      alone: whether the run alone holds the work folder.
      job: its digest.
      work: its work digest.
      seen: the state of the target when the run started.
    """
    folder = work_folder(directory)
    if alone and not seen:
        return directory, f"{folder}/{_NAMES}/{work}"
    files.write_file(f"{folder}/{_PLACES}/{job}", work.encode(), attempts="")
    return f"{directory}/{_data(job)}", ""


def _announced(folder: str) -> list[tuple[str, str]]:
    """Returns (work digest, file) of all that may have been put into a target."""
    works = _names_in(f"{folder}/{_NAMES}")
    return [(w, name) for w in works for name in _names_in(f"{folder}/{_NAMES}/{w}")]


def remove_work(directory: str, *, but: str = "") -> None:
    """Removes what runs have put into a target and its work folder, but the dataset.

    Args:
      directory: the target.
      but: a work digest whose own stays.
    """
    folder = work_folder(directory)
    kept = _kept(directory)
    for job in _names_in(f"{folder}/{_PLACES}"):
        note = f"{folder}/{_PLACES}/{job}"
        if not but or files.read_bytes(note).decode() != but:
            if _data(job) not in kept:
                files.remove_tree(f"{directory}/{_data(job)}")
            files.remove_file(note)
    for work, name in _announced(folder):
        if work != but:
            if name not in kept:
                files.remove_file(f"{directory}/{name}")
            files.remove_file(f"{folder}/{_NAMES}/{work}/{name}")
    for name in _names_in(folder):
        if name not in (_HOLDER, _PLACES, _NAMES, but):
            files.remove_tree(f"{folder}/{name}")
    if (client := _client(directory)) is not None:
        client.give_up_uploads(f"{split_remote(directory)[1]}/")
        client.give_up_uploads(f"{split_remote(folder)[1]}/")


def remove_job(directory: str, work: str) -> None:
    """Removes what the runs of one work digest have put there, but the dataset."""
    folder = work_folder(directory)
    kept = _kept(directory)
    for job in _names_in(f"{folder}/{_PLACES}"):
        note = f"{folder}/{_PLACES}/{job}"
        if files.read_bytes(note).decode() == work:
            if _data(job) not in kept:
                files.remove_tree(f"{directory}/{_data(job)}")
            files.remove_file(note)
    for name in _names_in(f"{folder}/{_NAMES}/{work}"):
        if name not in kept:
            files.remove_file(f"{directory}/{name}")
    files.remove_tree(f"{folder}/{_NAMES}/{work}")
    files.remove_tree(f"{folder}/{work}")


def remove_notes(directory: str) -> None:
    """Removes all notes on files: those that are there belong to the dataset."""
    folder = work_folder(directory)
    files.remove_tree(f"{folder}/{_PLACES}")
    files.remove_tree(f"{folder}/{_NAMES}")


def clear(directory: str) -> None:
    """Removes all unfinished work on a target; a begun publication is ended first.

    Raises:
      TargetError: a run on this machine is at work there. Of another machine's it is
        taken for granted that it is dead: who calls this knows.
    """
    path = f"{work_folder(directory)}/{_HOLDER}"
    holder = _holder(path)
    if holder and holder["host"] == socket.gethostname() and _may_live(holder):
        raise _is_held(path, holder)
    recover(directory)
    remove_work(directory)
    remove_notes(directory)
    files.remove_file(path)


def _kept(directory: str) -> set[str]:
    """Returns the names in a target that belong to its dataset."""
    path = _manifest_path(directory)
    try:
        manifest = Manifest.from_bytes(files.read_bytes(path), path)
    except FileNotFoundError:
        return set()
    return {*manifest.root_names, manifest.folder, MANIFEST_NAME}


def publish(
    manifest: Manifest, directory: str, *, seen: str, pointers: Mapping[str, bytes]
) -> None:
    """Puts the manifest of a dataset whose files are all there.

    Args:
      manifest: of the dataset.
      directory: the target.
      seen: what `state` was when the run started.
      pointers: file name -> content: what other readers need in the target itself to
        find files in a folder below it.

    Raises:
      CommitError: another run has published meanwhile; its dataset stands.
    """
    path, data = _manifest_path(directory), manifest.to_bytes()
    if seen:
        note = {
            "former": files.read_bytes(path).decode(),
            "new": manifest.digest,
            "pointers": {name: text.decode() for name, text in pointers.items()},
        }
        noted = f"{work_folder(directory)}/{_PUBLISHING}"
        files.write_file(noted, json.dumps(note).encode(), attempts="")
    try:
        _put_if(path, data, seen, _client(directory))
    except OvertakenError as error:
        # The answer to a first try may have been lost.
        if files.read_bytes(path) != data:
            raise CommitError(
                f"The target must be as it was when the run started; {directory!r} was "
                f"written by another run since. Its dataset stands; run again."
            ) from error
    recover(directory)


def recover(directory: str) -> None:
    """Ends what a publication has begun; safe to call at any time."""
    note = f"{work_folder(directory)}/{_PUBLISHING}"
    try:
        noted = json.loads(files.read_bytes(note))
    except FileNotFoundError:
        return
    former = Manifest.from_bytes(noted["former"].encode(), note)
    path = _manifest_path(directory)
    manifest = Manifest.from_bytes(files.read_bytes(path), path)
    if manifest.to_bytes() != former.to_bytes():
        if manifest.digest == noted["new"]:
            for name, text in sorted(noted["pointers"].items()):
                files.write_file(f"{directory}/{name}", text.encode(), attempts="")
        kept = {*manifest.root_names, MANIFEST_NAME}
        for name in former.root_names:
            if name not in kept:
                files.remove_file(f"{directory}/{name}")
        if former.folder and former.folder != manifest.folder:
            for name in former.file_names:
                files.remove_file(f"{directory}/{former.folder}/{name}")
        elif former.folder:
            for name in sorted({*former.file_names} - {*manifest.file_names}):
                files.remove_file(f"{directory}/{former.folder}/{name}")
    files.remove_file(note)


def _put_if(path: str, data: bytes, version: str, client: Client | None) -> None:
    """Writes an object if it is still of a version; without a client if it is new."""
    if client is not None:
        from transforms.retry import persistently

        key = split_remote(path)[1]
        persistently(lambda: client.put_if(key, data, version), path=path)
        return
    if files.exists(path) and not path.endswith(f"/{_HOLDER}"):
        raise OvertakenError(path)
    files.write_file(path, data, attempts="")


def _version(path: str, client: Client | None) -> str:
    if client is not None:
        from transforms.retry import persistently

        key = split_remote(path)[1]
        return persistently(lambda: client.version(key), path=path)
    return "there" if files.exists(path) else ""


def _client(path: str) -> Client | None:
    return object_clients.client_of(path)


def _wants_extra(path: str, what: str) -> TargetError:
    extra = object_clients.extra_of(path)
    advice = (
        f"Install it with pip install 'beam-tfrecord[{extra}]', or choose"
        if extra
        else "Choose"
    )
    return TargetError(
        f"{what} needs a store that writes on a condition, and its own client; "
        f"{split_remote(path)[0]!r} is reached without one. {advice} another output."
    )


def _data(job: str) -> str:
    return f"data-{job}"


def _manifest_path(directory: str) -> str:
    return f"{directory}/{MANIFEST_NAME}"


def _names_in(folder: str) -> list[str]:
    try:
        return files.names_in(folder)
    except FileNotFoundError:
        return []


def _shown(names: list[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
