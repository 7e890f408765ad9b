"""Split locks as files: opened by every worker, written once, renamed into place last.

Arrow IPC files of one record batch, uncompressed, so that all workers of a machine
share the memory of one mapping; see `transforms.core.placing.splitting`.
"""

import os

import pyarrow as pa

from transforms import files
from transforms.core.placing.splitting import Assignments
from transforms.errors import COMMITTED_NOTE, CommitError, SpecError
from transforms.storage.paths import absolute

# Where the next lock is in the work folder until the dataset is published.
NEW_LOCK = "split_lock.arrow"


def write_table(table: pa.Table, path: str, *, attempts: str) -> None:
    """Writes a table so that it appears whole under `path`, or not at all.

    Raises:
      OSError: it could not be written.
    """
    sink = pa.BufferOutputStream()
    whole = table.combine_chunks()
    with pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)
    with files.create(path, attempts=attempts) as file:
        file.write(memoryview(sink.getvalue()))


def open_table(path: str) -> pa.Table:
    """Returns the table of a file, mapped into memory.

    Raises:
      SpecError: the file cannot be read as one.
    """
    try:
        return pa.ipc.open_file(files.mapped(path)).read_all()
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"The split lock must be a file that an earlier run wrote, or not exist; "
            f"{path!r} cannot be read: {error}."
        ) from error


def open_assignments(path: str) -> Assignments:
    """Returns the assignments of a file, mapped into memory.

    Raises:
      SpecError: the file is something else.
    """
    return Assignments.from_table(open_table(path), path=path)


def install_lock(written: str, path: str) -> None:
    """Puts a lock that was written in the work folder where the next run looks.

    Raises:
      CommitError: it could not be written; the one that stood there still does.
    """
    folder = os.path.dirname(absolute(path))
    try:
        with (
            files.open_input(written) as source,
            files.create(path, attempts=folder) as file,
        ):
            while piece := source.read(8 << 20):
                file.write(piece)
        files.sync_directory(folder)
    except OSError as error:
        failure = CommitError(
            f"The dataset was published, but its split lock {path!r} could not be "
            f"written: {error.strerror}. Run again with --overwrite once it can be, "
            f"or the next run will not know these rows."
        )
        failure.add_note(COMMITTED_NOTE)
        raise failure from error
