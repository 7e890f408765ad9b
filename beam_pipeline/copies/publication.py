"""Publish a dataset that is made of others, as `convert` publishes one."""

import dataclasses
import datetime
import hashlib
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_pipeline.copies.derived_copies import MAKER, with_sidecars
from beam_pipeline.copies.shard_copies import CopiedShard
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.version import __version__, deciding_versions
from transforms.core.manifest import Account, FeatureFacts, Manifest, SplitFacts
from transforms.errors import TargetError
from transforms.publishing import target
from transforms.storage import folders
from transforms.storage.files import storage
from transforms.storage.paths import absolute
from transforms.work.store import Store


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A dataset that was made of others and published.

    Attributes:
      manifest: of the new dataset.
      whole, changed: how many of its shards are as they were, and how many were written
        again.
    """

    manifest: Manifest
    whole: int
    changed: int


@dataclasses.dataclass(frozen=True, slots=True)
class Output:
    """Where a dataset is to be published.

    Attributes:
      directory: the target.
      seen: what `Target.state` said of it.
      started: when the run was.
    """

    directory: str
    seen: str
    started: str


def look_at(directory: str, sources: Sequence[Dataset], *, overwrite: bool) -> Output:
    """Looks at a target before anything is read for it.

    Args:
      directory: the target; may be that of a source, which is then replaced.
      sources: that it is made of.
      overwrite: whether a dataset there is replaced.

    Raises:
      TargetError: the output holds a dataset, or something else.
    """
    started, there = _now(), target.at(directory)
    there.recover()
    seen = there.state()
    for source in sources:
        within = absolute(directory), absolute(source.directory)
        if within[0] != within[1] and storage(within[0]).is_inside(within[1]):
            raise TargetError(
                f"The output must be outside of the dataset; {directory!r} is in "
                f"{source.directory!r}. Choose another output."
            )
    manifest = there.check_contents()
    if manifest is not None:
        if not overwrite:
            raise target.taken(directory, manifest)
        there.check_replaceable()
    return Output(directory, seen, started)


def publish_copy(
    output: Output,
    decides: object,
    sources: Mapping[str, CopiedShard],
    build: Callable[[Store], Manifest],
    label_map: Mapping[int, str],
) -> Made:
    """Builds a dataset in a work folder and publishes it, whole or not at all.

    Args:
      output: the target, as `look_at` has returned it.
      decides: JSON of all that decides the dataset's bytes.
      sources: name of each shard -> where its records come from.
      build: writes the shards into a store's `dataset`; returns the manifest, which
        the files beside the shards are to be added to.
      label_map: class id -> name, for a label map; empty for none.

    Raises:
      TargetError: another run is at work there.
      CommitError: the target has changed meanwhile. Nothing was published.
    """
    directory, seen = output.directory, output.seen
    text = json.dumps([decides, deciding_versions()]).encode()
    job = hashlib.blake2b(text, digest_size=16).hexdigest()
    there = target.at(directory)
    store = Store(there.work_path(job, seen=seen))
    with target.at_work(there, store, job=job, seen=seen) as (store, _):
        if not store.placed:
            # What a killed run has left there is made again: it left no receipts.
            store.remove_tree(store.dataset)
            folders.make(store.dataset)
        manifest = with_sidecars(build(store), label_map, sources, store)
        run = {
            **manifest.run,
            "started": output.started,
            "finished": _now(),
            "job": job,
            "versions": {"python": platform.python_version(), MAKER: __version__},
        }
        manifest = dataclasses.replace(manifest, run=run)
        there.publish(store, manifest, seen=seen)
    whole = sum(shard.is_whole for shard in sources.values())
    return Made(manifest, whole, len(sources) - whole)


def copied_manifest(
    before: Sequence[Manifest],
    features: tuple[FeatureFacts, ...],
    splits: tuple[SplitFacts, ...],
    *,
    sha256: str,
    skipped: Mapping[str, int],
    **more: Any,
) -> Manifest:
    """Returns the manifest of copied shards, without the files beside them.

    Args:
      before: the manifests of the datasets that the shards come from.
      features, splits: of the copy.
      sha256: identifies those datasets.
      skipped: records that were left out, by reason.
      more: the settings, image notes and run of the manifest.
    """
    shards = [shard for m in before for split in m.splits for shard in split.shards]
    size = sum(shard.bytes for shard in shards)
    return Manifest(
        name=before[0].name,
        compression=before[0].compression,
        features=features,
        splits=splits,
        files=(),
        account=Account(
            read=sum(manifest.records for manifest in before),
            written=sum(split.records for split in splits),
            skipped=skipped,
        ),
        inputs={"files": len(shards), "bytes": size, "sha256": sha256},
        **more,
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
