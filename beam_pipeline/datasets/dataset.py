"""The target of a reading command: a dataset, one TFRecord file, or several.

Without a manifest a folder or glob refers to these files:

    a shard's number      train-00003-of-00016, d-train.tfrecord-00000-of-00001.gz
    "tfrecord" or "tfrec" anywhere in the name
    a valid header as the first bytes, whatever the name

Never one of these, which other programs leave in the folder: hidden files, `_SUCCESS`,
checksums, indexes, descriptions, unfinished files.

`head`, `verify` and `repair` read TFRecord. What is of another format by its name is
not called damaged.

Imports nothing slow: `verify` of a small file is mostly its start-up.
"""

import contextlib
import dataclasses
import os
import re
import shlex
from collections.abc import Sequence

from transforms.core.manifest import MANIFEST_NAME, PARTS_NAME, Manifest, ShardFacts
from transforms.core.tfrecord.frame import HEADER_BYTES, framed_length
from transforms.errors import DamageError, SourceError, UsageError, first_few, refusing
from transforms.formats.file_names import is_image_name
from transforms.formats.registry import table_format
from transforms.storage.files import storage

_OTHERS = (
    ".crc .md5 .sha1 .sha256 .idx .index .json .jsonl .txt .csv .tsv .md .yaml .yml "
    ".pbtxt .xml .html .log .tmp .temp .part .partial .lock .bak .py .ipynb .zip .tar"
).split()
_NUMBERED = re.compile(
    r"(?P<head>.*?)-?(?P<index>\d{2,})-of-(?P<count>\d{2,})(?P<tail>.*)", re.DOTALL
)
_WORD = re.compile(r"tf_?rec", re.IGNORECASE)
# How many files of a folder are looked at.
_MOST_FILES = 10_000
# How many datasets a message names.
_SHOWN_DATASETS = 3

# How many missing shards a message names.
_SHOWN = 5


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset: its directory, and what its manifest says.

    Attributes:
      directory: of the dataset.
      manifest: of the dataset; of parts, what theirs add up to.
      parts: datasets that it consists of, in order; see `beam_pipeline.datasets.parts`.
    """

    directory: str
    manifest: Manifest
    parts: "tuple[Dataset, ...]" = ()

    def path(self, file: str) -> str:
        """Returns where a file of the dataset is."""
        return self.manifest.path(self.directory, file)

    @property
    def optional(self) -> set[str]:
        """The features that some of its parts lack."""
        every = (self, *self.parts)
        names = [{f.feature.name for f in one.manifest.features} for one in every]
        return names[0] - names[0].intersection(*names[1:])


@dataclasses.dataclass(frozen=True, slots=True)
class SingleFile:
    """One TFRecord file.

    Attributes:
      path: where it is.
      dataset: of which it is a shard; None when no manifest beside it names it.
      facts: what that manifest says of it.
    """

    path: str
    dataset: Dataset | None = None
    facts: ShardFacts | None = None

    @property
    def may_be_empty(self) -> bool:
        """Whether a file without records is sound here."""
        if self.facts is not None:
            return not self.facts.records
        return is_numbered_shard(self.path)


@dataclasses.dataclass(frozen=True, slots=True)
class BareFiles:
    """The TFRecord files that a folder or a glob names.

    Attributes:
      paths: in byte order.
      is_folder: whether all files of a folder are meant, not those of a glob.
    """

    paths: tuple[str, ...]
    is_folder: bool

    @property
    def files(self) -> list[SingleFile]:
        """Each of them."""
        return [SingleFile(path) for path in self.paths]


def open_target(path: str) -> Dataset | SingleFile:
    """Returns what is at a path: a directory, its `manifest.json`, or a file.

    Raises:
      UsageError: nothing is there, or a directory that is no dataset.
      DamageError: the manifest is damaged.
    """
    # One look: a run may publish a dataset here meanwhile.
    standing = storage(path).standing()
    if standing == "folder":
        return _open_directory(path)
    if not standing:
        raise UsageError(
            f"There must be a dataset or a TFRecord file at {path!r}; nothing is there."
        )
    if os.path.basename(path) == MANIFEST_NAME:
        return _open_directory(os.path.dirname(path) or ".")
    return _open_file(path)


def open_dataset_folder(path: str, use: str) -> Dataset:
    """Returns the dataset at a path.

    Args:
      path: of it.
      use: what needs it, for the message.

    Raises:
      UsageError: there is none, or a single file.
      DamageError: the manifest is damaged.
    """
    target = open_target(path)
    if isinstance(target, SingleFile):
        raise UsageError(
            f"{use} needs a dataset with a manifest; {path!r} is a single file. Name "
            f"the folder of its dataset, or see 'verify'."
        )
    return target


def open_files(path: str) -> Dataset | SingleFile | BareFiles:
    """Returns the dataset or file at a path, or the files that no manifest names.

    Errors are those of `open_target` and `find_bare_files`.
    """
    if has_manifest(path):
        return open_target(path)
    return find_bare_files(path) or open_target(path)


def has_manifest(path: str) -> bool:
    """Whether a folder is a dataset of this program, or one of parts."""
    names = (MANIFEST_NAME, PARTS_NAME)
    return any(storage(os.path.join(path, name)).exists() for name in names)


def _open_directory(directory: str) -> Dataset:
    """Opens a folder with a manifest, or one of parts; UsageError for others."""
    path = os.path.join(directory, MANIFEST_NAME)
    try:
        return Dataset(directory, _read_manifest(path))
    except FileNotFoundError:
        if storage(os.path.join(directory, PARTS_NAME)).exists():
            # Loaded where there are parts: they are few among datasets.
            from beam_pipeline.datasets.parts import read_parts

            manifest, parts = read_parts(directory)
            return Dataset(directory, manifest, tuple(Dataset(*part) for part in parts))
        raise UsageError(
            f"A dataset is a directory with a {MANIFEST_NAME}; {directory!r} has none. "
            f"{_what_else(directory)}"
        ) from None
    except OSError as error:
        raise UsageError(
            f"The manifest must be readable; {path!r} is not: {error.strerror}."
        ) from error


def _open_file(path: str) -> SingleFile:
    """Returns the file, with its facts where a sound manifest beside it names it."""
    directory, name = os.path.split(path)
    # The user asked for the file alone, which can be read without a manifest.
    with contextlib.suppress(OSError, DamageError):
        manifest = _read_manifest(os.path.join(directory, MANIFEST_NAME))
        for split in manifest.splits:
            for shard in split.shards:
                if shard.file == name:
                    return SingleFile(path, Dataset(directory, manifest), shard)
    _check_format(path)
    return SingleFile(path)


def _read_manifest(path: str) -> Manifest:
    """Returns the manifest in a file; DamageError, with the path, if it is invalid."""
    return Manifest.from_bytes(storage(path).read_bytes(), path)


def find_bare_files(path: str) -> BareFiles | None:
    """Returns the TFRecord files at a path; None where it is no folder and no glob.

    Raises:
      UsageError: there is none, or the folder cannot be read.
    """
    if is_folder := storage(path).is_folder():
        files = _paths_in(path)
    elif storage(path).is_pattern():
        files = storage(path).expand()
    else:
        return None
    paths = tuple(filter(_is_tfrecord, files))
    if not paths:
        some = "1 file" if len(files) == 1 else f"{len(files):,} files"
        raise UsageError(
            f"A {'folder' if is_folder else 'pattern'} must have TFRecord files; "
            f"neither name nor content of {some} in {path!r} says so. "
            f"{_what_else(path)}"
        )
    return BareFiles(paths, is_folder)


def is_numbered_shard(path: str) -> bool:
    """Whether the name says that the file is one of several.

    Those may be empty: writers make as many as they are asked for, whatever the number
    of records. Any other empty file looks like one whose content was lost.
    """
    match = _NUMBERED.fullmatch(os.path.basename(path))
    return match is not None and int(match["count"]) > 1


def missing_shards(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Returns (a file's name, what is wrong) for numbered sets that are not whole."""
    sets: dict[tuple[str, str], dict[int, dict[int, str]]] = {}
    for path in paths:
        name = os.path.basename(path)
        if match := _NUMBERED.fullmatch(name):
            counts = sets.setdefault((match["head"], match["tail"]), {})
            shards = counts.setdefault(int(match["count"]), {})
            shards[int(match["index"])] = name
    wrong = []
    for counts in sets.values():
        if len(counts) > 1:
            numbers = " and ".join(f"{count:,}" for count in sorted(counts))
            name = min(name for shards in counts.values() for name in shards.values())
            text = (
                f"shards of {numbers} are in one folder: two generations, and a "
                f"pattern reads both. Remove the older one."
            )
            wrong.append((name, text))
        for count, shards in sorted(counts.items()):
            # Some count from 1.
            first = 0 if 0 in shards or count not in shards else 1
            whole = set(range(first, first + count))
            if beyond := sorted(shards.keys() - whole):
                text = f"there is no such shard of {count:,}."
                wrong.append((shards[beyond[0]], text))
            elif gone := sorted(whole - shards.keys()):
                shown = first_few([f"{index:05d}" for index in gone], _SHOWN)
                text = f"of {count:,} shards {len(gone):,} are missing: {shown}."
                wrong.append((min(shards.values()), text))
    return wrong


def _paths_in(folder: str) -> list[str]:
    """Returns the paths of files directly in a folder; UsageError if unreadable."""
    with refusing(UsageError, f"The folder must be readable; {folder!r} is not"):
        entries = storage(folder).entries_in(folder)
    return [os.path.join(folder, entry.path) for entry in entries]


def _is_tfrecord(path: str) -> bool:
    """Whether a file is TFRecord by its name, or by the checksum it begins with."""
    name = os.path.basename(path)
    if name.startswith((".", "_")) or name == MANIFEST_NAME:
        return False
    if _has_other_suffix(name):
        return False
    is_named = _WORD.search(name) or _NUMBERED.fullmatch(name)
    return bool(is_named) or framed_length(_first_bytes(path)) is not None


def _check_format(path: str) -> None:
    """Raises UsageError where a file is of another format by name and content."""
    name = os.path.basename(path)
    is_other = table_format(name) or is_image_name(name) or _has_other_suffix(name)
    if ".tfrecord" in name or not is_other:
        return
    if framed_length(_first_bytes(path)) is None:
        raise UsageError(
            f"There must be a dataset or a TFRecord file; by its name and first bytes "
            f"{path!r} is neither. {_what_else(path)}"
        )


def _has_other_suffix(name: str) -> bool:
    """Whether a name ends as those of files that are no TFRecord."""
    return os.path.splitext(name)[1].lower() in _OTHERS


def _what_else(path: str) -> str:
    """Returns what may be meant by a path that is no dataset and no TFRecord file."""
    names = []
    if storage(path).is_folder():
        with contextlib.suppress(SourceError):
            names = [e.path for e in storage(path).list_tree().first(_MOST_FILES)]
    manifests = [name for name in names if os.path.basename(name) == MANIFEST_NAME]
    folders = filter(None, map(os.path.dirname, manifests))
    datasets = sorted(os.path.join(path, folder) for folder in folders)
    if datasets:
        shown = first_few([*map(repr, datasets)], _SHOWN_DATASETS)
        return f"Datasets are below it: {shown}."
    source = shlex.quote(path)
    return (
        f"Name a TFRecord file; of other formats 'beam-tfrecord spec {source}' shows "
        f"the features, and 'beam-tfrecord convert {source} OUTPUT' makes a dataset."
    )


def _first_bytes(path: str) -> bytes:
    """Returns the header of the first record; nothing if it cannot be read."""
    try:
        with storage(path).open_input() as stream:
            return stream.read(HEADER_BYTES)
    except OSError:
        return b""
