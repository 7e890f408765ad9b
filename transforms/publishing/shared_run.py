"""A run whose workers come and go: none of them can hold the target for the others.

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

import dataclasses
import hashlib
import os

from transforms.core.manifest import Manifest
from transforms.errors import StorageError
from transforms.publishing import target
from transforms.publishing.published import SHARED, bytes_or_none, manifest_or_none
from transforms.storage.files import storage
from transforms.storage.paths import Access, is_remote, work_folder
from transforms.storage.retry import storing
from transforms.storage.visibility import invisible
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules, unreachable

# What Beam's containers tell a worker of the job that it is in.
_JOB_ID = "JOB_ID"


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
                target.at(self.directory).make_shared(self.store)

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
                output = target.at(self.directory)
                manifest = output.check_contents()
                self._check_seen(manifest)
                own = job or self.token
                if manifest and not (overwrite or _is_of(manifest, own)):
                    raise target.taken(self.directory, manifest)
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
            target.at(self.directory).recover()
            job = f"{self.token}-{submission}"
            path = self._seen(job)
            before = bytes_or_none(path)
            state = (
                target.at(self.directory).state() if before is None else before.decode()
            )
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
        return target.at(self.directory).open_plan(store)

    def published(self, job: str) -> Manifest | None:
        """Returns the manifest of the target where this submission published it.

        Args:
          job: of the submission; see `Seen`.
        """
        target.at(self.directory).recover()
        manifest = manifest_or_none(self.directory)
        return manifest if manifest and _is_of(manifest, job) else None

    def end(self) -> None:
        """Removes the run's folder; it may be gone already."""
        with storing(self.directory):
            target.at(self.directory).end_shared(self.store)


def _is_of(manifest: Manifest, job: str) -> bool:
    """Whether a submission has published a dataset, or any one of a run's token."""
    return str(manifest.run.get("job")).startswith(job)
