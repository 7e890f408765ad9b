"""What a job will do, decided before it does anything. Writes nothing."""

import dataclasses
import functools
import hashlib
import itertools
import os
from typing import Any

from beam_pipeline.planning.features import vocabularies_of
from beam_pipeline.planning.inputs import (
    Inputs,
    PlannedInputs,
    find_inputs,
    named_entry,
)
from beam_pipeline.planning.like import Like, drift_notes, find_like
from beam_pipeline.planning.recognition import unreadable_file
from beam_pipeline.planning.request import (
    Request,
    check_name,
    deciding_settings,
    digest_of,
    make_request,
    name_of,
    request_with_images,
    resolve,
)
from beam_pipeline.planning.sizes import shards_of
from beam_pipeline.planning.splits import (
    SplitPlan,
    check_lock_place,
    check_part,
    plan_splits,
    share_notes,
    with_splits,
)
from beam_pipeline.settings.options import IMAGES, SETTINGS, TABLES, TABLES_AND_LABELS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.version import deciding_versions
from transforms.core.manifest import Manifest
from transforms.core.placing.sharding import Sharding
from transforms.core.vocabulary import Vocabulary
from transforms.errors import (
    DamageError,
    InputError,
    RecordCountError,
    RejectLimitError,
    SpecError,
    TargetError,
)
from transforms.formats.pairs import MASK_WORDS
from transforms.formats.registry import FORMATS, TABLE_FORMATS, TREES
from transforms.publishing import target
from transforms.stages.limits import (
    account_facts,
    count_message,
    limit_message,
    tolerated,
)
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote
from transforms.storage.protocol import Standing
from transforms.work.rejects import check_left

# Segments of up to this in all travel through the shuffle.
_INLINE_BYTES = 8 << 20
# Less than this is converted sooner than more workers have started.
_SMALL_BYTES = 64 << 20
# Settings that decide the schema and nothing else: it says all that comes of them,
# and two ways to say the same give one digest.
_SAID_BY_SCHEMA = frozenset(
    (
        "features drop label_column image_columns preset feature_names unknown_label"
    ).split()
)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A job whose inputs are listed, and not yet read.

    Attributes:
      spec: with the name filled in.
      resolved: the same with what files say in place of their paths.
      inputs: the files.
      request: what the job asks for.
      done: the dataset at the output, where that is what the job would give.
      notes: what a person should know before the run.
      seen: what is at the target now.
      like: what is taken from an earlier dataset; None for nothing.
    """

    spec: Spec
    resolved: Spec
    inputs: Inputs
    request: Request
    done: Manifest | None
    notes: tuple[str, ...]
    seen: str
    like: Like | None = None


def prepare(spec: Spec, *, steps: bool = False) -> Prepared:
    """Looks at the target and lists the inputs.

    Args:
      spec: of the job.
      steps: whether own steps run between reading and writing.

    Raises:
      UsageError: the job cannot be done; its type says what is wrong.
    """
    standing = storage(spec.source).standing()
    if standing == "folder" and storage(spec.output).is_inside(spec.source):
        raise TargetError(
            f"The output must be outside the source, or the next run would read it; "
            f"{spec.output!r} is in {spec.source!r}. Choose another output."
        )
    check_lock_place(spec, standing)
    there = target.at(spec.output)
    seen = there.state()
    manifest = there.check_contents()
    check_left(target.rejects_path(spec.output))
    spec = spec.model_copy(update={"name": name_of(spec, standing)})
    like = find_like(spec)
    resolved = resolve(spec)
    inputs = inputs_of(spec, resolved, standing)
    if like is not None:
        spec, resolved = like.applied(spec), like.applied(resolved)
    request = dataclasses.replace(make_request(resolved, inputs), steps=steps)
    if like is not None and not like.is_of_parts:
        # Of parts the own list counts, not the longest, which others make longer.
        more = hashlib.sha256(like.model.to_bytes()).hexdigest()
        settings = digest_of([request.settings, more])
        request = dataclasses.replace(request, settings=settings)
    notes: tuple[str, ...] = ()
    done = None
    if manifest is not None:
        if request.answered_by(manifest, spec):
            _check_limits(manifest, spec)
            done = manifest
        else:
            why = request.differs_from(manifest)
            if not spec.overwrite and not request.lacks_lock(manifest, spec):
                raise target.taken(spec.output, manifest, why)
            there.check_replaceable()
            notes = (f"the dataset at the output will be replaced: {why}",)
    return Prepared(spec, resolved, inputs, request, done, notes, seen, like)


def _check_limits(manifest: Manifest, spec: Spec) -> None:
    """Refuses a dataset with more rejects or other records than this job asks for."""
    wrong = count_message(manifest.records, spec.min_records, spec.max_records)
    if wrong:
        raise RecordCountError(wrong)
    rate, output = spec.max_reject_rate, absolute(spec.output)
    if rate is None or tolerated(manifest.account, rate):
        return
    error = RejectLimitError(
        limit_message(manifest.account, {}, rate=rate, listed=output)
    )
    error.account = account_facts(manifest.account, output)
    raise error


def inputs_of(spec: Spec, resolved: Spec, standing: Standing) -> Inputs:
    """Returns the inputs with the tables that the spec names: they decide bytes too.

    Args:
      spec: of the job.
      resolved: the same with what files say in place of their paths.
      standing: what has the name of the source.
    """
    inputs = find_inputs(resolved, standing)
    if inputs.format in ("images", "pairs"):
        from beam_pipeline.planning.images import with_masks

        inputs = with_masks(resolved, inputs)
    # Before what is at the output: no other place would make it right.
    _check_settings(resolved, inputs.format)
    named = [p for p in (spec.labels, spec.split_ids, spec.mask_classes) if p]
    entries = [named_entry(path, os.path.dirname(path)) for path in named]
    companions = (*inputs.companions, *entries)
    return dataclasses.replace(inputs, companions=companions)


def _check_settings(spec: Spec, format_name: str) -> None:
    """Raises SpecError for a setting that makes no sense for what a source holds."""
    is_tree, has_labels = format_name in TREES, bool(spec.labels)
    others = {TABLES, *([] if has_labels else [TABLES_AND_LABELS])}
    others = others if is_tree else {IMAGES}
    kinds = {n: s.sources for n, s in SETTINGS.items() if s.sources in others}
    if is_tree and not has_labels:
        options = itertools.chain(*(f.options for f in TABLE_FORMATS.values()))
        kinds |= dict.fromkeys(options, TABLES)
    if format_name == "files":
        of_images = (n for n, s in SETTINGS.items() if s.section == "Images")
        kinds |= dict.fromkeys({"preset", *of_images} - {"max_image_bytes"}, "images")
    advice = (
        "; a table with a row an image is given with --labels FILE, and --feature-name "
        "filename= leaves a feature out"
    )
    for setting in sorted(kinds.keys() & spec.changed_json().keys()):
        raise SpecError(
            f"{setting} is for {kinds[setting]}; the source holds "
            f"{FORMATS[format_name].title}. Leave it out{advice if is_tree else ''}."
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
    planned: PlannedInputs
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
    def needed_bytes(self) -> int:
        """What the job needs on disk, images unchanged and before compression.

        On the output's file system are, at the same time, until the run has committed:

            segments   the rows on their way to their shards, unless they travel in
                       memory
            shards     the finished files

        A dataset that is replaced is there all the while, so what it takes is not free
        anyway; the unfinished work of an earlier run is taken over or removed, so what
        that takes is.
        """
        shards = sum(self.planned.record_bytes.values())
        segments = 0 if self.inline else self.planned.rows_bytes
        if self.spec.limit is not None:
            # Of a whole source; rows take less than the records they become.
            segments = min(segments, shards)
        return segments + shards

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
    request = request_with_images(prepared.request, spec, inputs, planned)
    return Plan(
        **vars(prepared) | {"request": request, "notes": notes},
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
        is_small=max(inputs.entries.bytes, loaded) < _SMALL_BYTES,
    )


def plan_source(spec: Spec) -> tuple[Inputs, PlannedInputs]:
    """Lists and samples the source of a job; the output is not looked at.

    Raises:
      UsageError: it cannot be read as the job says.
    """
    resolved = resolve(spec)
    inputs = inputs_of(spec, resolved, storage(spec.source).standing())
    return inputs, _plan_inputs(resolved, inputs)


def _plan_inputs(spec: Spec, inputs: Inputs, like: Like | None = None) -> PlannedInputs:
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
