"""What a job will do, decided before it does anything. Writes nothing."""

import dataclasses
import functools
import os
import re
from collections.abc import Iterable
from typing import Any

from beam_pipeline.planning.features import resolve, vocabularies_of
from beam_pipeline.planning.inputs import Inputs, PlannedSource
from beam_pipeline.planning.like import Like, drift_notes
from beam_pipeline.planning.recognition import unreadable_file
from beam_pipeline.planning.request import (
    Prepared,
    deciding_settings,
    digest_of,
    inputs_of,
    prepare,
    with_images,
)
from beam_pipeline.planning.sizes import shards_of
from beam_pipeline.planning.splits import (
    SplitPlan,
    plan_splits,
    share_notes,
    with_splits,
)
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import size_text
from beam_pipeline.version import deciding_versions
from transforms.core.catalogue import DerivedSettings
from transforms.core.files import ShardName
from transforms.core.placing.sharding import Sharding
from transforms.core.schema import Kind, Schema
from transforms.core.vocabulary import Vocabulary
from transforms.errors import DamageError, InputError, SpecError, StorageError
from transforms.formats.pairs import MASK_WORDS
from transforms.formats.registry import TREES
from transforms.publishing import target
from transforms.storage.paths import absolute, is_remote, work_folder

# Segments of up to this in all travel through the shuffle.
_INLINE_BYTES = 8 << 20
# Less than this is converted sooner than more workers have started.
_SMALL_BYTES = 64 << 20
_LONGEST_NAME_BYTES = 255
# Less room than this share of the estimate cannot be enough, however wrong it is;
# records compress to no less than about the second.
_SURE, _SURE_COMPRESSED = 0.5, 0.05
# What is in no file name; line ends, escapes, and what turns the direction of writing.
_UNFIT = re.compile("[/\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
# Settings that decide the schema and nothing else: it says all that comes of them,
# and two ways to say the same give one digest.
_SAID_BY_SCHEMA = frozenset(
    (
        "features drop label_column image_columns preset feature_names unknown_label"
    ).split()
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Prepared):
    """A job that can be run.

    Attributes:
      directory: the output, as an absolute path.
      planned: the source, its schema and its splits.
      sharding: where rows go.
      splits: how rows fall into splits, and what is looked up for it.
      vocabularies: of its labels, as far as they are known.
      inline: whether segments travel through the shuffle.
      is_small: whether one process converts it sooner than more have started.
    """

    directory: str
    planned: PlannedSource
    sharding: Sharding
    splits: SplitPlan
    vocabularies: dict[str, Vocabulary]
    inline: bool
    is_small: bool

    @property
    def tasks(self) -> int:
        """How many an engine does at a time: 1 of a small job; 0 for all it can."""
        workers = self.spec.workers
        return int(self.is_small) if workers == "auto" else workers

    @property
    def workers(self) -> int:
        """How many processes of this machine do the tasks: all of them one a CPU."""
        if self.tasks or not hasattr(os, "sched_getaffinity"):
            return self.tasks or os.cpu_count() or 1
        return len(os.sched_getaffinity(0))

    @property
    def name(self) -> str:
        """The dataset's name."""
        return str(self.spec.name)

    @property
    def settings(self) -> dict[str, Any]:
        """What decides bytes beside the inputs, for the manifest."""
        by_content = {"rows_known_by": {"content": list(self.planned.content)}}
        return {
            **{
                key: value
                for key, value in deciding_settings(self.spec).items()
                # That the first row is a header, which it is without a word too.
                if key not in _SAID_BY_SCHEMA and not (key == "header" and value)
            },
            "format": self.inputs.format,
            "schema": self.planned.schema.to_json(),
            "shards": dict(self.sharding.shards),
            **(by_content if self.planned.rule.by_content else {}),
        }

    @functools.cached_property
    def digest(self) -> str:
        """Of the job: all that decides its bytes; inputs by their times or contents.

        In an object store, runs of one job write the same files.
        """
        decided = [self._decided, self.request.inputs, deciding_versions()]
        images = self.request.images
        return digest_of([*decided, images] if images else decided)

    @functools.cached_property
    def work_digest(self) -> str:
        """Of all that decides a block's rows and a shard's bytes, but the inputs.

        What a run leaves unfinished serves those of the same work digest: each block
        and each shard is known by its own inputs.
        """
        return digest_of([self._decided, self.inputs.root, deciding_versions()])

    @functools.cached_property
    def _decided(self) -> list[Any]:
        names = {name: list(v.given) for name, v in self.vocabularies.items()}
        files = self.inputs.companions
        beside = [(file.path, file.size, file.modified_ns) for file in files]
        return [self.settings, beside, names, self.splits.lock_digest]

    @property
    def work_folder(self) -> str:
        """Where this job's unfinished files are."""
        return target.at(self.directory).work_path(self.work_digest, seen=self.seen)


def make_plan(spec: Spec | Prepared) -> Plan:
    """Samples the source and decides everything else.

    Raises:
      UsageError: the job cannot be done; its type says what is wrong.
    """
    prepared = prepare(spec) if isinstance(spec, Spec) else spec
    spec, inputs = prepared.spec, prepared.inputs
    notes = (*prepared.notes, *inputs.notes)
    planned = _plan_inputs(prepared.resolved, inputs, prepared.like)
    check_part(spec, by_content=planned.rule.by_content)
    if spec.where:
        from transforms.reading.row_filter import row_filter

        row_filter(spec.where, planned.schema)
    splits = plan_splits(spec, planned.schema, planned.rule)
    planned = with_splits(planned, splits)
    drifted = drift_notes(prepared.like, planned.schema)
    remarks = (*planned.notes, *share_notes(spec), *drifted)
    planned = dataclasses.replace(planned, notes=remarks)
    shards = {
        name: shards_of(spec, size) for name, size in planned.record_bytes.items()
    }
    check_name(str(spec.name), planned.rule.names)
    # A small table may name many images.
    loaded = sum(planned.record_bytes.values()) if planned.schema.loaded else 0
    changed = {
        "request": with_images(prepared.request, spec, inputs, planned),
        "notes": notes,
    }
    return Plan(
        **vars(prepared) | changed,
        directory=absolute(spec.output),
        planned=planned,
        sharding=Sharding(
            rule=planned.rule,
            shards=shards,
            seed=spec.seed,
            shuffle=spec.shuffle,
            total_bytes=planned.input_bytes,
            keyed=splits.keyed,
        ),
        splits=splits,
        vocabularies=vocabularies_of(planned.schema),
        # Images never travel through the shuffle, however few they are.
        inline=(
            planned.rows_bytes <= _INLINE_BYTES
            and not any(feature.inline for feature in planned.schema.features)
        ),
        is_small=max(inputs.bytes, loaded) < _SMALL_BYTES,
    )


def plan_source(spec: Spec) -> tuple[Inputs, PlannedSource]:
    """Lists and samples the source of a job; the output is not looked at.

    Raises:
      UsageError: it cannot be read as the job says.
    """
    resolved = resolve(spec)
    inputs = inputs_of(spec, resolved)
    return inputs, _plan_inputs(resolved, inputs)


def check_part(spec: Spec, *, by_content: bool) -> None:
    """Raises SpecError where rows of a later part could be in another split.

    Args:
      spec: of the job.
      by_content: whether the split of a row goes by what it holds.
    """
    by_key = spec.key_column or spec.group_column
    if spec.part and spec.splits and by_content and not by_key:
        raise SpecError(
            "Rows of parts that are split by shares need a key, so that one key is in "
            "one split in all parts. Name its --key-column."
        )


def _plan_inputs(spec: Spec, inputs: Inputs, like: Like | None = None) -> PlannedSource:
    """Returns the plan of trees of images or of tables; damage is an InputError."""
    # Each where it is needed: half of the program is not, for any one source.
    if spec.masks not in MASK_WORDS:
        from beam_pipeline.planning.images import mask_folder

        spec = spec.model_copy(update={"masks": mask_folder(spec, inputs.root)})
    try:
        if inputs.format in TREES:
            from beam_pipeline.planning.images import plan_images

            return plan_images(spec, inputs, like)
        from beam_pipeline.planning.tables import plan_tables

        return plan_tables(spec, inputs, like)
    except DamageError as error:
        # Of the source: nothing of this program's own is read here.
        raise InputError(str(error)) from error
    except OSError as error:
        if is_remote(str(error.filename or spec.source)):
            # It names the store, which cannot be reached perhaps.
            raise
        raise unreadable_file(error.filename or spec.source, error) from error


def check_name(name: str, splits: Iterable[str]) -> None:
    """Raises SpecError where files of a dataset cannot have a name."""
    if name in ("", ".", "..") or _UNFIT.search(name):
        raise SpecError(
            f"name must be part of a file name, and have no control characters, which "
            f"would change what a terminal shows; found {name!r}. Give another --name."
        )
    longest = max(splits, key=len, default="train")
    example = str(ShardName(name, longest, 0, 1, "gzip"))
    if len(os.fsencode(example)) > _LONGEST_NAME_BYTES:
        raise SpecError(
            f"Shard names must fit into {_LONGEST_NAME_BYTES} bytes; {example[:80]}... "
            f"does not. Give a shorter --name."
        )


def derived_settings(spec: Spec, schema: Schema) -> DerivedSettings:
    """Returns what `index` and `catalogue` of a spec come to.

    Args:
      spec: of the job.
      schema: of its rows.
    """
    images = bool(schema.of_kind(Kind.IMAGE))
    catalogue = images if spec.catalogue is None else spec.catalogue
    # A record of a compressed file cannot be looked up.
    index = spec.index and spec.compression == "none"
    may_be_keys = (Kind.INT64, Kind.TEXT)
    keys = [f for f in schema.stored if f.kind in may_be_keys and not f.is_list]
    key = next((f.name for f in keys if f.source_column == spec.key_column), "")
    return DerivedSettings(
        index=index,
        # DALI needs the text.
        text_index=index and images,
        catalogue=catalogue,
        key=key if catalogue else "",
    )


def estimate(plan: Plan) -> int:
    """Returns the bytes that a job needs, images unchanged and before compression.

    On the output's file system are, at the same time, until the run has committed:

        segments   the rows on their way to their shards, unless they travel in memory
        shards     the finished files

    A dataset that is replaced is there all the while, so what it takes is not free
    anyway; the unfinished work of an earlier run is taken over or removed, so what
    that takes is.
    """
    shards = sum(plan.planned.record_bytes.values())
    segments = 0 if plan.inline else plan.planned.rows_bytes
    if plan.spec.limit is not None:
        # Of a whole source; rows take less than the records they become.
        segments = min(segments, shards)
    return segments + shards


def need_text(plan: Plan) -> str:
    """Returns the estimate as text: "3.1 GB before compression"."""
    words = size_text(estimate(plan))
    if _remakes_images(plan.spec):
        return f"{words} if images stay as large as they are"
    return words if plan.spec.compression == "none" else f"{words} before compression"


def free_bytes(directory: str) -> int:
    """Returns the room for a job with this output, its unfinished work counted in.

    Raises:
      OSError: the file system does not say.
    """
    folder = os.path.dirname(os.path.abspath(directory))
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    status = os.statvfs(folder)
    total = status.f_bavail * status.f_frsize
    for parent, _, names in os.walk(work_folder(directory)):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size
            except OSError:
                # Another run is at work there, which will be said elsewhere.
                continue
    return total


def check_room(plan: Plan) -> None:
    """Raises StorageError where the room is not enough, by far."""
    # Object stores do not say what is free, and images of another size may be small.
    if is_remote(plan.directory) or _remakes_images(plan.spec):
        return
    try:
        free = free_bytes(plan.directory)
    except OSError:
        # What is not known is no reason to stop.
        return
    sure = _SURE if plan.spec.compression == "none" else _SURE_COMPRESSED
    if free < estimate(plan) * sure:
        raise StorageError(
            f"There must be room for the output; {plan.spec.output!r} needs about "
            f"{need_text(plan)}, and {size_text(free)} are free on its file system. "
            f"Nothing was read. Make room, or choose another output."
        )


def _remakes_images(spec: Spec) -> bool:
    """Whether settings change pixels, so that the sizes of outputs are unknown."""
    changing = (spec.resize, spec.image_format, spec.channels)
    return any(setting is not None for setting in changing)
