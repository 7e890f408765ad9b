"""Tables that decide splits: locks that runs write, and the ids that users give.

A split lock is opened by every worker, written once, and renamed into place last. It is
an Arrow IPC file of one record batch, uncompressed, so that all workers of a machine
share the memory of one mapping. Rows ascend by hash and no hash occurs twice:

    unit   uint64
    split  dictionary of strings, int16 indices

The schema's metadata names the format, its version and what the units are hashes of:
a lock of keys does not apply to rows that are identified by their place.

A table of ids is a CSV, TSV or Parquet file that gives the split of each key: two
columns, or more of which one is named `split` and one `id` or `key`; in a text file the
first line names them. A key without a split counts as not being there.
"""

import dataclasses
import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.files import open_regular
from transforms.core.json_text import parse_json
from transforms.core.placing.hashes import key_hashes
from transforms.core.placing.splitting import (
    CONTENT,
    PLACE,
    Assignments,
    SplitRule,
    check_split_name,
    usual_order,
)
from transforms.errors import (
    COMMITTED_NOTE,
    CommitError,
    InputError,
    SpecError,
    source_error,
)
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote
from transforms.work.store import Store

_METADATA = b"beam-tfrecord"
_FORMAT = "splits of units"
_VERSION = 1
_IN_WORDS = {CONTENT: "their content", PLACE: "their place (file and row number)"}
_ID_NAMES = ("id", "key")


def new_lock_in(store: Store) -> str:
    """Returns where the next lock is until the dataset is published."""
    return os.path.join(store.folder, "split_lock.arrow")


def write_table(table: pa.Table, path: str, *, attempts: str) -> None:
    """Writes a table so that it appears whole under `path`, or not at all.

    Raises:
      OSError: it could not be written.
    """
    sink = pa.BufferOutputStream()
    whole = table.combine_chunks()
    with pa.ipc.new_file(sink, whole.schema) as writer:
        writer.write_table(whole)
    with storage(path).create(attempts=attempts) as file:
        file.write(memoryview(sink.getvalue()))


def open_assignments(path: str) -> Assignments:
    """Returns the assignments of a file, mapped into memory.

    Raises:
      SpecError: the file cannot be read, or is something else.
    """
    try:
        table = pa.ipc.open_file(storage(path).mapped()).read_all()
    except (OSError, pa.ArrowException) as error:
        raise SpecError(
            f"The split lock must be a file that an earlier run wrote, or not exist; "
            f"{path!r} cannot be read: {error}."
        ) from error
    return _from_table(table, path=path)


def assignments_table(assignments: Assignments) -> pa.Table:
    """Returns the table that the module describes."""
    facts = {"format": _FORMAT, "version": _VERSION, "identity": assignments.identity}
    splits = pa.DictionaryArray.from_arrays(
        pa.array(assignments.codes, pa.int16()),
        pa.array(assignments.names, pa.string()),
    )
    columns = {"unit": pa.array(assignments.units, pa.uint64()), "split": splits}
    metadata = {_METADATA: json.dumps(facts, sort_keys=True).encode()}
    return pa.table(columns).replace_schema_metadata(metadata)


def _from_table(table: pa.Table, *, path: str) -> Assignments:
    """Inverse of `assignments_table`; `path` is for messages.

    Raises:
      SpecError: the table has another format or a later version.
    """
    try:
        facts = parse_json((table.schema.metadata or {})[_METADATA])
        is_ours = facts["format"] == _FORMAT and facts["version"] == _VERSION
        units = np.asarray(table["unit"].combine_chunks())
        splits = table["split"].combine_chunks()
        codes = np.asarray(splits.indices)
        names = tuple(splits.dictionary.to_pylist())
        identity = str(facts["identity"])
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise _not_ours(path) from error
    inside = not len(codes) or 0 <= codes.min() <= codes.max() < len(names)
    rising = bool((units[1:] > units[:-1]).all())
    if not (is_ours and inside and rising and units.dtype == np.uint64):
        raise _not_ours(path)
    return Assignments(units, codes, names, identity)


def _not_ours(path: str) -> SpecError:
    """Returns the error of a split lock that no run of this version has written."""
    return SpecError(
        f"A split lock must be a file that an earlier run wrote; {path!r} is not one, "
        f"or of a later version. Name a file that does not exist to begin a new one."
    )


def check_lock(lock: Assignments, rule: SplitRule, *, identity: str, path: str) -> None:
    """Raises unless the splits of a lock apply under a rule.

    Args:
      lock: from `path`.
      rule: of this run.
      identity: what identifies rows in this run.
      path: for messages.

    Raises:
      SpecError: the lock identifies rows by something else, or has splits that the
        rule lacks.
    """
    if lock.identity != identity:
        ours, theirs = (_IN_WORDS.get(name, name) for name in (identity, lock.identity))
        advice = "Use the same key and group columns, or another lock."
        if {lock.identity, identity} <= _IN_WORDS.keys():
            advice = (
                "No row of it can be found by the other. Begin a new lock: name a file "
                "that does not exist; the splits are then those of the shares."
            )
        raise SpecError(
            f"The split lock {path!r} must know rows as this run does, by {ours}; it "
            f"was made of rows known by {theirs}. {advice}"
        )
    used = {lock.names[code] for code in np.unique(lock.codes).tolist()}
    strange = sorted(used - set(rule.names))
    if rule.is_closed and strange:
        raise SpecError(
            f"Every split of the split lock {path!r} must be one of {rule.names}; "
            f"found {strange[:5]}. Name them in --splits, or use another lock."
        )


def install_lock(written: str, path: str) -> None:
    """Puts a lock that was written in the work folder where the next run looks.

    Raises:
      CommitError: it could not be written; the one that stood there still does.
    """
    folder = os.path.dirname(absolute(path))
    try:
        with (
            storage(written).open_input() as source,
            storage(path).create(attempts=folder) as file,
        ):
            shutil.copyfileobj(source, file, 8 << 20)
        storage(folder).sync_directory()
    except OSError as error:
        failure = CommitError(
            f"The dataset was published, but its split lock {path!r} could not be "
            f"written: {error.strerror}. Run again with --overwrite once it can be, "
            f"or the next run will not know these rows."
        )
        failure.add_note(COMMITTED_NOTE)
        raise failure from error


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SplitIds:
    """The splits of keys.

    Attributes:
      assignments: of the keys' hashes.
      sizes: split -> number of keys, in the usual order of splits.
    """

    assignments: Assignments
    sizes: dict[str, int]


def read_split_ids(path: str, *, identity: str) -> SplitIds:
    """Reads a table of ids.

    Args:
      path: of the file; .parquet and .pq are Parquet, .tsv and .tab are separated by
        tabs, all others by commas.
      identity: what keys are, in words; see `Assignments`.

    Raises:
      InputError: the file cannot be read, or is no such table, or says two splits
        of one key, or a split has a name that readers do not take.
    """
    keys, splits = _id_and_split(_read_table(path), path)
    named = pc.and_(keys.is_valid(), splits.is_valid())
    if keys.null_count:
        row = int(np.flatnonzero(np.asarray(keys.is_null()))[0]) + 1
        raise InputError(
            f"Every row of the table of ids {path!r} must have an id; data row "
            f"{row:,} has none. Remove it."
        )
    keys, splits = keys.filter(named), splits.filter(named)
    names = usual_order(splits.unique().to_pylist())
    try:
        for name in names:
            check_split_name(name)
    except SpecError as error:
        raise InputError(f"{error} It is in the table of ids {path!r}.") from error
    codes = np.asarray(pc.index_in(splits, value_set=pa.array(names, pa.string())))
    return _sorted_ids(keys, codes.astype(np.int64), names, path, identity)


def _sorted_ids(
    keys: pa.StringArray,
    codes: np.ndarray,
    names: list[str],
    path: str,
    identity: str,
) -> SplitIds:
    """Returns ids sorted by hash, each once; InputError for one in two splits."""
    units = key_hashes(keys)
    order = np.lexsort((codes, units))
    units, codes, keys = units[order], codes[order], keys.take(pa.array(order))
    again = units[1:] == units[:-1]
    differs = np.flatnonzero(again & (codes[1:] != codes[:-1]))
    if len(differs):
        row = int(differs[0])
        raise InputError(
            f"The table of ids {path!r} must say one split of each id; of "
            f"{keys[row].as_py()!r} it says {names[codes[row]]!r} and of "
            f"{keys[row + 1].as_py()!r} {names[codes[row + 1]]!r}"
            f"{f', and of {len(differs) - 1:,} more' if len(differs) > 1 else ''}. "
            f"Remove one of the rows."
        )
    assignments = Assignments.of(units, codes, names=names, identity=identity)
    counts = np.bincount(assignments.codes, minlength=len(names)).tolist()
    return SplitIds(assignments, dict(zip(names, counts, strict=True)))


def _opened(path: str) -> "str | pa.NativeFile":
    """Returns what Arrow reads a table from: it knows paths of this machine alone.

    It unpacks some by their names.
    """
    if is_remote(path):
        return storage(path).mapped()
    os.close(open_regular(path, os.O_RDONLY))
    return path


def _read_table(path: str) -> pa.Table:
    """Returns a table of ids; its suffix says whether it is CSV, TSV or Parquet."""
    suffix = os.path.splitext(path)[1].lower()
    try:
        if suffix in (".parquet", ".pq"):
            # Here, because hardly any job has such a table.
            from pyarrow import parquet

            return parquet.read_table(_opened(path))
        from pyarrow import csv

        delimiter = "\t" if suffix in (".tsv", ".tab") else ","
        options = csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
        header = csv.open_csv(_opened(path), parse_options=options).schema.names
        return csv.read_csv(
            _opened(path),
            parse_options=options,
            # As text: an id 007 is not 7.
            convert_options=csv.ConvertOptions(
                column_types=dict.fromkeys(header, pa.string()),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""],
            ),
        )
    except (OSError, UnicodeDecodeError, pa.ArrowException) as error:
        # Arrow gives names as they are; Python finds out that they are no UTF-8.
        raise source_error(
            f"The table of ids must be a readable CSV, TSV or Parquet file; {path!r} "
            f"is not: {error}.",
            error,
        ) from error


def _id_and_split(table: pa.Table, path: str) -> tuple[pa.StringArray, pa.StringArray]:
    """Returns the ids and the splits as text; InputError without one column of each."""
    names = table.column_names
    lower = [name.strip().lower() for name in names]
    at_split = [i for i, name in enumerate(lower) if name == "split"]
    at_id = [i for i, name in enumerate(lower) if name in _ID_NAMES]
    if len(names) == 2 and len(at_split) == 1:
        at_id = [1 - at_split[0]]
    if len(at_split) != 1 or len(at_id) != 1:
        raise InputError(
            f"The table of ids {path!r} must have two columns, of which one is named "
            f"'split', or one column 'split' and one 'id' or 'key' among others; found "
            f"{names[:10]}. Give its first line these names."
        )
    try:
        columns = [table[i].cast(pa.string()) for i in (at_id[0], at_split[0])]
    except pa.ArrowException as error:
        raise InputError(
            f"The ids and splits of {path!r} must be texts or integers; found "
            f"{[str(t) for t in table.schema.types][:10]}."
        ) from error
    return columns[0].combine_chunks(), columns[1].combine_chunks()
