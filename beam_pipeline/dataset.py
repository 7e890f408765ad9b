"""What the reading commands are given: a dataset, or one TFRecord file.

Imports nothing slow: `verify` of a small file is mostly its start-up.
"""

import dataclasses
import os
from collections.abc import Sequence

from transforms import files
from transforms.core.manifest import MANIFEST_NAME, Manifest, ShardFacts
from transforms.core.schema import Feature, Kind
from transforms.errors import DamageError, UsageError, first_few

__all__ = [
    "kind_text",
    "shape_text",
    "Dataset",
    "SingleFile",
    "count_text",
    "instant_text",
    "is_dataset",
    "open_target",
    "share_text",
    "size_text",
]

# How many files of a directory an error shows.
_SHOWN = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Dataset:
    """A directory and what its manifest says."""

    directory: str
    manifest: Manifest

    def path(self, file: str) -> str:
        """Returns where a file of the dataset lies."""
        return self.manifest.path(self.directory, file)


@dataclasses.dataclass(frozen=True, slots=True)
class SingleFile:
    """One TFRecord file.

    Attributes:
      path: where it lies.
      dataset: of which it is a shard; None when no manifest beside it names it.
      facts: what that manifest says of it.
    """

    path: str
    dataset: Dataset | None = None
    facts: ShardFacts | None = None


def open_target(path: str) -> Dataset | SingleFile:
    """Returns what stands at a path: a directory, its `manifest.json`, or a file.

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
        # The file alone was asked for: it can be read without.
        _check_format(path)
        return SingleFile(path)
    for split in manifest.splits:
        for shard in split.shards:
            if shard.file == name:
                return SingleFile(path, Dataset(directory, manifest), shard)
    _check_format(path)
    return SingleFile(path)


def _check_format(path: str) -> None:
    # Most files are TFRecord by their names; the formats are many.
    if ".tfrecord" not in os.path.basename(path):
        from beam_pipeline.other_formats import check_format

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
    from beam_pipeline.other_formats import what_else

    advice = what_else(directory) or (
        "Name a TFRecord file, or make a dataset with 'convert'."
    )
    return f"{what} {advice}"


def size_text(size: int) -> str:
    """Returns a number of bytes for people: "21 B", "4.1 kB", "150 MB"."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    digits = 0 if unit == "B" or value >= 99.95 else 1
    return f"{value:,.{digits}f} {unit}"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """Returns "1 shard" or "1,024 shards"."""
    word = singular if count == 1 else plural or f"{singular}s"
    return f"{count:,} {word}"


def share_text(part: int, whole: int) -> str:
    """Returns a share as "66.7 %"; "100 %" and "0 %" only where that is exact."""
    if part == whole:
        return "100 %"
    if part == 0:
        return "0 %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"


def instant_text(value: int, unit: str) -> str:
    """Returns "2024-05-01T12:00:00Z" for a number of units since 1970 in UTC.

    Empty for what is no instant: the smallest int64, which NumPy keeps for that.
    """
    # Few commands show instants.
    import numpy as np

    instant = np.int64(value).astype(f"datetime64[{unit or 's'}]")
    return "" if np.isnat(instant) else f"{instant}Z"


def kind_text(feature: Feature) -> str:
    """Returns "int64", "text[any]", "tensor uint8[28, 28]", "timestamp in ms"."""
    shape = shape_text(feature.shape)
    if feature.kind is Kind.TENSOR:
        return f"tensor {feature.dtype}{shape}"
    if feature.kind is Kind.TIMESTAMP:
        return f"timestamp{shape} in {feature.unit or 's'}"
    return f"{feature.kind}{shape}"


def shape_text(shape: Sequence[int | None]) -> str:
    """Returns "[any, 4]": sizes that differ are "any"; nothing for one value."""
    sizes = ", ".join("any" if n is None else f"{n}" for n in shape)
    return f"[{sizes}]" if shape else ""
