"""Publish a dataset that is made of others, as `convert` publishes one."""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.copies.derived_copies import (
    CopiedShard,
    derived_copies,
    write_beside,
)
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.version import __version__
from transforms import files
from transforms.core.manifest import DerivedFile, Manifest
from transforms.errors import (
    COMMITTED_NOTE,
    DamageError,
    StorageError,
    TargetError,
)
from transforms.publishing import target, work_folder
from transforms.sidecars.table import pointers_to, render_sidecars
from transforms.storage import folders
from transforms.storage.paths import absolute
from transforms.work.store import Store

_MAKER = "beam-tfrecord"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a dataset is to be published.

    Attributes:
      directory: the target.
      seen: what `target.state` said of it.
      started: when the run was.
    """

    directory: str
    seen: str
    started: str


def look_at(directory: str, sources: Sequence[Dataset], *, overwrite: bool) -> Place:
    """Looks at a target before anything is read for it.

    Args:
      directory: the target; may be that of a source, which is then replaced.
      sources: that it is made of.
      overwrite: whether a dataset there is replaced.

    Raises:
      TargetError: the output holds a dataset, or something else.
    """
    started = _now()
    work_folder.recover(directory)
    seen = target.state(directory)
    for source in sources:
        within = absolute(directory), absolute(source.directory)
        if within[0] != within[1] and files.is_inside(*within):
            raise TargetError(
                f"The output must be outside of the dataset; {directory!r} is in "
                f"{source.directory!r}. Choose another output."
            )
    there = target.check_contents(directory)
    work_folder.check(directory)
    if there is not None:
        if not overwrite:
            raise target.taken(directory, there)
        target.check_replaceable(directory)
    return Place(directory, seen, started)


def publish_copy(
    place: Place,
    decides: object,
    build: Callable[[Store], Manifest],
    say: Callable[[str], None],
) -> Manifest:
    """Builds a dataset in a work folder and publishes it, whole or not at all.

    Args:
      place: the target, as `look_at` has returned it.
      decides: JSON of all that decides the dataset's bytes.
      build: writes the files into a store's `dataset`; returns the manifest, whose
        `run` is to be completed.
      say: called with what a person should know meanwhile.

    Raises:
      TargetError: another run is at work there.
      CommitError: the target has changed meanwhile. Nothing was published.
    """
    directory, seen = place.directory, place.seen
    text = json.dumps([decides, __version__]).encode()
    job = hashlib.blake2b(text, digest_size=16).hexdigest()
    store = Store(os.path.join(target.work_folder(directory), job))
    with work_folder.held(directory, job, say) as hold:
        store = work_folder.open_store(directory, hold, store, job=job, seen=seen)
        work_folder.take_over(directory, hold, store)
        store.make()
        if not store.placed:
            # What a killed run has left there is made again: it left no receipts.
            store.remove_tree(store.dataset)
            folders.make(store.dataset)
        try:
            manifest = build(store)
            run = _run(manifest, place, job, store)
            manifest = dataclasses.replace(manifest, run=run)
            target.at(directory).publish(store, manifest, seen=seen)
        except BaseException as error:
            # The first error is the one to report; the next run clears up.
            with contextlib.suppress(OSError, StorageError):
                if _has_published(directory, job, seen):
                    error.add_note(COMMITTED_NOTE)
                    work_folder.end(directory, hold, store, keeps_work=False)
                else:
                    work_folder.leave(directory, hold, store, seen=seen)
            raise
        try:
            work_folder.end(directory, hold, store, keeps_work=False)
        except (OSError, StorageError) as error:
            error.add_note(COMMITTED_NOTE)
            raise
    return manifest


def _run(manifest: Manifest, place: Place, job: str, store: Store) -> dict[str, Any]:
    run = {
        **manifest.run,
        "started": place.started,
        "finished": _now(),
        "job": job,
        "versions": {"python": platform.python_version(), _MAKER: __version__},
    }
    if store.place:
        run["folder"] = store.place
        run["pointers"] = sorted(pointers_to(store.place, manifest))
    return run


def _has_published(directory: str, job: str, seen: str) -> bool:
    """Whether what is at the target was written by this very run."""
    try:
        manifest = target.read_manifest(directory)
        return manifest.run.get("job") == job and target.state(directory) != seen
    except (OSError, DamageError, StorageError):
        return False


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def with_sidecars(
    manifest: Manifest,
    label_map: Mapping[int, str],
    sources: Mapping[str, CopiedShard],
    store: Store,
) -> Manifest:
    """Writes the sidecars of a dataset; returns its manifest, which names them.

    Args:
      manifest: of the dataset, whose shards are written.
      label_map: class id -> name, for a label map; empty for none.
      sources: name of each shard -> where its records come from.
      store: where the files go.
    """
    sidecars = render_sidecars(manifest, label_map)
    named = [write_beside(store, *each) for each in sidecars.files.items()]
    readers_files = [
        *(write_beside(store, *each) for each in sidecars.derived.items()),
        *derived_copies(manifest, sources, store),
    ]
    derived = tuple(
        DerivedFile(**dataclasses.asdict(facts), maker=_MAKER, version=__version__)
        for facts in sorted(readers_files, key=lambda facts: facts.file)
    )
    notes = [*manifest.run.get("notes", ()), *sidecars.notes]
    return dataclasses.replace(
        manifest,
        files=tuple(named),
        derived=derived,
        run={**manifest.run, "notes": notes},
    )
