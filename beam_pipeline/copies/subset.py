"""A subset of a dataset: choose its records, copy them, publish."""

import contextlib
import dataclasses
import datetime
import hashlib
import json
import os
import platform
from collections.abc import Callable
from typing import BinaryIO

import google_crc32c

from beam_pipeline.copies.chosen_rows import (
    Chosen,
    Relabelling,
    choose,
    relabelling_of,
)
from beam_pipeline.copies.kept_shards import KeptShards
from beam_pipeline.copies.request import Request
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.reading.open_dataset import open_dataset
from beam_pipeline.version import __version__
from transforms import files
from transforms.core.label_map import LABEL_MAP_NAME, parse_label_map
from transforms.core.manifest import (
    Account,
    DerivedFile,
    FileFacts,
    Manifest,
)
from transforms.errors import (
    COMMITTED_NOTE,
    DamageError,
    InputError,
    StorageError,
    TargetError,
)
from transforms.publishing import target, work_folder
from transforms.sidecars.table import pointers_to, render_sidecars
from transforms.storage import folders
from transforms.storage.paths import absolute
from transforms.work.store import Store

__all__ = ["Made", "make_subset"]

_MAKER = "beam-tfrecord"


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A subset that was published.

    Attributes:
      manifest: of the subset.
      whole, changed: how many of its shards are those of the dataset, and how many
        were written again.
      unknown_keys: how many keys no record has.
    """

    manifest: Manifest
    whole: int
    changed: int
    unknown_keys: int


def make_subset(
    dataset: Dataset,
    directory: str,
    request: Request,
    *,
    overwrite: bool = False,
    opened: Callable[[str], BinaryIO],
    say: Callable[[str], None] = lambda _text: None,
) -> Made:
    """Writes a part of a dataset as a dataset of its own.

    Args:
      dataset: that it is a part of.
      directory: where it goes; may be that of the dataset, which it then replaces.
      request: what is asked of it.
      overwrite: whether a dataset there is replaced.
      opened: opens a file of the dataset for reading.
      say: called with what a person should know meanwhile.

    Raises:
      TargetError: the output holds a dataset, or something else.
      UsageError, SpecError: the request does not fit the dataset.
      InputError: no record is left.
      DamageError: the dataset is damaged. Nothing was published.
    """
    started = _now()
    work_folder.recover(directory)
    seen = target.state(directory)
    _check_target(dataset, directory, overwrite=overwrite)
    rows = open_dataset(dataset.directory, labels="names")
    request = _with_key(request, dataset.manifest)
    relabelling = relabelling_of(rows, dataset.manifest, request)
    chosen = choose(rows, request, relabelling)
    if not any(mask.any() for mask in chosen.kept.values()):
        raise InputError(
            f"A subset must have at least one record; of the "
            f"{dataset.manifest.records:,} of {dataset.directory!r} none is left: "
            f"{chosen.skipped}."
        )
    job = _job(dataset.manifest, request)
    store = Store(os.path.join(target.work_folder(directory), job))
    with work_folder.held(directory, job, say) as hold:
        store = work_folder.open_store(directory, hold, store, job=job, seen=seen)
        work_folder.take_over(directory, hold, store)
        store.make()
        if not store.placed:
            # What a killed run has left there is made again: it takes no receipts.
            store.remove_tree(store.dataset)
            folders.make(store.dataset)
        try:
            shards = KeptShards(dataset, chosen, relabelling, opened)
            manifest = _manifest(dataset, request, relabelling, chosen, shards, store)
            run = {
                "subset_of": dataset.directory,
                "started": started,
                "finished": _now(),
                "job": job,
                "notes": [*manifest.run["notes"], *_remarks(chosen)],
                "versions": {"python": platform.python_version(), _MAKER: __version__},
            }
            if store.place:
                run["folder"] = store.place
                run["pointers"] = sorted(pointers_to(store.place, manifest))
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
    return Made(manifest, shards.whole, shards.changed, chosen.unknown_keys)


def _has_published(directory: str, job: str, seen: str) -> bool:
    """Whether what is at the target was written by this very run."""
    try:
        manifest = target.read_manifest(directory)
        return manifest.run.get("job") == job and target.state(directory) != seen
    except (OSError, DamageError, StorageError):
        return False


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _check_target(dataset: Dataset, directory: str, *, overwrite: bool) -> None:
    """Raises TargetError where a subset cannot be published."""
    within = absolute(directory), absolute(dataset.directory)
    if within[0] != within[1] and files.is_inside(*within):
        raise TargetError(
            f"The output must be outside of the dataset; {directory!r} is in "
            f"{dataset.directory!r}. Choose another output."
        )
    there = target.check_contents(directory)
    work_folder.check(directory)
    if there is not None:
        if not overwrite:
            raise target.taken(directory, there)
        target.check_replaceable(directory)


def _with_key(request: Request, manifest: Manifest) -> Request:
    """Returns the request with the feature that holds the keys."""
    dropped = request.dropped
    if dropped is None or dropped.feature:
        return request
    key = str(manifest.settings.get("key_column") or "")
    known = {
        facts.feature.column or facts.feature.name: facts for facts in manifest.features
    }
    if key not in known:
        return request
    feature = known[key].feature.name
    return dataclasses.replace(
        request, dropped=dataclasses.replace(dropped, feature=feature)
    )


def _job(manifest: Manifest, request: Request) -> str:
    facts = json.dumps([manifest.digest, request.to_json(), __version__])
    return hashlib.blake2b(facts.encode(), digest_size=16).hexdigest()


def _remarks(chosen: Chosen) -> list[str]:
    if not chosen.unknown_keys:
        return []
    return [f"{chosen.unknown_keys:,} of the keys to drop are those of no record"]


def _manifest(
    dataset: Dataset,
    request: Request,
    relabelling: Relabelling | None,
    chosen: Chosen,
    shards: KeptShards,
    store: Store,
) -> Manifest:
    """Writes the shards and sidecars; returns the manifest, its run to be filled in."""
    before = dataset.manifest
    splits, features = shards.facts(shards.write(store))
    written = sum(split.records for split in splits)
    inputs = [shard for split in before.splits for shard in split.shards]
    manifest = Manifest(
        name=before.name,
        compression=before.compression,
        features=features,
        splits=splits,
        files=(),
        account=Account(read=before.records, written=written, skipped=chosen.skipped),
        inputs={
            "files": len(inputs),
            "bytes": sum(shard.bytes for shard in inputs),
            "sha256": before.digest,
        },
        settings=dict(before.settings)
        | {"subsets": [*before.settings.get("subsets", ()), request.to_json()]},
        # Which records the notes were about is not known.
        image_notes=before.image_notes if written == before.records else {},
    )
    sidecars = render_sidecars(manifest, _label_map(dataset, relabelling))
    named = [_written(store, *each) for each in sidecars.files.items()]
    derived = tuple(
        DerivedFile(**dataclasses.asdict(facts), maker=_MAKER, version=__version__)
        for facts in (_written(store, *each) for each in sidecars.derived.items())
    )
    return dataclasses.replace(
        manifest,
        files=tuple(named),
        derived=derived,
        run={"notes": list(sidecars.notes)},
    )


def _label_map(dataset: Dataset, relabelling: Relabelling | None) -> dict[int, str]:
    """Returns the dataset's label map, with new names; empty for none."""
    if LABEL_MAP_NAME not in {facts.file for facts in dataset.manifest.files}:
        return {}
    names = parse_label_map(files.read_bytes(dataset.path(LABEL_MAP_NAME)))
    if relabelling is None:
        return names
    new: dict[str, str] = {}
    for facts in dataset.manifest.features:
        if facts.feature.name == relabelling.feature:
            new = dict(zip(facts.classes, relabelling.changes.names, strict=False))
    return {number: new.get(name, name) for number, name in names.items()}


def _written(store: Store, name: str, data: bytes) -> FileFacts:
    store.announce(name)
    path = os.path.join(store.dataset, name)
    files.write_file(path, data, attempts=store.attempts)
    return FileFacts(name, len(data), google_crc32c.value(data))
