"""TFRecord files without a manifest: which files a folder or glob refers to.

    a shard's number      train-00003-of-00016, d-train.tfrecord-00000-of-00001.gz
    "tfrecord" or "tfrec" anywhere in the name
    a valid header as the first bytes, whatever the name

Never one of these, which other programs leave in the folder: hidden files, `_SUCCESS`,
checksums, indexes, descriptions, unfinished files.
"""

import dataclasses
import os
import re
from collections.abc import Sequence

from transforms import files
from transforms.core.manifest import MANIFEST_NAME
from transforms.core.tfrecord.compression import is_frame_header
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.errors import UsageError, first_few

__all__ = ["BareFiles", "find_bare_files", "is_numbered_shard", "missing_shards"]

_OTHERS = (
    ".crc .md5 .sha1 .sha256 .idx .index .json .jsonl .txt .csv .tsv .md .yaml .yml "
    ".pbtxt .xml .html .log .tmp .temp .part .partial .lock .bak .py .ipynb .zip .tar"
).split()
_NUMBERED = re.compile(
    r"(?P<head>.*?)-?(?P<index>\d{2,})-of-(?P<count>\d{2,})(?P<tail>.*)", re.DOTALL
)
_WORD = re.compile(r"tf_?rec", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True)
class BareFiles:
    """The TFRecord files that a folder or a glob names.

    Attributes:
      paths: in byte order.
      is_folder: whether all files of a folder are meant, not those of a glob.
    """

    paths: tuple[str, ...]
    is_folder: bool


def find_bare_files(path: str) -> BareFiles | None:
    """Returns the TFRecord files at a path; None where it is no folder and no glob.

    Raises:
      UsageError: there is none, or the folder cannot be read.
    """
    if files.is_folder(path):
        found = _listed(path)
        is_folder = True
    elif files.is_pattern(path):
        found = files.expand(path)
        is_folder = False
    else:
        return None
    paths = tuple(each for each in found if _is_tfrecord(each))
    if not paths:
        # Imported only here: the registry loads all formats.
        from beam_pipeline.datasets.other_formats import what_else

        what = "folder" if is_folder else "pattern"
        some = "1 file" if len(found) == 1 else f"{len(found):,} files"
        advice = what_else(path)
        raise UsageError(
            f"A {what} must have TFRecord files; {path!r} has none. {advice}"
            if advice
            else f"A {what} must have TFRecord files; {path!r} has none among its "
            f"{some}, by name or content. Name a TFRecord file, or make a dataset with "
            f"'convert'."
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
            wrong.append(
                (
                    min(name for shards in counts.values() for name in shards.values()),
                    f"shards of {numbers} are in one folder: two generations, and a "
                    f"pattern reads both. Remove the older one.",
                )
            )
        for count, shards in sorted(counts.items()):
            if beyond := [name for index, name in shards.items() if index >= count]:
                wrong.append((min(beyond), f"there is no such shard of {count:,}."))
            # Some count from 1.
            first = 0 if 0 in shards or count not in shards else 1
            gone = sorted(set(range(first, first + count)) - shards.keys())
            if gone and not (beyond and first == 0):
                shown = first_few([f"{index:05d}" for index in gone], _SHOWN)
                wrong.append(
                    (
                        min(shards.values()),
                        f"of {count:,} shards {len(gone):,} are missing: {shown}.",
                    )
                )
    return wrong


# How many missing shards a message names.
_SHOWN = 5


def _listed(folder: str) -> list[str]:
    try:
        entries = files.entries_in(folder, folder)
    except OSError as error:
        raise UsageError(
            f"The folder must be readable; {folder!r} is not: {error.strerror}."
        ) from error
    return [os.path.join(folder, entry.path) for entry in entries]


def _is_tfrecord(path: str) -> bool:
    name = os.path.basename(path)
    if name.startswith((".", "_")) or name == MANIFEST_NAME:
        return False
    if os.path.splitext(name)[1].lower() in _OTHERS:
        return False
    if _WORD.search(name) or _NUMBERED.fullmatch(name):
        return True
    try:
        with files.open_input(path) as file:
            return is_frame_header(file.read(HEADER_BYTES))
    except OSError:
        return False
