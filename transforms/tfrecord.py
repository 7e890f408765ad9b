"""TFRecord files of any records: `WriteTFRecords` and its inverse `ReadTFRecords`.

They take the parameters of `beam.io.WriteToTFRecord` and `beam.io.ReadFromTFRecord`
and promise more. A write goes

    records -> sorted runs, one a bundle, spilled when large     Sort
            -> (shard, part of a run)                            Cut by shard
            -> GroupByKey: descriptors and small runs cross it
            -> finished files in the work folder                 Write files
            -> all of them renamed, or none                      Publish

The work folder `.<name of the files>.beam-tfrecord/` stands beside the files:

    lock             held while names change
    <run>/attempts   files that are being written, under names of their attempt
    <run>/runs       spilled runs
    <run>/shards     finished files
    <run>/old        what stood under the final names, until all are renamed
    <run>/journal    what is being renamed; where it exists, the renaming is under way
"""

import contextlib
import dataclasses
import errno
import fcntl
import functools
import glob
import hashlib
import itertools
import json
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.transforms.window import GlobalWindows

from transforms import files
from transforms.core.compression import Compression
from transforms.core.frame import DEFAULT_MAX_RECORD_BYTES
from transforms.core.sorted_run import (
    SortedRun,
    cut_run,
    frame_records,
    merge_runs,
    pack,
)
from transforms.core.tfrecord import (
    FileFacts,
    TFRecordReader,
    TFRecordWriter,
    verify_file,
)
from transforms.errors import (
    CommitError,
    ConservationError,
    EncodingError,
    SourceError,
    SpecError,
    TargetError,
    TFRecordError,
)

__all__ = ["ReadTFRecords", "WriteTFRecords"]

_Result = TypeVar("_Result")

_DEFAULT_TEMPLATE = "-SSSSS-of-NNNNN"
# 100 to 200 MB a file is what readers of TFRecord files are advised to use.
_SHARD_BYTES = 150_000_000
# A bundle's records are sorted and stored whenever they take this much memory, ...
_RUN_BYTES = 1 << 25
# ... for each of them its length and about this.
_OBJECT_BYTES = 48
# A packed run up to this size travels inline.
_INLINE_BYTES = 1 << 20

_COMPRESSIONS = {
    CompressionTypes.UNCOMPRESSED: Compression.NONE,
    CompressionTypes.GZIP: Compression.GZIP,
    CompressionTypes.DEFLATE: Compression.ZLIB,
}
_SUFFIXES = {
    ".gz": Compression.GZIP,
    ".deflate": Compression.ZLIB,
    ".zlib": Compression.ZLIB,
}
# By these Beam would choose a compression that no reader of TFRecord files knows.
_FOREIGN_SUFFIXES = (".bz2", ".zst", ".zstd", ".xz", ".lzma")

_TRANSIENT = {
    errno.EAGAIN,
    errno.EBUSY,
    errno.EINTR,
    errno.EIO,
    # A folder of the work folder, just removed by another worker for being empty.
    errno.ENOENT,
    errno.ESTALE,
    errno.ETIMEDOUT,
}
_PAUSES_SECONDS = (0.1, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class _Target:
    """The files of one write: their names, and the work folder beside them."""

    prefix: str
    template: str
    suffix: str
    compression: Compression
    directory: str
    run: str

    def name(self, index: int, count: int) -> str:
        return os.path.basename(self.prefix) + self._ending(index, count)

    def path(self, index: int, count: int) -> str:
        return os.path.join(self.directory, self.name(index, count))

    def shown(self, index: int, count: int) -> str:
        """Returns the path as the user would write it."""
        return self.prefix + self._ending(index, count)

    def _ending(self, index: int, count: int) -> str:
        return _filled(self.template, index, count) + self.suffix

    @property
    def hidden(self) -> str:
        """The folder of all unfinished work on files of these names."""
        stem = os.path.basename(self.prefix) + self.template + self.suffix
        name = f".{stem}.beam-tfrecord"
        if len(os.fsencode(name)) > 255:
            digest = hashlib.blake2b(stem.encode(), digest_size=16).hexdigest()
            name = f".{digest}.beam-tfrecord"
        return os.path.join(self.directory, name)

    @property
    def work(self) -> str:
        """The part of the work folder that belongs to this run."""
        return os.path.join(self.hidden, self.run)

    def part(self, name: str) -> str:
        """Returns a folder of this run, made if it is missing."""
        path = os.path.join(self.work, name)
        os.makedirs(path, exist_ok=True)
        return path


def _filled(template: str, index: int, count: int) -> str:
    """Returns the template with numbers in it, by the rules of Beam's sinks.

    The first run of S and all runs equal to it become the index, padded to its
    length; the first run of N likewise the count.
    """
    for letter, number in (("S", index), ("N", count)):
        if found := re.search(f"{letter}+", template):
            template = template.replace(found[0], f"{number:0{len(found[0])}d}")
    return template


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """What is known once all records have been seen."""

    shards: int
    records: int
    payload_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Shard:
    """A finished file in the work folder."""

    index: int
    facts: FileFacts


@dataclasses.dataclass
class WriteTFRecords(beam.PTransform):
    """Writes records to TFRecord files; takes the place of `beam.io.WriteToTFRecord`.

    Input: elements that the coder turns into bytes; by default, bytes. Bounded;
    windows are dropped. Output: the name of every file, beginning with
    `file_path_prefix` as it was given.

    Guarantees:
      - Equal collections of records give equal bytes in files of equal names: with
        any runner, order, bundling or number of retries. Records are dealt out and
        ordered by a hash of their bytes; duplicates are kept.
      - Files appear under their names only when all of them are whole and synced,
        each by one rename. When anything fails before the last rename, none stays,
        and files that were there before stand as they were. Files of exactly these
        names are replaced; nothing else is touched: no name is ever a pattern.
      - A retried or repeated bundle adds nothing.

    A failure of this step removes its own work folder; one of another step, or a
    killed process, can leave it (`.<name>.beam-tfrecord/` beside the files; killed
    during the renames, also some of the new files under their names). The next
    write with the same prefix, template and suffix puts back what the renames had
    replaced and removes the rest. Of two such writes at the same time the one that
    started first may fail by that; a mix of both is never published.

    Beside Beam's own memory a worker needs some 150 MB, whatever the sizes of bundles
    and files, and 24 bytes for each record of the file that it writes. Records cross
    the shuffle only from bundles of less than 1 MiB; others go through the disk once.

    Counter: records_written (namespace tfrecord).

    Attributes:
      file_path_prefix: of the files, on a file system that every worker shares; its
        folder is made if it is missing.
      coder: encodes the elements.
      file_name_suffix: of the files.
      num_shards: how many files; 0 takes one for every 150 MB. There are exactly so
        many, empty ones if there are fewer records; at least one.
      shard_name_template: S and N stand for number and count of the file, one digit
        each at least; None is "-SSSSS-of-NNNNN", "" is one file without a number.
      compression_type: UNCOMPRESSED, GZIP, DEFLATE (a zlib stream), or AUTO: by the
        file's name, gzip for .gz, zlib for .deflate and .zlib.

    Raises:
      SpecError: when made, if a parameter is wrong.
      TargetError: when run, if the files cannot be written there.
      EncodingError: when run, if an element does not become bytes of at most 1 GiB.
      CommitError: when run, if the files could not be written or renamed.
    """

    file_path_prefix: str
    coder: coders.Coder = dataclasses.field(default_factory=coders.BytesCoder)
    file_name_suffix: str = ""
    num_shards: int = 0
    shard_name_template: str | None = None
    compression_type: str = CompressionTypes.AUTO

    def __post_init__(self) -> None:
        super().__init__()
        _check_path("file_path_prefix", self.file_path_prefix)
        _check_coder(self.coder)
        template = self._template
        _check_name_part("shard_name_template", template)
        _check_name_part("file_name_suffix", self.file_name_suffix)
        if template and "S" not in template:
            raise SpecError(
                f"shard_name_template must hold S, for the number of the file, or be "
                f"''; found {template!r}."
            )
        if found := re.search("[UVW]", template):
            raise SpecError(
                f"shard_name_template may not hold {found[0]}: names depend on "
                f"nothing but number and count of the file; found {template!r}."
            )
        shards = self.num_shards
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < 0:
            raise SpecError(f"num_shards must be an integer from 0; found {shards!r}.")
        if not os.path.basename(self._target("").shown(0, 1)):
            raise SpecError(
                f"The files must have a name; {self.file_path_prefix!r} with template "
                f"'' is a folder. Name a file in it."
            )
        self.with_input_types(_type_of(self.coder))

    @property
    def _template(self) -> str:
        given = self.shard_name_template
        return _DEFAULT_TEMPLATE if given is None else given

    def _target(self, run: str) -> _Target:
        ending = _filled(self._template, 0, 1) + self.file_name_suffix
        return _Target(
            prefix=self.file_path_prefix,
            template=self._template,
            suffix=self.file_name_suffix,
            compression=_compression_of(
                self.compression_type, self.file_path_prefix + ending
            ),
            # Workers may have another working directory.
            directory=os.path.join(
                os.getcwd(), os.path.dirname(self.file_path_prefix)
            ).rstrip("/")
            or "/",
            run=run,
        )

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[str]:
        """Sorts, deals out, writes, publishes."""
        if not records.is_bounded:
            raise SpecError(
                "WriteTFRecords must be given a bounded PCollection; this one has no "
                "end. Write it with beam.io.WriteToTFRecord."
            )
        # Decides no byte of the output: it only keeps runs apart.
        target = self._target(secrets.token_hex(8))
        wanted = self.num_shards if self._template else 1
        if not records.windowing.is_default():
            records = records | "Drop windows" >> beam.WindowInto(GlobalWindows())
        runs = records | "Sort" >> beam.ParDo(
            _SortRecords(target, self.coder, wanted)
        ).with_output_types(SortedRun)
        measures = runs | "Measure" >> beam.Map(_measure)
        # One _Plan
        plan = (
            records.pipeline
            | "Once" >> beam.Impulse()
            | "Plan shards"
            >> beam.Map(_plan_shards, beam.pvalue.AsIter(measures), target, wanted)
        )
        # (shard, part of a run); an empty one for each, so that no file is missing
        named = plan | "Name shards" >> beam.FlatMap(_name_shards)
        parts = runs | "Cut by shard" >> beam.FlatMap(
            _cut_by_shard, beam.pvalue.AsSingleton(plan), target
        )
        shards = (
            (named, parts)
            | "Join" >> beam.Flatten()
            | "Group" >> beam.GroupByKey()
            | "Write files" >> beam.ParDo(_WriteFile(target)).with_output_types(_Shard)
        )
        return plan | "Publish" >> beam.FlatMap(
            _publish, beam.pvalue.AsIter(shards), target
        ).with_output_types(str)


class _SortRecords(beam.DoFn):
    """Turns the records of a bundle into sorted runs."""

    def __init__(self, target: _Target, coder: coders.Coder, wanted: int) -> None:
        super().__init__()
        self.target = target
        self.wanted = wanted
        # BytesCoder would assert what is checked here anyway.
        self.encode = None if type(coder) is coders.BytesCoder else coder.encode
        self.unfinished: list[str] = []

    def setup(self) -> None:
        _check_target(self.target, [(0, self.wanted or 1)])

    def start_bundle(self) -> None:
        self.records: list[bytes] = []
        self.taken = 0
        self.size = 0

    def process(self, element: Any) -> Iterable[SortedRun] | None:
        record = element if self.encode is None else self.encode(element)
        if not isinstance(record, bytes):
            self._refuse(f"be bytes, not {type(record).__name__}; found {record!r:.99}")
        size = len(record)
        if size > DEFAULT_MAX_RECORD_BYTES:
            self._refuse(f"have at most 1 GiB; found {size:,} bytes")
        self.records.append(record)
        self.size += size + _OBJECT_BYTES
        return [self._store()] if self.size >= _RUN_BYTES else None

    def finish_bundle(self) -> Iterator[beam.utils.windowed_value.WindowedValue]:
        if self.records:
            yield GlobalWindows.windowed_value(self._store())
        self.unfinished = []

    def teardown(self) -> None:
        # Paths are there only when the last bundle was broken off.
        for path in self.unfinished:
            files.remove_file(path)
        if self.unfinished:
            for name in ("attempts", "runs", ""):
                _remove_if_empty(os.path.join(self.target.work, name))
            _remove_if_empty(self.target.hidden)

    def _store(self) -> SortedRun:
        count = len(self.records)
        packed = pack(self.records)
        self.taken += count
        self.records, self.size = [], 0
        payload = len(packed) - 16 * count
        if len(packed) <= _INLINE_BYTES:
            return SortedRun("", packed, count, 0, count, 0, payload)
        with _abandoning(self.target):
            path = _persistently(functools.partial(_spill, self.target, packed))
        self.unfinished.append(path)
        return SortedRun(path, b"", count, 0, count, 0, payload)

    def _refuse(self, what: str) -> NoReturn:
        number = self.taken + len(self.records)
        _abandon(self.target)
        raise EncodingError(
            f"Every record must {what}, as element {number:,} of its bundle. Encode "
            f"it first, or name its coder. No file was written."
        )


def _spill(target: _Target, packed: bytes) -> str:
    """Stores a packed run under a name of this attempt; returns its path."""
    path = os.path.join(target.part("runs"), secrets.token_hex(16))
    # Not synced: after a power loss the job starts again.
    with files.create(path, attempts=target.part("attempts"), durable=False) as file:
        _write_all(file.write, packed)
    return path


def _write_all(write: Callable[[memoryview], int], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[write(view) :]


def _fetch(run: SortedRun, start: int, stop: int) -> bytes:
    if not run.path:
        return run.data[start:stop]
    return files.read_range(run.path, start, stop)


def _measure(run: SortedRun) -> tuple[int, int]:
    return run.records, run.size


def _plan_shards(
    _: bytes, measures: Iterable[tuple[int, int]], target: _Target, wanted: int
) -> _Plan:
    """Chooses the number of files, and clears away what earlier runs left."""
    records = payload_bytes = 0
    for more_records, more_bytes in measures:
        records += more_records
        payload_bytes += more_bytes
    stored = payload_bytes + 16 * records
    shards = wanted or max(1, -(-stored // _SHARD_BYTES))
    with _abandoning(target):
        _check_target(target, [(index, shards) for index in range(shards)])
        if os.path.isdir(target.hidden):
            with _locked(target):
                _clear_other_runs(target)
    return _Plan(shards, records, payload_bytes)


def _name_shards(plan: _Plan) -> Iterable[tuple[int, SortedRun]]:
    nothing = SortedRun("", b"", 0, 0, 0, 0, 0)
    return [(index, nothing) for index in range(plan.shards)]


def _cut_by_shard(
    run: SortedRun, plan: _Plan, target: _Target
) -> Iterable[tuple[int, SortedRun]]:
    with _abandoning(target):
        return _persistently(lambda: list(cut_run(run, plan.shards, _fetch)))


class _WriteFile(beam.DoFn):
    """Writes the records of one shard in their order; a retry replaces the file."""

    def __init__(self, target: _Target) -> None:
        super().__init__()
        self.target = target
        self.records_written = beam.metrics.Metrics.counter(
            "tfrecord", "records_written"
        )

    def process(self, element: tuple[int, Iterable[SortedRun]]) -> Iterable[_Shard]:
        index, parts = element
        runs = [run for run in parts if run.records]
        with _abandoning(self.target):
            facts = _persistently(
                functools.partial(_write_file, self.target, index, runs)
            )
        self.records_written.inc(facts.records)
        return [_Shard(index, facts)]


def _write_file(target: _Target, index: int, runs: Sequence[SortedRun]) -> FileFacts:
    path = os.path.join(target.part("shards"), str(index))
    with files.create(path, attempts=target.part("attempts")) as file:
        with TFRecordWriter(file, compression=target.compression) as writer:
            for records in merge_runs(runs, _fetch):
                writer.write_framed(frame_records(records), records=len(records))
        return writer.facts()


def _publish(plan: _Plan, written: Iterable[_Shard], target: _Target) -> list[str]:
    """Gives every file its final name, or none; returns the names.

    A second attempt after success finds its own files and changes nothing.
    """
    shards = sorted(written, key=lambda shard: shard.index)
    paths = {shard.index: target.path(shard.index, plan.shards) for shard in shards}
    with _abandoning(target):
        _check_sums(shards, plan)
        if os.path.isdir(target.work):
            with _locked(target):
                _clear_other_runs(target)
                _rename_all(paths, target)
        elif not all(_holds(paths[shard.index], shard) for shard in shards):
            raise CommitError(
                f"The work folder of this run must be there until its end, but "
                f"{target.work!r} was removed, perhaps by a later run with the same "
                f"prefix. Run again."
            )
        _abandon(target)
    return [target.shown(shard.index, plan.shards) for shard in shards]


def _check_sums(shards: Sequence[_Shard], plan: _Plan) -> None:
    records = sum(shard.facts.records for shard in shards)
    payload_bytes = sum(shard.facts.payload_bytes for shard in shards)
    indexes = [shard.index for shard in shards]
    if (
        indexes != list(range(plan.shards))
        or records != plan.records
        or payload_bytes != plan.payload_bytes
    ):
        raise ConservationError(
            f"Nothing may be lost or doubled, but {plan.records:,} records of "
            f"{plan.payload_bytes:,} bytes came in for {plan.shards:,} files, and "
            f"{records:,} of {payload_bytes:,} were written to {len(shards):,}. "
            f"Nothing was published."
        )


def _holds(path: str, shard: _Shard) -> bool:
    try:
        return verify_file(path, allow_empty=True) == shard.facts
    except (TFRecordError, SourceError):
        return False


def _rename_all(paths: dict[int, str], target: _Target) -> None:
    """Renames every finished file, after keeping aside what stands there."""
    staged = {index: os.path.join(target.work, "shards", str(index)) for index in paths}
    old = target.part("old")
    journal = [
        (str(index), os.path.basename(path), _mark(os.lstat(staged[index])))
        for index, path in paths.items()
    ]
    with files.create(
        os.path.join(target.work, "journal"), attempts=target.part("attempts")
    ) as file:
        _write_all(file.write, json.dumps(journal).encode())
    files.sync_directory(target.work)
    try:
        for index, path in paths.items():
            _keep_aside(path, os.path.join(old, str(index)))
        for index, path in paths.items():
            os.replace(staged[index], path)
        files.sync_directory(target.directory)
        os.unlink(os.path.join(target.work, "journal"))
    except BaseException:
        _roll_back(target.work, target.directory)
        raise


def _keep_aside(path: str, aside: str) -> None:
    if not os.path.lexists(path):
        return
    try:
        # A second name, so that the first is never without its file.
        os.link(path, aside, follow_symlinks=False)
    except OSError:
        # No such links on this file system, or not to files of others.
        os.rename(path, aside)


def _roll_back(work: str, directory: str) -> None:
    """Undoes the renames that the journal of a run names, as far as they went."""
    for number, name, mark in _journal(work):
        path, aside = os.path.join(directory, name), os.path.join(work, "old", number)
        ours = _is_marked(path, mark)
        if os.path.lexists(aside):
            if ours or not os.path.lexists(path):
                os.rename(aside, path)
        elif ours:
            os.unlink(path)
    files.sync_directory(directory)
    files.remove_file(os.path.join(work, "journal"))


def _journal(work: str) -> list[tuple[str, str, list[int]]]:
    try:
        return json.loads(files.read_bytes(os.path.join(work, "journal")))
    except FileNotFoundError:
        return []


def _mark(status: os.stat_result) -> list[int]:
    """Returns what a file keeps when it is renamed."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def _is_marked(path: str, mark: list[int]) -> bool:
    try:
        return _mark(os.lstat(path)) == mark
    except FileNotFoundError:
        return False


def _clear_other_runs(target: _Target) -> None:
    """Removes what runs that were killed left; holds the lock.

    One that was killed while it renamed is undone, unless it had renamed them all.
    """
    for run in os.listdir(target.hidden):
        work = os.path.join(target.hidden, run)
        if run == target.run or not os.path.isdir(work):
            continue
        renamed = [
            _is_marked(os.path.join(target.directory, name), mark)
            for _, name, mark in _journal(work)
        ]
        if not all(renamed):
            _roll_back(work, target.directory)
        files.remove_tree(work)


@contextlib.contextmanager
def _locked(target: _Target) -> Iterator[None]:
    """Holds the work folder alone; removes lock and folder when nothing is left.

    Raises:
      TargetError: another process holds it.
    """
    path = os.path.join(target.hidden, "lock")
    while True:
        os.makedirs(target.hidden, exist_ok=True)
        try:
            file = open(path, "ab")  # noqa: SIM115 - closed below
        except FileNotFoundError:
            continue
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise TargetError(
                    f"Only one run may write to a prefix at a time; another is just "
                    f"renaming its files to {target.prefix!r}... Run again."
                ) from error
            # Between opening and locking, the last holder may have removed it.
            if not _is_at(file.fileno(), path):
                continue
            try:
                yield
            finally:
                files.remove_file(path)
                _remove_if_empty(target.hidden)
            return


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _remove_if_empty(folder: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _abandon(target: _Target) -> bool:
    """Removes all that this run made; not, and False, while old files lie there."""
    if os.path.exists(os.path.join(target.work, "journal")):
        return False
    with contextlib.suppress(OSError):
        files.remove_tree(target.work)
    _remove_if_empty(target.hidden)
    return True


@contextlib.contextmanager
def _abandoning(target: _Target) -> Iterator[None]:
    """Gives up the run when what is done here fails for good.

    Raises:
      CommitError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        outcome = (
            "None of this run's files stays."
            if _abandon(target)
            else f"Undoing its renames failed too: until the next run with the same "
            f"prefix puts them back, old files lie in {target.work!r}."
        )
        raise CommitError(
            f"The files {target.prefix!r}... could not be written: "
            f"{error.strerror or error} ({error.filename or target.work!r}). "
            f"{outcome} Mend the cause and run again."
        ) from error
    except BaseException:
        _abandon(target)
        raise


def _persistently(work: Callable[[], _Result]) -> _Result:
    """Does the work, up to three times where the failure looks transient."""
    for pause in _PAUSES_SECONDS:
        try:
            return work()
        except OSError as error:
            if error.errno not in _TRANSIENT:
                raise
        time.sleep(pause)
    return work()


def _check_target(target: _Target, numbers: Iterable[tuple[int, int]]) -> None:
    """Makes the folder of the files.

    Raises:
      TargetError: it cannot be written to, or one of the names cannot be replaced.
    """
    path = target.directory
    try:
        os.makedirs(path, exist_ok=True)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        for index, count in numbers:
            path = target.path(index, count)
            with contextlib.suppress(FileNotFoundError):
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    raise IsADirectoryError(errno.EISDIR, "it is a folder", path)
    except OSError as error:
        raise TargetError(
            f"It must be possible to write {path!r}; it is not: {error.strerror}. "
            f"Choose another file_path_prefix."
        ) from error


@dataclasses.dataclass
class ReadTFRecords(beam.PTransform):
    """Reads TFRecord files; takes the place of `beam.io.ReadFromTFRecord`.

    Input: the pipeline. Output: the records of all matching files, decoded, in no
    particular order. Both checksums of every record are checked; a file that ends
    too early, in a record or in its compressed stream, is an error, never a short
    answer. Files without a byte are fine: writers make them for empty shards.

    Counter: records_read (namespace tfrecord).

    Attributes:
      file_pattern: a name or a glob (`*`, `?`, `[...]`, `**`). A file or leading
        folder that exists as it is written stands for itself, whatever signs it
        holds.
      coder: decodes the records.
      compression_type: UNCOMPRESSED, GZIP, DEFLATE (a zlib stream), or AUTO: by the
        content of each file, never by its name.
      validate: a pattern without a match is an error, when made as when run;
        otherwise it gives no record.

    Raises:
      SpecError: when made, if a parameter is wrong.
      SourceError: no file matches, or one cannot be read.
      TFRecordError: when run, if a file is damaged; it names file, record and offset.
    """

    file_pattern: str
    coder: coders.Coder = dataclasses.field(default_factory=coders.BytesCoder)
    compression_type: str = CompressionTypes.AUTO
    validate: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        _check_path("file_pattern", self.file_pattern)
        _check_coder(self.coder)
        _check_compression(self.compression_type)
        if self.validate:
            _matching(self.file_pattern, validate=True)
        self.with_output_types(_type_of(self.coder))

    def expand(self, start: beam.pvalue.PBegin) -> beam.PCollection[Any]:
        """Lists the files, and reads each by itself."""
        compression = _COMPRESSIONS.get(self.compression_type)
        pattern = os.path.join(os.getcwd(), self.file_pattern)
        return (
            start
            | "Pattern" >> beam.Create([pattern])
            | "List files" >> beam.FlatMap(_matching, validate=self.validate)
            | "Spread" >> beam.Reshuffle()
            | "Read files"
            >> beam.ParDo(
                _ReadFile(self.coder, "auto" if compression is None else compression)
            ).with_output_types(_type_of(self.coder))
        )


class _ReadFile(beam.DoFn):
    def __init__(self, coder: coders.Coder, compression: str) -> None:
        super().__init__()
        self.decode = None if type(coder) is coders.BytesCoder else coder.decode
        self.compression = compression
        self.records_read = beam.metrics.Metrics.counter("tfrecord", "records_read")

    def process(self, path: str) -> Iterator[Any]:
        reader = TFRecordReader(path, compression=self.compression, allow_empty=True)
        for batch in reader.batches():
            payloads = batch.to_list()
            self.records_read.inc(len(payloads))
            if self.decode is None:
                yield from payloads
            else:
                yield from map(self.decode, payloads)


def _matching(pattern: str, *, validate: bool) -> list[str]:
    """Returns the files that the pattern names, in byte order.

    Raises:
      SourceError: there is none, and `validate` wants one.
    """
    if not files.is_pattern(pattern):
        found = [pattern] if os.path.isfile(pattern) else []
    else:
        # Leading folders that exist as they are written are no patterns.
        parts = pattern.split("/")
        heads = list(itertools.accumulate(parts, lambda head, part: f"{head}/{part}"))
        existing = [n for n, head in enumerate(heads) if os.path.isdir(head or "/")]
        literal = next((n for n, at in enumerate(existing) if n != at), len(existing))
        head = glob.escape("/".join([*parts[:literal], ""]))
        found = files.expand(head + "/".join(parts[literal:]))
    if validate and not found:
        raise SourceError(
            f"file_pattern must name at least one file; {pattern!r} names none. Check "
            f"the path, or read with validate=False."
        )
    return found


def _check_path(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise SpecError(f"{name} must be a text that names files; found {value!r}.")
    if re.match("[A-Za-z][A-Za-z0-9+.-]*://", value):
        raise SpecError(
            f"{name} must be a path on a file system that every worker has mounted; "
            f"found {value!r}. Copy the files there, or mount the store."
        )
    _check_characters(name, value)


def _check_name_part(name: str, value: object) -> None:
    if not isinstance(value, str) or "/" in value:
        raise SpecError(f"{name} must be a text without '/'; found {value!r}.")
    _check_characters(name, value)


def _check_characters(name: str, value: str) -> None:
    try:
        fine = "\0" not in value and bool(value.encode() or True)
    except UnicodeEncodeError:
        fine = False
    if not fine:
        raise SpecError(f"{name} must be Unicode text without NUL; found {value!r}.")


def _check_coder(coder: object) -> None:
    if not isinstance(coder, coders.Coder):
        raise SpecError(
            f"coder must be a beam.coders.Coder, such as beam.coders.BytesCoder(); "
            f"found {coder!r}."
        )


def _check_compression(compression_type: object) -> None:
    if compression_type not in (CompressionTypes.AUTO, *_COMPRESSIONS):
        raise SpecError(
            f"compression_type must be AUTO, UNCOMPRESSED, GZIP or DEFLATE of "
            f"CompressionTypes, for readers of TFRecord files know no other; found "
            f"{compression_type!r}."
        )


def _compression_of(compression_type: str, name: str) -> Compression:
    _check_compression(compression_type)
    if compression_type != CompressionTypes.AUTO:
        return _COMPRESSIONS[compression_type]
    name = name.lower()
    if name.endswith(_FOREIGN_SUFFIXES):
        raise SpecError(
            f"Files that end in {os.path.splitext(name)[1]} would need a compression "
            f"that no reader of TFRecord files knows. End them in .gz or .deflate, or "
            f"set compression_type."
        )
    found = [kind for suffix, kind in _SUFFIXES.items() if name.endswith(suffix)]
    return found[0] if found else Compression.NONE


def _type_of(coder: coders.Coder) -> Any:
    """Returns the type of the coder's values, as far as it says."""
    try:
        return coder.to_type_hint()
    except NotImplementedError:
        return Any
