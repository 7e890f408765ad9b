"""The target of a reading command: a dataset, or one TFRecord file.

Imports nothing slow: `verify` of a small file is mostly its start-up.
"""

import dataclasses
import os

from beam_pipeline.datasets.bare_files import check_format, is_numbered_shard, what_else
from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest, ShardFacts
from transforms.errors import DamageError, UsageError, first_few

# How many files of a directory an error shows.
_SHOWN = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """A directory and what its manifest says."""

    directory: str
    manifest: Manifest

    def path(self, file: str) -> str:
        """Returns where a file of the dataset is."""
        return self.manifest.path(self.directory, file)


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
        """Whether it is not damaged where it holds no record."""
        if self.facts is not None:
            return not self.facts.records
        return is_numbered_shard(self.path)


def open_target(path: str) -> Dataset | SingleFile:
    """Returns what is at a path: a directory, its `manifest.json`, or a file.

    Raises:
      UsageError: nothing is there, or a directory that is no dataset.
      DamageError: the manifest is damaged.
    """
    if files.is_folder(path):
        return _open_directory(path)
    if not files.exists(path):
        raise UsageError(
            f"There must be a dataset or a TFRecord file at {path!r}; nothing is there."
        )
    if os.path.basename(path) == MANIFEST_NAME:
        return _open_directory(os.path.dirname(path) or ".")
    return _open_file(path)


def is_dataset(path: str | None) -> bool:
    """Whether a path is that of a dataset, and not of something to be converted."""
    if path is None:
        return False
    if os.path.basename(path) == MANIFEST_NAME:
        return True
    return not files.exists(path) or files.exists(os.path.join(path, MANIFEST_NAME))


def _open_directory(directory: str) -> Dataset:
    path = os.path.join(directory, MANIFEST_NAME)
    try:
        return Dataset(directory, _read_manifest(path))
    except FileNotFoundError:
        raise UsageError(_no_dataset(directory)) from None
    except OSError as error:
        raise UsageError(
            f"The manifest must be readable; {path!r} is not: {error.strerror}."
        ) from error


def _open_file(path: str) -> SingleFile:
    """Returns the file, with its facts where a sound manifest beside it names it."""
    directory, name = os.path.split(path)
    try:
        manifest = _read_manifest(os.path.join(directory, MANIFEST_NAME))
    except (OSError, DamageError):
        # The user asked for the file alone, which can be read without a manifest.
        _check_format(path)
        return SingleFile(path)
    for split in manifest.splits:
        for shard in split.shards:
            if shard.file == name:
                return SingleFile(path, Dataset(directory, manifest), shard)
    _check_format(path)
    return SingleFile(path)


def _check_format(path: str) -> None:
    # Most files are TFRecord by their names.
    if ".tfrecord" not in os.path.basename(path):
        check_format(path)


def _read_manifest(path: str) -> Manifest:
    return Manifest.from_bytes(files.read_bytes(path), path)


def _no_dataset(directory: str) -> str:
    try:
        shards = [name for name in files.names_in(directory) if ".tfrecord" in name]
    except OSError:
        shards = []
    what = f"A dataset is a directory with a {MANIFEST_NAME}; {directory!r} has none."
    if shards:
        shown = first_few([*map(repr, shards)], _SHOWN)
        return f"{what} Name one of its files ({shown}), or convert again."
    advice = what_else(directory) or (
        "Name a TFRecord file, or make a dataset with 'convert'."
    )
    return f"{what} {advice}"
