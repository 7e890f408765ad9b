"""`WriteTFRecords`: records of any kind to TFRecord files.

It takes the parameters of `beam.io.WriteToTFRecord` and promises more. A write goes

    records -> sorted runs, one a bundle, spilled when large     Sort
            -> (shard, part of a run)                            Cut by shard
            -> GroupByKey: descriptors and small runs cross it
            -> finished files in the work folder                 Write files
            -> renamed, one after another                        Publish

The work folder, and what is in it, is drawn in `renaming`.
"""

import dataclasses
import errno
import functools
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn, TypeVar

import apache_beam as beam
from apache_beam import coders
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.transforms.window import GlobalWindows

from transforms import files
from transforms.core.tfrecord import FileFacts, TFRecordWriter
from transforms.core.tfrecord.frame import DEFAULT_MAX_RECORD_BYTES
from transforms.errors import EncodingError, SpecError, StorageError
from transforms.storage.draft_group import (
    discard_all,
    most_drafts,
    publish_together,
)
from transforms.storage.retry import persistently
from transforms.tfrecord.parameters import (
    check_coder,
    check_local_path,
    check_name_part,
    check_num_shards,
    check_template,
    compression_of,
    type_of,
)
from transforms.tfrecord.renaming import (
    Target,
    WritePlan,
    WrittenShard,
    abandon,
    abandoning,
    check_target,
    fill_template,
    publish,
    remove_empty_folders,
)
from transforms.tfrecord.sorted_run import (
    SortedRun,
    cut_run,
    frame_records,
    merge_runs,
    pack,
)

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
# Of files that are made durable together. Their runs wait in memory.
_GROUP_BYTES = 1 << 24


@dataclasses.dataclass
class WriteTFRecords(beam.PTransform):
    """Writes records to TFRecord files; takes the place of `beam.io.WriteToTFRecord`.

    The parameters are those of `WriteToTFRecord` but for two: there is no
    `triggering_frequency`, for the input has an end, and templates hold no signs of
    windows (`U`, `V`, `W`), for names depend on number and count of the file alone.

    Input: elements that the coder turns into bytes; by default, bytes. Bounded;
    windows are dropped. Output: the name of every file, beginning with
    `file_path_prefix` as it was given.

    Guarantees:
      - Equal collections of records give equal bytes in files of equal names: with
        any runner, order, bundling or number of retries. Records are dealt out and
        ordered by a hash of their bytes; duplicates are kept.
      - Files appear under their names only when all of them are whole and synced,
        each by one rename. When anything fails before the first rename, no new file
        appears, and files that were there before stay as they were. Files of exactly
        these names are replaced; nothing else is touched: no name is ever a pattern.
      - A failure or a kill in the middle of the renames leaves whole files, some of
        them new. A retry goes on with the others; the next write with the same
        prefix, template and suffix replaces them all.
      - A retried or repeated bundle adds nothing.

    A failure of this step removes its own work folder; one of another step, one in the
    middle of the renames, or a killed process can leave it
    (`.<name>.beam-tfrecord/` beside the files). The next write with the same prefix,
    template and suffix removes it, and so does `beam-tfrecord clean`. Of two such
    writes at the same time the one that started first may fail by that; a mix of both
    is never published.

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
      compression_type: UNCOMPRESSED, GZIP, or AUTO: by the file's name, gzip for .gz.

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
        check_local_path("file_path_prefix", self.file_path_prefix)
        check_coder(self.coder)
        template = self._template
        check_name_part("shard_name_template", template)
        check_name_part("file_name_suffix", self.file_name_suffix)
        check_template(template)
        check_num_shards(self.num_shards)
        if not os.path.basename(self._target("").shown(0, 1)):
            raise SpecError(
                f"The files must have a name; {self.file_path_prefix!r} with template "
                f"'' is a folder. Name a file in it."
            )
        self.with_input_types(type_of(self.coder))

    @property
    def _template(self) -> str:
        given = self.shard_name_template
        return _DEFAULT_TEMPLATE if given is None else given

    def _target(self, run: str) -> Target:
        ending = fill_template(self._template, 0, 1) + self.file_name_suffix
        return Target(
            prefix=self.file_path_prefix,
            template=self._template,
            suffix=self.file_name_suffix,
            compression=compression_of(
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
        # Random, and yet no byte of the output depends on it: it keeps runs apart.
        target = self._target(secrets.token_hex(8))
        wanted = self.num_shards if self._template else 1
        if not records.windowing.is_default():
            records = records | "Drop windows" >> beam.WindowInto(GlobalWindows())
        runs = records | "Sort" >> beam.ParDo(
            _SortRecords(target, self.coder, wanted)
        ).with_output_types(SortedRun)
        measures = runs | "Measure" >> beam.Map(_measure)
        # One WritePlan
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
            | "Write files"
            >> beam.ParDo(_WriteFile(target)).with_output_types(WrittenShard)
        )
        return plan | "Publish" >> beam.FlatMap(
            publish, beam.pvalue.AsIter(shards), target
        ).with_output_types(str)


class _SortRecords(beam.DoFn):
    """Turns the records of a bundle into sorted runs."""

    def __init__(self, target: Target, coder: coders.Coder, wanted: int) -> None:
        super().__init__()
        self.target = target
        self.wanted = wanted
        # BytesCoder would assert what is checked here anyway.
        self.encode = None if type(coder) is coders.BytesCoder else coder.encode
        self.unfinished: list[str] = []

    def setup(self) -> None:
        check_target(self.target, [(0, self.wanted or 1)])

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
        # Only an interrupted bundle leaves paths here.
        for path in self.unfinished:
            files.remove_file(path)
        if self.unfinished:
            remove_empty_folders(self.target)

    def _store(self) -> SortedRun:
        count = len(self.records)
        packed = pack(self.records)
        self.taken += count
        self.records, self.size = [], 0
        payload = len(packed) - 16 * count
        if len(packed) <= _INLINE_BYTES:
            return SortedRun("", packed, count, 0, count, 0, payload)
        with abandoning(self.target):
            path = _again(functools.partial(_spill, self.target, packed))
        self.unfinished.append(path)
        return SortedRun(path, b"", count, 0, count, 0, payload)

    def _refuse(self, what: str) -> NoReturn:
        number = self.taken + len(self.records)
        abandon(self.target)
        raise EncodingError(
            f"Every record must {what}, as element {number:,} of its bundle. Encode "
            f"it first, or name its coder. No file was written."
        )


def _again(work: Callable[[], _Result]) -> _Result:
    """Does work in the work folder; see `transforms.storage.retry`."""
    # Another worker may just have removed a folder because it was empty.
    return persistently(work, also={errno.ENOENT})


def _spill(target: Target, packed: bytes) -> str:
    """Stores a packed run under a name of this attempt; returns its path."""
    path = os.path.join(target.part("runs"), secrets.token_hex(16))
    # Not synced: after a power loss the job starts again.
    with files.create(path, attempts=target.part("attempts"), durable=False) as file:
        file.write(packed)
    return path


def _fetch(run: SortedRun, start: int, stop: int) -> bytes:
    if not run.path:
        return run.data[start:stop]
    return files.read_range(run.path, start, stop)


def _measure(run: SortedRun) -> tuple[int, int]:
    return run.records, run.size


def _plan_shards(
    _: bytes, measures: Iterable[tuple[int, int]], target: Target, wanted: int
) -> WritePlan:
    """Chooses the number of files, and clears away what earlier runs left."""
    records = payload_bytes = 0
    for more_records, more_bytes in measures:
        records += more_records
        payload_bytes += more_bytes
    stored = payload_bytes + 16 * records
    shards = wanted or max(1, -(-stored // _SHARD_BYTES))
    with abandoning(target):
        check_target(target, [(index, shards) for index in range(shards)])
        if files.exists(target.hidden):
            with target.own.held():
                target.own.remove_runs(but=target.run)
    return WritePlan(shards, records, payload_bytes)


def _name_shards(plan: WritePlan) -> Iterable[tuple[int, SortedRun]]:
    nothing = SortedRun("", b"", 0, 0, 0, 0, 0)
    return [(index, nothing) for index in range(plan.shards)]


def _cut_by_shard(
    run: SortedRun, plan: WritePlan, target: Target
) -> Iterable[tuple[int, SortedRun]]:
    with abandoning(target):
        return _again(lambda: list(cut_run(run, plan.shards, _fetch)))


@dataclasses.dataclass(frozen=True)
class _Drafted:
    """A file that is written and does not have its name yet."""

    index: int
    runs: Sequence[SortedRun]
    draft: files.Draft
    facts: FileFacts


class _WriteFile(beam.DoFn):
    """Writes the records of one shard in their order; a retry replaces the file.

    Files are made durable in groups.
    """

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.records_written = beam.metrics.Metrics.counter(
            "tfrecord", "records_written"
        )

    def setup(self) -> None:
        self.group: list[_Drafted] = []

    def start_bundle(self) -> None:
        self._discard()

    def process(
        self, element: tuple[int, Iterable[SortedRun]]
    ) -> Iterable[WrittenShard]:
        index, parts = element
        runs = [run for run in parts if run.records]
        with abandoning(self.target):
            draft, facts = _again(
                functools.partial(_draft_file, self.target, index, runs)
            )
        self.group.append(_Drafted(index, runs, draft, facts))
        stored = sum(each.facts.stored_bytes for each in self.group)
        is_full = len(self.group) >= most_drafts() or stored >= _GROUP_BYTES
        return self._finish() if is_full else []

    def finish_bundle(self) -> Iterator[beam.utils.windowed_value.WindowedValue]:
        for shard in self._finish():
            yield GlobalWindows.windowed_value(shard)

    def teardown(self) -> None:
        self._discard()

    def _discard(self) -> None:
        group, self.group = self.group, []
        discard_all([each.draft for each in group])

    def _finish(self) -> list[WrittenShard]:
        group, self.group = self.group, []
        with abandoning(self.target):
            try:
                publish_together([each.draft for each in group])
            except (OSError, StorageError):
                # Each by itself; one that fails for good says why.
                for each in group:
                    _again(
                        functools.partial(
                            _write_file, self.target, each.index, each.runs
                        )
                    )
        self.records_written.inc(sum(each.facts.records for each in group))
        return [WrittenShard(each.index, each.facts) for each in group]


def _draft_file(
    target: Target, index: int, runs: Sequence[SortedRun]
) -> tuple[files.Draft, FileFacts]:
    """Writes a file that does not get its name yet."""
    path = os.path.join(target.part("shards"), str(index))
    draft = files.draft(path, attempts=target.part("attempts"))
    with (
        files.discarded_on_error(draft),
        TFRecordWriter(draft, compression=target.compression) as writer,
    ):
        for records in merge_runs(runs, _fetch):
            writer.write_framed(frame_records(records), records=len(records))
    return draft, writer.facts()


def _write_file(target: Target, index: int, runs: Sequence[SortedRun]) -> None:
    draft, _ = _draft_file(target, index, runs)
    with files.written(draft):
        pass
