"""What earlier runs have decided: the split lock and table of ids of `WriteDataset`.

They are read when the transform is made; see `beam_pipeline.own_pipelines.held`. The
lock is written again after the commit.
"""

import dataclasses
import os

from beam_pipeline.own_pipelines.held import Held, hold_file, sha256_of
from beam_pipeline.planning.plan import check_lock as check_place
from beam_pipeline.planning.splits import identity_of
from beam_pipeline.settings.spec import Spec
from transforms.core.placing.placement import SplitRule
from transforms.core.placing.splitting import Assignments, check_lock
from transforms.errors import RaceError
from transforms.storage.files import storage
from transforms.work.split_tables import (
    NEW_LOCK,
    SplitIds,
    install_lock,
    open_assignments,
    read_split_ids,
    write_table,
)
from transforms.work.store import Store

# In the work folder. The last file says that the lock is written.
_IDS = "split_ids.arrow"
_LOCK = "earlier_lock.arrow"
_WRITING = "writing_locks"


@dataclasses.dataclass(frozen=True)
class EarlierRuns:
    """What earlier runs, or a table of ids, have decided.

    Attributes:
      spec: of the job.
      identity: what units are hashes of; see `Assignments`.
      ids: the table of ids.
      splits: the split lock; None where there is none yet.
    """

    spec: Spec
    identity: str
    ids: Held[SplitIds] | None
    splits: Held[Assignments] | None

    @property
    def with_units(self) -> bool:
        """Whether it must be known in the end where each unit went."""
        return bool(self.ids or self.spec.split_lock)

    @property
    def read_by_workers(self) -> list[str]:
        """The files that are too large for the graph."""
        held = (self.ids, self.splits)
        return [each.path for each in held if each is not None and each.inline is None]

    def table(self) -> Assignments | None:
        """Returns the splits of keys."""
        return None if self.ids is None else self.ids.get().assignments

    def lock(self) -> Assignments | None:
        """Returns the splits that units have already."""
        return None if self.splits is None else self.splits.get()

    def check(self, store: Store) -> None:
        """Raises RaceError where another run has written the lock since it was read."""
        if storage(os.path.join(store.folder, _WRITING)).exists():
            # This run has.
            return
        path, held = self.spec.split_lock, self.splits
        if path and sha256_of(path) != (held.digest if held else ""):
            raise RaceError(
                f"A lock must stay as it was when the pipeline was built; {path!r} has "
                f"changed. Another run has written it, or it was moved. Nothing was "
                f"committed; build the pipeline again."
            )

    def tables_in(self, store: Store) -> tuple[str, str]:
        """Puts what workers look up into a work folder; returns where it is.

        That is the table of ids, and the earlier split lock; empty for none.
        """
        table = lock = ""
        if self.ids is not None:
            table = os.path.join(store.folder, _IDS)
            write_table(self.ids.get().to_table(), table, attempts=store.attempts)
        if self.splits is not None:
            lock = os.path.join(store.folder, _LOCK)
            write_table(self.splits.get().to_table(), lock, attempts=store.attempts)
        return table, lock

    def keep(self, store: Store) -> None:
        """Writes the lock of a dataset that is published; again, where it was done.

        Raises:
          CommitError: it could not be written; one that was there is as it was.
        """
        # The work folder is gone when all was done before.
        if not self.spec.split_lock or not storage(store.folder).exists():
            return
        mark = os.path.join(store.folder, _WRITING)
        storage(mark).write_file(b"", attempts=store.attempts)
        install_lock(os.path.join(store.folder, NEW_LOCK), self.spec.split_lock)


def read_earlier_runs(spec: Spec, rule: SplitRule) -> EarlierRuns:
    """Reads the table of ids and the locks that a job names.

    Args:
      spec: of the job.
      rule: of its splits, without a table.

    Raises:
      UsageError: one of them cannot be used; its type says what is wrong.
    """
    check_place(spec, "")
    by_content = dataclasses.replace(rule, by_content=not spec.key_column)
    identity = identity_of(spec, by_content)
    ids = splits = None
    if spec.split_ids:
        ids = hold_file(_ids_of, spec.split_ids, identity)
        by_content = dataclasses.replace(by_content, names=ids.get().assignments.names)
    if spec.split_lock and storage(spec.split_lock).exists():
        splits = hold_file(open_assignments, spec.split_lock)
        lock = splits.get()
        check_lock(lock, by_content, identity=identity, path=spec.split_lock)
    return EarlierRuns(spec, identity, ids, splits)


def _ids_of(path: str, identity: str) -> SplitIds:
    return read_split_ids(path, identity=identity)
