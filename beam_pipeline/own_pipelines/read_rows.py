"""`ReadRows`: the rows of any source that `convert` reads, for any pipeline.

plan, when the pipeline is built: files, schema, splits
     -> blocks of the files, spread over the workers    List
     -> batches, rejects, facts                         Read
     -> rows, or Arrow batches                          Give rows
"""

import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Unpack

import apache_beam as beam
import pyarrow as pa

from beam_pipeline.engines.checks import check_seen
from beam_pipeline.own_pipelines.engine_workers import Held, workers_of
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.keywords import Keywords
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.spec import Spec, make_spec
from beam_pipeline.version import deciding_versions
from transforms.core.model import Batch, ReadFacts, RejectLog
from transforms.core.schema import Kind, Schema
from transforms.errors import SpecError, raising_in_python
from transforms.formats.input_files import HeldListing, InlineListing
from transforms.reading.row_filter import row_filter
from transforms.stages.read import ListBlocks, ReadBlocks
from transforms.storage.paths import absolute
from transforms.tfrecord.read import check_begin
from transforms.work.rejects import read_lines
from transforms.work.store import Store
from transforms.work.worker_check import WorkerRules

# Three stages hold the listing, each in base 64: 1 MiB of the graph in all.
_INLINE_BYTES = (1 << 20) // 4
# A block has many more, and dicts take ten times the memory of Arrow.
_ROWS_AT_ONCE = 4096
_SPLIT = "split"
_PATHS = ("source", "labels", "vocabulary")
_SECTIONS = frozenset(["Source", "Features", "Labels"])
_BESIDE = frozenset(
    (
        "features label_column split_column max_image_bytes keep_rejected_bytes "
        "min_records shared_output"
    ).split()
)


@dataclasses.dataclass(frozen=True)
class ReadSource:
    """What is known of a source before its rows are read.

    Attributes:
      root: the folder that paths of images are relative to.
      schema: of its rows; every feature that is not derived is a column.
      inputs: its files, as a manifest states them.
      skipped: items left out before reading, by reason.
      expected_rows: how many rows must be read; None if not known.
      notes: what a person should know of how it was understood.
    """

    root: str
    schema: Schema
    inputs: Mapping[str, Any]
    skipped: Mapping[str, int]
    expected_rows: int | None
    notes: tuple[str, ...]


class ReadAccounts(NamedTuple):
    """What `ReadRows` has read, for `WriteDataset(..., accounts=read.accounts)`.

    Attributes:
      facts: a ReadFacts for each piece of the source, and a RejectLog for each with
        rejects.
      source: what is known of the source already.
    """

    facts: beam.PCollection[ReadFacts | RejectLog]
    source: ReadSource


class RowsRead(NamedTuple):
    """The outputs of `ReadRows`.

    Attributes:
      rows: dicts, or Arrow record batches.
      rejects: a dict for each item that is no row: source, row, line, stage, reason,
        message and sha256, as `rejects.jsonl` of a dataset has them.
      accounts: what was read, rejected and skipped, for `WriteDataset`.
    """

    rows: beam.PCollection[Any]
    rejects: beam.PCollection[dict[str, Any]]
    accounts: ReadAccounts


class ReadRows(beam.PTransform):
    """Reads the rows of folders of images, CSV, tables and whatever `convert` reads.

        read = pipeline | ReadRows("photos")
        (read.rows | beam.Filter(keep)
                   | WriteDataset("out/photos", accounts=read.accounts))

    Input: the pipeline. Output: a `RowsRead`.

    `rows` has a dict for each row, with all columns, in no particular order; with
    `batches=True` Arrow record batches, each of one block of a file. Values are typed
    as `convert` types them: int, float (of 32 bits), bool, str, bytes, lists of them,
    class names for labels, timestamps as int in their unit, None for missing values.
    Images of a folder, or that a table names, are paths relative to the source; images
    that are in the source itself are bytes. Where the source says the split of a row,
    the row has it as `split`.

    Guarantees:
      - Files are listed, and the schema is decided, where the pipeline is built. A file
        that changes before it is read is a reject or an error.
      - Every item of the source is a row, a reject or counted as skipped. With
        `accounts` given to `WriteDataset`, its manifest has the account of the source,
        and what the steps between have dropped or added. Columns that those leave as
        they are stay what the source says: images, classes, timestamps.
      - A retry reads the same rows again.

    A worker needs some times the memory of a block of 8 to 256 MB, and all rejects of
    one, some 300 bytes each; they travel in elements, for there is no work folder. The
    graph holds the list of files up to about 6,000 of them; a longer one is listed
    again by each worker process, which fails where it has changed.
    Counters: rows_read, rows_rejected (namespace read).
    """

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        batches: bool = False,
        **settings: Unpack[Keywords],
    ) -> None:
        """Checks the parameters; the source is looked at when the pipeline is built.

        Args:
          source: folder, file or pattern of what is read.
          batches: whether to give Arrow record batches instead of dicts.
          settings: those of `convert` that concern reading: of source and features,
            and `features`, `label_column`, `split_column`, `max_image_bytes`,
            `keep_rejected_bytes`, `shared_output` and `min_records` (0 reads a folder
            without images as no row).

        Raises:
          SpecError: a parameter is wrong.
        """
        super().__init__()
        self._batches = batches
        with raising_in_python():
            if not isinstance(source, str | os.PathLike):
                raise SpecError(
                    f"The source of ReadRows must be a path or a pattern; found a "
                    f"{type(source).__name__}. Give rows of your own to WriteDataset, "
                    f"as in beam.Create(rows) | WriteDataset(...)."
                )
            for name in settings:
                _check_setting(name)
            # A spec needs an output, and none is looked at here.
            given = {**settings, "source": os.fspath(source), "output": "OUTPUT"}
            self._spec = make_spec(given)

    def expand(self, begin: beam.pvalue.PBegin) -> Any:
        """Plans, then reads each block by itself.

        Raises:
          UsageError: the source cannot be read as the settings say, or its files are
            where the workers do not see them.
        """
        check_begin("ReadRows", begin)
        spec, workers = self._spec, workers_of(begin.pipeline)
        with raising_in_python():
            inputs, planned = plan_source(spec)
            places = [
                ("source", inputs.root),
                ("folder of --images-root", spec.images_folder),
            ]
            check_seen(workers, places, shared=spec.shared_output)
        source = planned.make(_listing_of(planned.listing.table(), spec))
        rules = None
        if workers is not None:
            has_images = bool(planned.schema.of_kind(Kind.IMAGE))
            find = functools.partial(
                deciding_versions, images=has_images, compressed=False
            )
            rules = WorkerRules(
                wanted=find(),
                find=find,
                elsewhere=not spec.shared_output,
                witnesses=planned.witnesses(inputs.root, spec.images_folder),
            )
        store = Store("", keep_items=spec.keep_rejected_bytes, rules=rules)
        blocks = begin | "List" >> ListBlocks(source, rules=rules)
        chosen = row_filter(spec.where, planned.schema) if spec.where else None
        read = blocks | "Read" >> ReadBlocks(source, store, row_filter=chosen)
        kind = pa.RecordBatch if self._batches else dict[str, Any]
        give = _batches_of if self._batches else _rows_of
        rows = read.batches | "Give rows" >> beam.FlatMap(
            give, [f.name for f in planned.schema.stored if not f.derived]
        ).with_output_types(kind)
        rejects = read.rejects | "Give rejects" >> beam.FlatMap(_rejects_of)
        facts = (read.facts, read.rejects) | "Give facts" >> beam.Flatten()
        read_source = ReadSource(
            root=inputs.root,
            schema=planned.schema,
            inputs=inputs.facts(),
            skipped=planned.skipped,
            expected_rows=planned.expected_rows,
            notes=planned.notes,
        )
        return RowsRead(rows, rejects, ReadAccounts(facts, read_source))


def _check_setting(name: str) -> None:
    """Raises SpecError for a setting that `ReadRows` does not take, such as splits."""
    setting = SETTINGS.get(name)
    if setting and name not in _BESIDE and setting.section not in _SECTIONS:
        raise SpecError(
            f"ReadRows takes the settings that concern reading; {name} is not one of "
            f"them. Give it to WriteDataset, or to convert."
        )


def _listing_of(table: pa.Table, spec: Spec) -> HeldListing:
    """Returns a listing for the graph: as it is, or by what makes it again."""
    listing = InlineListing.of(table)
    if len(listing.data) <= _INLINE_BYTES:
        return listing
    # Workers may run in another folder.
    paths = {name: getattr(spec, name) for name in _PATHS}
    spec = spec.model_copy(
        update={k: absolute(v) for k, v in paths.items() if isinstance(v, str)}
    )
    make = functools.partial(_list_again, json.dumps(spec.to_json(), sort_keys=True))
    return _ListedAgain(Held(spec.source, _listing_digest(table), make))


@dataclasses.dataclass(frozen=True, slots=True)
class _ListedAgain(HeldListing):
    """A listing that each process makes again, for it is too long for the graph."""

    held: Held[pa.Table]

    def table(self) -> pa.Table:
        return self.held.get()


def _list_again(spec: str) -> tuple[pa.Table, str]:
    """Returns the listing of a source once more, and its digest; the spec is JSON."""
    _, planned = plan_source(make_spec(json.loads(spec)))
    listing = planned.listing.table()
    return listing, _listing_digest(listing)


def _listing_digest(table: pa.Table) -> str:
    """Returns the digest of a listing, by which workers know that theirs is equal."""
    data = InlineListing.of(table.combine_chunks()).data
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _batches_of(batch: Batch, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yields a block's rows, if any, with the source's own splits as a column."""
    rows = batch.rows.select(columns)
    if not rows.num_rows:
        return
    if batch.splits is not None:
        if _SPLIT in columns:
            rows = rows.drop_columns(_SPLIT)
        rows = rows.append_column(_SPLIT, batch.splits)
    yield rows


def _rows_of(batch: Batch, columns: list[str]) -> Iterable[dict[str, Any]]:
    """Yields a block's rows as dicts; a slice at a time, for memory."""
    for rows in _batches_of(batch, columns):
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            yield from rows.slice(start, _ROWS_AT_ONCE).to_pylist()


def _rejects_of(log: RejectLog) -> Iterator[dict[str, Any]]:
    """Returns the rejects of rows that are read, as the dicts of lines of rejects."""
    return map(json.loads, read_lines(log))
