"""Where a dataset is published, on a disk or in an object store.

`transforms.publishing.published` has the one way there, `Target`.
`transforms.publishing.local` is that of a disk, and `transforms.publishing.bucket` that
of an object store; `at` alone chooses.
"""

import contextlib
from collections.abc import Callable, Iterator

from transforms.core.manifest import Manifest
from transforms.errors import (
    COMMITTED_NOTE,
    CommitError,
    DamageError,
    RaceError,
    StorageError,
    TargetError,
)
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
        f"{f' ({why})' if why else ''}. Use --overwrite (in Python overwrite=True) to "
        f"replace it, or choose another output."
    )


@contextlib.contextmanager
def at_work(
    target: Target,
    store: Store,
    *,
    job: str,
    seen: str,
    alone: bool = False,
    say: Callable[[str], None] = lambda _text: None,
) -> Iterator[tuple[Store, bool]]:
    """Holds a target for a run; yields its store, and whether it has finished work.

    What an earlier run of the same work has finished is reused; on a disk, what other
    jobs left is removed. Finished work stays after a failure, and is removed after a
    success.

    Args:
      target: of the run.
      store: at `Target.work_path`.
      job, seen, alone: see `Target.open_store`.
      say: called with what was found.

    Raises:
      TargetError: another run holds it, or it cannot be made.
      CommitError: the target has changed since `seen`.
    """
    with target.held():
        store = target.open_store(store, job=job, seen=seen, alone=alone)
        resumes, text = _take_over(target, store)
        store.make()
        if text:
            say(text)
        try:
            yield store, resumes
        except BaseException as error:
            later: CommitError | None = None
            # The first error is the one to report; the next run clears up.
            with contextlib.suppress(OSError, StorageError):
                if has_published(target, store, job=job, seen=seen):
                    # On a disk another run of the job may have done all of it again.
                    if store.placed or not isinstance(error, RaceError):
                        error.add_note(COMMITTED_NOTE)
                    target.end(store)
                elif target.leave(store, seen=seen):
                    later = overtaken(target.directory)
            if later is not None and isinstance(error, Exception):
                # Another run may have removed the files that this one was using.
                raise later from error
            raise
        try:
            target.end(store)
        except (OSError, StorageError) as error:
            error.add_note(COMMITTED_NOTE)
            raise


def has_published(target: Target, store: Store, *, job: str, seen: str) -> bool:
    """Whether what is at the target is of this very job, and new.

    In an object store another run of the job may have put it, of the same files.
    """
    try:
        manifest = read_manifest(target.directory)
        now = target.state()
    except (OSError, DamageError, StorageError):
        return False
    mine = manifest.run.get("job") == job and manifest.folder == store.place
    return mine and now != seen


def _take_over(target: Target, store: Store) -> tuple[bool, str]:
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
            f"going on where an earlier run ended: {', '.join(done)}; finished work on "
            f"unchanged files is used again"
        )
    elif discarded:
        said = (
            "starting afresh: the unfinished work of an earlier run was for other "
            "settings"
        )
    return bool(done), said
