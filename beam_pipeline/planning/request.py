"""What a job asks for, from its settings and listings; whether its dataset is there.

A request is the digests of the job's settings and of its inputs as they are listed,
by size and modification time or by content. The manifest keeps the request that made
the dataset; one that is made again over unchanged inputs is answered without reading.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_pipeline.planning.features import class_names
from beam_pipeline.planning.inputs import Inputs, PlannedInputs, named_entry
from beam_pipeline.planning.splits import sha256_of
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import count_text
from beam_pipeline.version import __version__
from transforms.core.catalogue import DerivedSettings
from transforms.core.files import ShardName, folder_of_parts
from transforms.core.manifest import Manifest
from transforms.core.schema import Kind, Schema
from transforms.errors import SourceError, SpecError, bounded
from transforms.formats.file_names import is_image_name, is_split_word, plain_name
from transforms.storage.file_list import FileList, lines_of
from transforms.storage.files import storage
from transforms.storage.paths import FileEntry, absolute, is_remote
from transforms.storage.protocol import Standing

# TFDS keeps each version of a dataset in a folder of its own.
_VERSION = re.compile(r"\d+\.\d+\.\d+")

# What is in no file name; line ends, escapes, and what turns the direction of writing.
_UNFIT = re.compile("[/\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LONGEST_NAME_BYTES = 255

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
        holds = not spec.split_lock or sha256_of(spec.split_lock) == left
        return holds and self._made_it(manifest, spec)

    def lacks_lock(self, manifest: Manifest, spec: Spec) -> bool:
        """Whether a run of this request ended after it published, before its lock.

        It is as that run has read it: to run again makes the same dataset.
        """
        read = {"split_lock": sha256_of(spec.split_lock)} if spec.split_lock else None
        return read == manifest.run.get("locks") and self._made_it(manifest, spec)

    def _made_it(self, manifest: Manifest, spec: Spec) -> bool:
        """Whether a dataset is what this request would give, but for its lock."""
        made = self._made(manifest)
        return (
            not (made.steps or self.steps)
            and (made.settings, made.inputs) == (self.settings, self.inputs)
            and (not made.images_root or "" != made.images == _images(made))
            and _is_whole(manifest, spec.output)
        )

    def differs_from(self, manifest: Manifest) -> str:
        """Says in words how this request differs from that of a dataset."""
        made, version = self._made(manifest), _version_of(manifest)
        is_set_otherwise = made.settings != self.settings
        counts = ""
        if made.files != self.files:
            then, now = count_text(made.files, "file"), count_text(self.files, "file")
            counts = f": {then} then, {now} now"
        reasons = {
            "it does not say what made it": not made.settings,
            # The version is one of the settings.
            f"it was made by version {version}, and this is {__version__}": (
                is_set_otherwise and version != __version__
            ),
            "it was made with other settings": is_set_otherwise,
            f"it was made with --fingerprint {made.fingerprint}, so its inputs cannot "
            f"be compared by {self.fingerprint}": made.fingerprint != self.fingerprint,
            f"its inputs have changed since{counts}": made.inputs != self.inputs,
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
    """Returns the version of the request that made a dataset, for a message."""
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
    decided = {"features": {}, **deciding_settings(spec)}
    decided |= {"name": spec.name, "format": inputs.format, "version": __version__}
    if spec.part or spec.like:
        # The label is that of the earlier dataset, whether it is said or not.
        decided.pop("label_column", None)
    if spec.splits and not (spec.key_column or spec.group_column):
        # Earlier programs went by the place of a row.
        decided["rows_known_by"] = "content"
    if spec.vocabulary is not None:
        decided["vocabulary"] = spec.vocabulary
    return Request(
        settings=digest_of(decided),
        inputs=_listing(listed, inputs.root, spec.fingerprint),
        files=len(inputs.entries),
        fingerprint=spec.fingerprint,
    )


def request_with_images(
    request: Request, spec: Spec, inputs: Inputs, planned: PlannedInputs
) -> Request:
    """Returns a request with the digest of the images that its inputs name, if any."""
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
    """Whether a dataset answers the request: all of its files have their sizes."""
    shards = [shard for split in manifest.splits for shard in split.shards]
    try:
        return all(
            storage(manifest.path(directory, facts.file)).size_of() == facts.bytes
            for facts in (*shards, *manifest.beside)
        )
    except OSError:
        return False


def name_of(spec: Spec, standing: Standing) -> str:
    """Returns the dataset's name; parts have that of their folder, and so one.

    Args:
      spec: of the job.
      standing: what has the name of the source.
    """
    if spec.name or not spec.part:
        return spec.name or default_name(spec.source, standing, spec.output)
    return output_name(folder_of_parts(spec.output))


def derived_settings(spec: Spec, schema: Schema) -> DerivedSettings:
    """Returns what a job's request for an index and a catalogue comes to.

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


def check_name(name: str, splits: Iterable[str]) -> None:
    """Raises SpecError where a job asks for a name that its files cannot have."""
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


def default_name(source: str, standing: Standing, output: str) -> str:
    """Returns the dataset's name: the source's base name without suffix.

    Where that is a word for a split, and so no name, it is that of the output.

    Args:
      source: a path or a pattern.
      standing: what `StoredPath.standing` says of it.
      output: of the job.
    """
    path = source.rstrip("/")
    if not standing and any(c in os.path.basename(path) for c in "*?["):
        path = os.path.dirname(path) or "."
    base = os.path.basename(absolute(path))
    if standing == "file":
        base = os.path.splitext(plain_name(base))[0]
    name = _as_name(base)
    return output_name(output) if not name or is_split_word(name) else name


def output_name(output: str) -> str:
    """Returns the dataset's name for an output: its folder's, which is no version."""
    path = absolute(output)
    if _VERSION.fullmatch(os.path.basename(path)):
        path = os.path.dirname(path)
    return _as_name(os.path.basename(path)) or "dataset"


def _as_name(base: str) -> str:
    """Returns a text as a dataset's name: `_` for what is no letter, digit, . or -."""
    base = unicodedata.normalize("NFC", base)
    return re.sub(r"[^\w.-]+", "_", base).strip("._-")


def resolve(spec: Spec) -> Spec:
    """Returns the job with the class names of its features read from their files.

    Planning goes by the result: a file that changes meanwhile cannot give a plan that
    contradicts itself.

    Raises:
      SpecError: a file cannot be read, or does not hold what it should.
    """
    # Several features may name one file.
    names = functools.cache(class_names)

    def read(given: Sequence[str] | str | None) -> list[str] | None:
        # Only a text is hashed.
        read_names = names(given) if isinstance(given, str) else given
        return None if read_names is None else list(read_names)

    features = {
        name: said.model_copy(update={"vocabulary": read(said.vocabulary)})
        for name, said in spec.features.items()
    }
    vocabulary = read(spec.vocabulary)
    return spec.model_copy(update={"vocabulary": vocabulary, "features": features})
