"""What a job asks for, from its settings and listings; whether its dataset is there.

A request is the digests of the job's settings and of its inputs as they are listed,
by size and modification time or by content. The manifest keeps the request that made
the dataset; one that is made again over unchanged inputs is answered without reading.
"""

import dataclasses
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from beam_pipeline.planning.features import resolve
from beam_pipeline.planning.inputs import (
    Inputs,
    PlannedSource,
    default_name,
    find_inputs,
    named_entry,
    output_name,
)
from beam_pipeline.planning.like import Like, find_like
from beam_pipeline.planning.splits import lock_digest
from beam_pipeline.settings.options import IMAGES, SETTINGS, TABLES, TABLES_AND_LABELS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import count_text
from beam_pipeline.version import __version__
from transforms.core.files import folder_of_parts
from transforms.core.manifest import Manifest
from transforms.core.schema import Kind
from transforms.errors import (
    RecordCountError,
    RejectLimitError,
    SourceError,
    SpecError,
    TargetError,
    bounded,
)
from transforms.formats.file_names import is_image_name
from transforms.formats.registry import FORMATS, TABLE_FORMATS, TREES
from transforms.publishing import target
from transforms.stages.limits import (
    account_facts,
    count_message,
    limit_message,
    tolerated,
)
from transforms.storage.entries import FileEntry, Standing
from transforms.storage.file_list import FileList, lines_of
from transforms.storage.files import storage
from transforms.storage.paths import absolute, is_remote, work_folder
from transforms.work.rejects import check_left

_CHUNK_BYTES = 8 << 20
_URI = "://"
# Of a folder with more files than this, a table's images are not looked for again.
_MOST_IMAGES = 200_000
_LISTING_THEIR_IMAGES = ("images", "pairs", "automl", "yolo")


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What a job asks for.

    Attributes:
      settings: digest of what decides bytes beside the inputs.
      inputs: digest of the inputs.
      files: how many there are.
      fingerprint: "stat" for sizes and times, or "content".
      images_root: where the images are that a table names; empty where none does.
      images: digest of the images there; empty where they cannot be listed.
      steps: whether own steps run between reading and writing. Nothing says whether
        two steps do the same, so such a request is never answered by a dataset.
    """

    settings: str
    inputs: str
    files: int
    fingerprint: str
    images_root: str = ""
    images: str = ""
    steps: bool = False

    def answered_by(self, manifest: Manifest, spec: Spec) -> bool:
        """Whether the dataset of a manifest is what this request would give.

        Its files are looked at by their sizes, and the lock by its content.
        """
        left = manifest.run.get("split_lock") or None
        holds = not spec.split_lock or lock_digest(spec) == left
        return holds and self._made_it(manifest, spec)

    def lacks_lock(self, manifest: Manifest, spec: Spec) -> bool:
        """Whether a run of this request ended after it published, before its lock.

        It is as that run has read it: to run again makes the same dataset.
        """
        read = {"split_lock": lock_digest(spec)} if spec.split_lock else None
        return read == manifest.run.get("locks") and self._made_it(manifest, spec)

    def _made_it(self, manifest: Manifest, spec: Spec) -> bool:
        """Whether a dataset is what this request would give, but for its lock."""
        made = self._made(manifest)
        return (
            not (made.steps or self.steps)
            and (made.settings, made.inputs) == (self.settings, self.inputs)
            and (not made.images_root or made.images != "")
            and (not made.images_root or made.images == _images(made))
            and _is_whole(manifest, spec.output)
        )

    def differs_from(self, manifest: Manifest) -> str:
        """Says in words how this request differs from that of a dataset."""
        made, version = self._made(manifest), _version_of(manifest)
        is_set_otherwise = made.settings != self.settings
        reasons = {
            "it does not say what made it": not made.settings,
            # The version is one of the settings.
            f"it was made by version {version}, and this is {__version__}": (
                is_set_otherwise and version != __version__
            ),
            "it was made with other settings": is_set_otherwise,
            f"it was made with --fingerprint {made.fingerprint}, so its inputs cannot "
            f"be compared by {self.fingerprint}": made.fingerprint != self.fingerprint,
            f"its inputs have changed since: {count_text(made.files, 'file')} then, "
            f"{count_text(self.files, 'file')} now": made.inputs != self.inputs,
            "steps of `between` may do something else in each run": (
                made.steps or self.steps
            ),
            "its files, images or lock are not as they were when it was made": True,
        }
        return next(words for words, holds in reasons.items() if holds)

    def _made(self, manifest: Manifest) -> "Request":
        stated = manifest.run.get("request")
        try:
            return Request(**stated) if isinstance(stated, Mapping) else _UNKNOWN
        except TypeError:
            return _UNKNOWN


_UNKNOWN = Request("", "", 0, "")


def _version_of(manifest: Manifest) -> str:
    """Returns the version of this program that made a dataset, for a message."""
    versions = manifest.run.get("versions")
    stated = versions.get("beam-tfrecord") if isinstance(versions, Mapping) else None
    return bounded(str(stated or __version__))


def make_request(spec: Spec, inputs: Inputs) -> Request:
    """Returns the request of a job whose inputs are listed.

    Args:
      spec: of the job, resolved: what files say decides bytes, not where they are.
      inputs: its files.

    Raises:
      OSError: an input cannot be read for its content.
    """
    listed = [inputs.entries, FileList.of(inputs.companions)]
    return Request(
        settings=digest_of(_digested_settings(spec, inputs.format)),
        inputs=_listing(listed, inputs.root, spec.fingerprint),
        files=len(inputs.entries),
        fingerprint=spec.fingerprint,
    )


def with_images(
    request: Request, spec: Spec, inputs: Inputs, planned: PlannedSource
) -> Request:
    """Returns the request with the images that the tables of a source name."""
    named = [f.name for f in planned.schema.of_kind(Kind.IMAGE) if not f.inline]
    if not named or inputs.format in _LISTING_THEIR_IMAGES:
        return request
    seen = [planned.evidence[name] for name in named if name in planned.evidence]
    examples = [example for evidence in seen for example in evidence.examples]
    root = spec.images_folder or absolute(inputs.root)
    request = dataclasses.replace(request, images_root=root)
    if not examples or any(_URI in path or path.startswith("/") for path in examples):
        return request
    return dataclasses.replace(request, images=_images(request))


def _images(request: Request) -> str:
    """Returns the digest of the images as they are now; empty for unknown."""
    root = request.images_root
    entries: list[FileEntry] = []
    looked_at = 0
    if is_remote(root):
        tree = storage(root).list_tree()
        looked_at = len(tree)
        entries = [e for e in tree if not e.skipped and is_image_name(e.path)]
    # Not by `list_tree`: this folder may be that of a user, with millions of files.
    # Of a path elsewhere there is nothing to walk.
    for folder, folders, names in os.walk(root):
        folders.sort()
        looked_at += len(names)
        if looked_at > _MOST_IMAGES:
            return ""
        images = [os.path.join(folder, name) for name in sorted(names)]
        try:
            entries += [named_entry(p, root) for p in filter(is_image_name, images)]
        except SourceError:
            return ""
    if not entries or looked_at > _MOST_IMAGES:
        return ""
    return _listing([FileList.of(entries)], root, request.fingerprint)


def deciding_settings(spec: Spec) -> dict[str, Any]:
    """Returns the settings of a job that decide bytes, without those by default."""
    given = spec.changed_json()
    return {key: given[key] for key in sorted(given) if SETTINGS[key].decides_bytes}


def _digested_settings(spec: Spec, format_: str) -> Mapping[str, Any]:
    """Returns the settings that decide bytes, as the job's digest covers them."""
    out = deciding_settings(spec)
    out |= {"name": spec.name, "format": format_, "version": __version__}
    if spec.splits and not (spec.key_column or spec.group_column):
        # Earlier programs went by the place of a row.
        out["rows_known_by"] = "content"
    if spec.vocabulary is not None:
        out["vocabulary"] = spec.vocabulary
    return {"features": {}, **out}


def _listing(listed: Iterable[FileList], root: str, fingerprint: str) -> str:
    """Returns the digest of files: their paths, sizes, and times or contents."""
    digest = hashlib.sha256()
    between = b""
    for batch in itertools.chain.from_iterable(
        files_listed.batches() for files_listed in listed
    ):
        said = batch["modified"]
        if fingerprint == "content":
            paths = map(os.fsdecode, batch["path"].to_pylist())
            contents = (_content_digest(os.path.join(root, path)) for path in paths)
            said = pa.array([text.encode() for text in contents], pa.binary())
        # No path holds a NUL.
        lines = lines_of(batch["path"], batch["size"], said, end=b"\0")
        digest.update(between)
        digest.update(lines[:-1])
        between = b"\0"
    return digest.hexdigest()[:32]


def _content_digest(path: str) -> str:
    """Returns a digest of a file's bytes, for `fingerprint: content`."""
    digest = hashlib.blake2b(digest_size=16)
    try:
        with storage(path).open_input() as file:
            while piece := file.read(_CHUNK_BYTES):
                digest.update(piece)
    except OSError as error:
        # What it is not may be read as nothing: it is a reject when it is read.
        return f"unreadable: {error.errno}"
    return digest.hexdigest()


def digest_of(facts: Any) -> str:
    """Returns the digest of facts that JSON can say."""
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _is_whole(manifest: Manifest, directory: str) -> bool:
    """Whether every file that the manifest names is there in its size."""
    shards = [shard for split in manifest.splits for shard in split.shards]
    try:
        return all(
            storage(manifest.path(directory, facts.file)).size_of() == facts.bytes
            for facts in (*shards, *manifest.beside)
        )
    except OSError:
        return False


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
    check_lock(spec, standing)
    there = target.at(spec.output)
    seen = there.state()
    manifest = there.check_contents()
    check_left(target.rejects_path(spec.output))
    spec = spec.model_copy(update={"name": name_of(spec, standing)})
    like = find_like(spec)
    resolved = resolve(spec)
    inputs = inputs_of(spec, resolved, standing)
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
    if like is not None:
        spec, resolved = like.applied(spec), like.applied(resolved)
    return Prepared(spec, resolved, inputs, request, done, notes, seen, like)


def name_of(spec: Spec, standing: Standing) -> str:
    """Returns the dataset's name; parts have that of their folder, and so one.

    Args:
      spec: of the job.
      standing: what has the name of the source.
    """
    if spec.name or not spec.part:
        return spec.name or default_name(spec.source, standing, spec.output)
    return output_name(folder_of_parts(spec.output))


def check_lock(spec: Spec, standing: Standing) -> None:
    """Raises SpecError where the lock would be in what the job reads or makes.

    Args:
      spec: of the job.
      standing: what has the name of the source.
    """
    path = spec.split_lock
    if path is None:
        return
    places = [spec.output, work_folder(spec.output)]
    if standing in ("file", "folder"):
        places.append(spec.source)
    folder = os.path.dirname(absolute(path))
    exists = is_remote(folder) or storage(folder).is_folder()
    if not exists or any(storage(path).is_inside(taken) for taken in places):
        raise SpecError(
            f"split_lock must be in a folder that exists, and outside the source and "
            f"the output; {path!r} is not. Choose another place."
        )


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


def inputs_of(spec: Spec, resolved: Spec, standing: Standing | None = None) -> Inputs:
    """Returns the inputs with the tables that the spec names: they decide bytes too.

    Args:
      spec: of the job.
      resolved: the same with what files say in place of their paths.
      standing: what has the name of the source; None to look.
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
