"""Where a dataset is published, on a disk or in an object store.

`transforms.publishing.published` has the one way there, `Target`.
`transforms.publishing.local` is that of a disk, and `transforms.publishing.bucket` that
of an object store; `at` alone chooses.
"""

from transforms.core.manifest import Manifest
from transforms.errors import TargetError
from transforms.publishing.bucket import BucketTarget
from transforms.publishing.local import LocalTarget
from transforms.publishing.published import Target
from transforms.publishing.published import overtaken as overtaken
from transforms.publishing.published import read_manifest as read_manifest
from transforms.storage.paths import absolute, is_remote
from transforms.work.receipts import count_finished
from transforms.work.store import Store

REJECTS_SUFFIX = ".rejects.jsonl"
"""Ends the name of the rejects that a failed run leaves beside its target."""


def at(directory: str) -> Target:
    """Returns the target at a path: in an object store, or on a disk."""
    return BucketTarget(directory) if is_remote(directory) else LocalTarget(directory)


def rejects_path(target: str) -> str:
    """Returns where a run that failed for too many rejects leaves them."""
    return f"{absolute(target)}{REJECTS_SUFFIX}"


def taken(directory: str, manifest: Manifest, why: str = "") -> TargetError:
    """Returns the error of a target that holds a dataset already."""
    return TargetError(
        f"The output must not exist yet; {directory!r} holds the dataset "
        f"{manifest.name!r} of {manifest.records:,} records"
        f"{f' ({why})' if why else ''}. Use --overwrite to replace it, or choose "
        f"another output."
    )


def take_over(target: Target, store: Store) -> tuple[bool, str]:
    """Removes the work of other dead jobs, and looks for what is left of this one.

    Args:
      target: whose work folder is held.
      store: of the job, as `Target.open_store` has given it.

    Returns:
      Whether this run may take finished work over, and a line for the user, which is
      empty where there is nothing to say.
    """
    discarded, done = target.remove_others(store), []
    for count, noun, verb in zip(
        count_finished(store), ("block", "shard"), ("read", "written"), strict=True
    ):
        if count:
            done.append(f"{count:,} {noun}{'s' if count != 1 else ''} {verb}")
    said = ""
    if done:
        said = (
            f"going on where an earlier run ended: {', '.join(done)}; what is of "
            f"unchanged files and whole is used again"
        )
    elif discarded:
        said = (
            "starting afresh: the unfinished work of an earlier run was for other "
            "settings"
        )
    return bool(done), said
