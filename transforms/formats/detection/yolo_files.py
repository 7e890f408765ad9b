"""What a YOLO dataset says of itself: the names of its classes, and its splits.

    data.yaml                                names (or nc), train, val, test, kpt_shape
    obj.names, classes.txt, _darknet.labels  names, one a line
    train.txt, valid.txt, val.txt, test.txt  beside these: images, one a line

A YAML comes first, and the file nearest to the root. What it names is found by the rule
of `SourcePaths`. Without a list of splits, words in the names of folders say them.
"""

import dataclasses
import os
import posixpath
import re
from collections.abc import (
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from typing import Any, TypeVar

import yaml

from transforms.errors import InputError, bounded
from transforms.formats.detection.objects import MOST_POINTS, lines_in
from transforms.formats.file_names import split_in_path
from transforms.formats.label_join import SourcePaths
from transforms.storage.files import storage

# What names a split, as a key of the YAML or as a list of images.
_SPLIT_WORDS = ("train", "val", "valid", "validation", "test")
IS_YAML = re.compile(r"(?i)\.ya?ml$")
IS_NAMES = re.compile(r"(?i)(\.names|(^|/)(classes\.txt|_darknet\.labels))$")
_IS_LIST = re.compile(rf"(^|/)({'|'.join(_SPLIT_WORDS)})\.txt$")
_NAMES_KEY = re.compile(rb"(?m)^(names|nc)\s*:")
_SPLIT_KEY = re.compile(rb"(?m)^(train|val|valid|validation|test)\s*:")
# YAML files that are looked into.
LOOKED_AT = 32
_MOST_CONFIG_BYTES = 16 << 20
MOST_CLASSES = 1 << 31
_Parsed = TypeVar("_Parsed")


@dataclasses.dataclass(frozen=True, slots=True)
class YoloConfig:
    """What a dataset says of itself.

    Attributes:
      path: of the file that says it; empty for none.
      names: by the number of the class; None where none are said.
      splits: split -> folders and lists of images, as they are written.
      base: the folder that these are relative to, as it is written.
      point_shape: how many key points an object has, and numbers a point; zeros for
        none.
    """

    path: str = ""
    names: Mapping[int, str] | None = None
    splits: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    base: str = ""
    point_shape: tuple[int, int] = (0, 0)


def splits_of(
    root: str,
    config: YoloConfig,
    images: Sequence[str],
    paths: SourcePaths,
    notes: list[str],
) -> dict[str, str]:
    """Returns the images of the dataset, and their splits; empty for none.

    Adds notes on what the dataset names and is not there, or names twice.
    """
    here = posixpath.dirname(config.path)
    here = paths.folder(config.base, here) or here
    split_of: dict[str, str] = {}
    twice: list[str] = []
    absent: list[str] = []
    for split, entries in config.splits.items():
        for entry in entries:
            listed = paths.file(entry, here) if entry.endswith(".txt") else None
            folder = None if listed else paths.folder(entry, here)
            if listed:
                base = posixpath.dirname(listed)
                lines = lines_in(os.path.join(root, listed))
                chosen = [paths.file(line, base) for line in lines]
                absent += [n for n, p in zip(lines, chosen, strict=True) if p is None]
            elif folder is None:
                absent.append(entry)
                continue
            else:
                prefix = f"{folder}/" if folder else ""
                chosen = [image for image in images if image.startswith(prefix)]
            named = [*filter(None, chosen)]
            twice += [i for i in named if split_of.setdefault(i, split) != split]
    for named, what in (
        (absent, "images or folders that are not there"),
        (twice, "images in two splits, which are in the first"),
    ):
        if named:
            where = f"{config.path!r:.80} names {len(named):,}"
            notes.append(f"{where} {what}, such as {named[0]!r:.80}")
    if not split_of:
        return {image: split_in_path(image) for image in images}
    return {image: split_of[image] for image in images if image in split_of}


def config_of(root: str, texts: Collection[str]) -> YoloConfig:
    """Returns what the files of a dataset say of its names and splits.

    Raises:
      InputError: one cannot be read, or two contradict each other.
    """
    ordered = sorted(texts, key=by_depth)
    yamls = [path for path in ordered if IS_YAML.search(path)][:LOOKED_AT]
    stated = [path for path in yamls if is_data(_start(root, path))]
    _check_one(stated)
    if stated:
        return dataclasses.replace(_read(root, stated[0], _of_yaml), path=stated[0])
    named = [path for path in ordered if IS_NAMES.search(path)]
    if not named:
        return YoloConfig()
    near = [path for path in named if path.count("/") == named[0].count("/")]
    names = {path: _read(root, path, _names_in) for path in near}
    _check_one(near[:1] + [path for path in near if names[path] != names[near[0]]])
    splits: dict[str, list[str]] = {}
    for path in ordered:
        listed = _IS_LIST.search(path)
        if listed and posixpath.dirname(path) in ("", posixpath.dirname(near[0])):
            splits.setdefault(split_in_path(listed[2]), []).append(f"/{path}")
    return YoloConfig(near[0], names[near[0]], splits)


def by_depth(path: str) -> tuple[int, str]:
    """Returns the sort key of a path: those nearest to the root first."""
    return path.count("/"), path


def _check_one(paths: Sequence[str]) -> None:
    """Raises InputError where two files at the same depth say the classes."""
    if len(paths) > 1 and paths[0].count("/") == paths[1].count("/"):
        raise InputError(
            f"One file must say the classes of a YOLO dataset; {paths[0]!r:.80} and "
            f"{paths[1]!r:.80} both do. Name the YAML as SOURCE, or move one away."
        )


def _start(root: str, path: str) -> bytes:
    """Returns the first 64 KiB of a file, which show whether it is the YAML."""
    with storage(os.path.join(root, path)).open_input() as stream:
        return stream.read(1 << 16)


def _read(root: str, path: str, parse: Callable[[str], _Parsed]) -> _Parsed:
    """Returns what a file says; raises InputError where it does not say it."""
    try:
        data, _ = storage(os.path.join(root, path)).read_stamped(_MOST_CONFIG_BYTES)
        return parse(data.decode("utf-8-sig"))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, OSError) as error:
        words = str(error) or type(error).__name__
        raise InputError(
            bounded(
                f"{path!r} must say the classes of a YOLO dataset: names, one a line, "
                f"or YAML with names (or nc) and train or val. Found: {words}. "
                f"Correct it."
            )
        ) from error


def _names_in(text: str) -> dict[int, str]:
    """Returns the classes of a file of names, numbered by line from 0."""
    return _checked(dict(enumerate(map(str.strip, text.rstrip().splitlines()))))


def _of_yaml(text: str) -> YoloConfig:
    """Returns what the YAML of a dataset says; ValueError for other YAML."""
    # Names are taken as they are written: `no` and `1.0` are no bool and no number.
    config = yaml.load(text, Loader=yaml.BaseLoader)
    if not isinstance(config, dict):
        raise ValueError("it is no mapping")
    names = _yaml_names(config)
    shape = [int(n) for n in config.get("kpt_shape") or (0, 0)]
    if len(shape) != 2 or shape[1] not in (0, 2, 3) or not 0 <= shape[0] <= MOST_POINTS:
        raise ValueError(f"kpt_shape must be K, 2 or K, 3; it is {shape[:4]}")
    splits: dict[str, list[str]] = {}
    for key in _SPLIT_WORDS:
        entries = config.get(key) or []
        entries = entries if isinstance(entries, list) else [entries]
        if not all(isinstance(entry, str) for entry in entries):
            raise ValueError(f"{key} must be a path or a list of paths")
        if entries:
            splits.setdefault(split_in_path(key), []).extend(entries)
    base = config.get("path") or ""
    base = base if isinstance(base, str) else ""
    return YoloConfig("", names, splits, base, (shape[0], shape[1]))


def _yaml_names(config: Mapping[str, Any]) -> dict[int, str] | None:
    """Returns the names of classes by number; raises ValueError."""
    count = int(config["nc"]) if config.get("nc") else None
    given = config.get("names")
    if not given:
        if count is None:
            return None
        if not 0 < count <= 1 << 20:
            raise ValueError(f"nc must be the number of classes; it is {count}")
        return {number: f"class_{number}" for number in range(count)}
    if isinstance(given, list):
        given = dict(enumerate(given))
    if not isinstance(given, dict) or {*map(type, given.values())} - {str}:
        raise ValueError("names must be a list of texts, or numbers with texts")
    names = {int(number): name for number, name in given.items()}
    if count is not None and count != len(names):
        raise ValueError(f"nc is {count}, and names has {len(names)}")
    return _checked(names)


def _checked(names: Mapping[int, str]) -> dict[int, str]:
    """Returns the classes that have names; raises ValueError."""
    numbers: dict[str, int] = {}
    for number, name in names.items():
        if name and numbers.setdefault(name, number) != number:
            raise ValueError(f"{numbers[name]} and {number} are both {name[:60]!r}")
        if not 0 <= number < MOST_CLASSES:
            raise ValueError(f"classes must be whole numbers from 0; one is {number}")
    return {number: name for number, name in names.items() if name}


def is_data(start: bytes) -> bool:
    """Whether a YAML is one of a dataset, by its first bytes."""
    return bool(_NAMES_KEY.search(start) and _SPLIT_KEY.search(start))
