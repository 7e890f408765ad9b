"""Where a dataset is published, and the runs that publish there.

`transforms.publishing.published` has the one way there, `Target`.
`transforms.publishing.local` is that of a disk, and `transforms.publishing.bucket` that
of an object store; `at` alone chooses. A run holds its target (`at_work`), unless its
workers come and go: then none of them can hold it for the others (`SharedRun`).

    .<name>.beam-tfrecord/
      rows-<token>/             see `transforms.work.store`
        seen-<job>              the state of the target when a submission started
        segments/               spooled rows, one file a piece, and segments of shards
        dataset/<plan>/         the dataset of one plan
        rejects/<plan>/         its rejects, where there are many

Engines repeat work, and what a step of the user gives may differ from attempt to
attempt. So each attempt spools its rows under names of its own, and the plan names the
pieces that count. All that is written behind the plan is a function of these and of the
plan: a second attempt writes the same bytes under the same names, and another plan has
other folders. Whether the target holds the run's own dataset already is known by the
manifest, which names the run's token and the submission.

Two runs publish in turn: the first one wins, and the other finds that the target has
changed. A run may be alive with nothing of it to be seen, so its folder stays until it
ends by itself or `beam-tfrecord clean --pipelines` removes it.
"""

import contextlib
import dataclasses
import hashlib
import os
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
from transforms.publishing.published import (
    SHARED,
    Target,
    bytes_or_none,
    manifest_or_none,
)
from transforms.publishing.published import overtaken as overtaken
from transforms.publishing.published import read_manifest as read_manifest
from transforms.storage.files import storage
from transforms.storage.paths import Access, absolute, is_remote, work_folder
from transforms.storage.retry import storing
from transforms.storage.visibility import invisible
from transforms.work.receipts import count_finished
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules, unreachable

REJECTS_SUFFIX = ".rejects.jsonl"
"""Ends the name of the rejects that a failed run leaves beside its target."""
# What Beam's containers tell a worker of the job that it is in.
_JOB_ID = "JOB_ID"


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


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """What a submission has seen when it started.

    Attributes:
      state: of the target; see `transforms.publishing.published.Target.state`.
      job: what the manifest of this submission alone says of its run.
    """

    state: str
    job: str


@dataclasses.dataclass(frozen=True, slots=True)
class SharedRun:
    """A run on a target.

    Attributes:
      directory: the target.
      nonce: 32 hexadecimal digits that no other graph has.
      keep_items: see `transforms.work.store.Store`.
      many: whether one graph may be run many times, as a template is: then the id of
        the job is part of the token.
      access: how its places are reached, wherever the run is sent.
      rules: what is asked of its workers, wherever they are; None for nothing.
      shared: whether the target is on a disk that all machines are said to share: see
        `prepare`.
    """

    directory: str
    nonce: str
    keep_items: bool = False
    many: bool = False
    access: Access = dataclasses.field(default_factory=Access)
    rules: WorkerRules | None = None
    shared: bool = False

    def prepare(self) -> None:
        """Makes the run's folder where the pipeline is submitted, if it is `shared`.

        Workers that do not see it there are refused: what they write would stay on
        disks of their own.
        """
        if self.shared:
            with storing(self.directory):
                at(self.directory).make_shared(self.store)

    @property
    def token(self) -> str:
        """What tells the run from all others: 32 hexadecimal digits."""
        job = os.environ.get(_JOB_ID, "") if self.many else ""
        if not job:
            return self.nonce
        named = f"{self.nonce}\0{job}".encode()
        return hashlib.blake2b(named, digest_size=16).hexdigest()

    @property
    def store(self) -> Store:
        """Where its unfinished work is."""
        folder = os.path.join(work_folder(self.directory), f"{SHARED}{self.token}")
        return Store(
            folder,
            keep_items=self.keep_items,
            unordered=True,
            access=self.access,
            rules=self.rules,
        )

    def begin(self, *, overwrite: bool, job: str = "") -> Store:
        """Checks the target and makes the run's folder; any worker may do it first.

        Args:
          overwrite: whether a dataset may be replaced.
          job: of the submission, where it is known; else that of all of them.

        Raises:
          TargetError: the target holds something that a run must not replace, or a
            dataset where `overwrite` is not given.
          StorageError: it cannot be reached, or the folder cannot be made.
          WorkerError: see `transforms.work.worker_check.check_worker`.
        """
        self.store.check_worker()
        try:
            with storing(self.directory):
                output = at(self.directory)
                manifest = output.check_contents()
                self._check_seen(manifest)
                own = job or self.token
                if manifest and not (overwrite or _is_of(manifest, own)):
                    raise taken(self.directory, manifest)
                if manifest or is_remote(self.directory):
                    output.check_replaceable()
                store = self.store
                output.make_shared(store)
                return store
        except StorageError as error:
            rules, cause = self.rules, error.__cause__
            if rules is None or not rules.named or not is_remote(self.directory):
                raise
            failure = cause if isinstance(cause, OSError) else error
            raise unreachable(rules, self.directory, failure) from error

    def _check_seen(self, manifest: Manifest | None) -> None:
        """Raises WorkerError where the target's disk is not the submitter's."""
        if not self.shared or storage(self.store.folder).exists():
            return
        if manifest is not None and _is_of(manifest, self.token):
            # The run has ended, and its work was removed.
            return
        raise invisible(self.store.folder, "")

    def look(self, submission: str, *, overwrite: bool) -> Seen:
        """Returns what a submission has seen when it started, after `begin`.

        Args:
          submission: a word for this one of the graph's.
          overwrite: see `begin`.

        A second attempt, which a restarted job makes, gives the answer of the first,
        until the run has ended.
        """
        with storing(self.directory):
            # What this very run was killed in the middle of publishing.
            at(self.directory).recover()
            job = f"{self.token}-{submission}"
            path = self._seen(job)
            before = bytes_or_none(path)
            state = at(self.directory).state() if before is None else before.decode()
            store = self.begin(overwrite=overwrite, job=job)
            storage(path).write_file(state.encode(), attempts=store.attempts)
            return Seen(state, job)

    def _seen(self, job: str) -> str:
        return os.path.join(self.store.folder, f"seen-{job}")

    def has_ended(self, job: str) -> bool:
        """Whether its work was removed, after the commit or by somebody else.

        Args:
          job: of the submission; see `Seen`.
        """
        return not storage(self._seen(job)).exists()

    def open_plan(self, plan: str) -> Store:
        """Returns the store of all that a plan decides; any attempt at it may open it.

        Args:
          plan: its digest.
        """
        store = dataclasses.replace(self.store, plan=plan)
        return at(self.directory).open_plan(store)

    def published(self, job: str) -> Manifest | None:
        """Returns the manifest of the target where this submission published it.

        Args:
          job: of the submission; see `Seen`.
        """
        at(self.directory).recover()
        manifest = manifest_or_none(self.directory)
        return manifest if manifest and _is_of(manifest, job) else None

    def end(self) -> None:
        """Removes the run's folder; it may be gone already."""
        with storing(self.directory):
            at(self.directory).end_shared(self.store)


def _is_of(manifest: Manifest, job: str) -> bool:
    """Whether a submission has published a dataset, or any one of a run's token."""
    return str(manifest.run.get("job")).startswith(job)
