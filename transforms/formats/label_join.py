"""Join images with what labels them: a table by ids, other annotations by paths.

An id is the name of a file without its suffix, or its whole name, or its path (with
or without suffix) relative to the root: the first of these that the ids look like is
taken for all of them. Where none of the paths is there, folders in front of all are
left out until one is. Names are compared in NFC: a file system that stores them in NFD
makes no difference.

What has no partner is an item all the same, and becomes a reject with its reason when
the listing is read: images without a label, labels without an image, and label rows
that cannot be read.
"""

import collections
import dataclasses
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.core.reasons import Reason
from transforms.errors import InputError
from transforms.formats.file_names import (
    in_nfc,
    is_image_name,
    path_parts,
    split_in_path,
)
from transforms.storage.file_list import FileList

# Files whose suffixes are those of all, about.
_LOOKED_AT = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Orphan:
    """An item of the table that no image belongs to.

    Attributes:
      row: its 0-based number in the table; None where it is a file.
      reason, message: of the reject that it becomes.
      origin: the file; empty for the table.
    """

    row: int | None
    reason: Reason
    message: str
    origin: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Labels:
    """What a table says of the images of a tree.

    Attributes:
      table: the table's name.
      columns: typed values by feature name, one for each image.
      faults: for each image (reason, message) of its reject, or None.
      orphans: the table's rows that become rejects of their own.
      notes: what a person should know of its values.
      with_folders: whether folders say the label all the same.
    """

    table: str
    columns: Mapping[str, pa.Array]
    faults: Sequence[tuple[str, str] | None]
    orphans: Sequence[Orphan]
    notes: tuple[str, ...] = ()
    with_folders: bool = False


def join_labels(
    entries: FileList,
    ids: pa.Array,
    numbers: npt.NDArray[np.int64],
    *,
    table: str,
    root: str = "",
) -> tuple[npt.NDArray[np.int64], list[Orphan]]:
    """Joins n images and m rows of a table.

    Returns for each image the position of its row among the ids, -1 for none; and the
    rows without an image, in the table's order.

    Args:
      entries: the images.
      ids: m texts, one a row of the table; null for none.
      numbers: m 0-based row numbers, for messages.
      table: the table's name, for messages.
      root: of the images; a split in its name is not that of other paths.

    Raises:
      InputError: an id occurs twice in the table, or is that of two images.
    """
    texts = [None if text is None else in_nfc(text) for text in ids.to_pylist()]
    if any("\\" in text for text in texts if text) and not any(
        "\\" in entry.origin for entry in entries
    ):
        # Tables of Windows have backslashes between folders.
        texts = [text and text.replace("\\", "/") for text in texts]
    given, texts = texts, _ends_here(texts, entries, root)
    places: dict[str, int] = {}
    orphans: list[Orphan] = []
    for position, text in enumerate(texts):
        if not text:
            message = f"{table}: the row has no id"
            row = int(numbers[position])
            orphans.append(Orphan(row, Reason.LABEL_WITHOUT_IMAGE, message))
        elif text in places:
            first, second = int(numbers[places[text]]) + 1, int(numbers[position]) + 1
            raise InputError(
                f"Every id must occur once in the table of labels; in {table} "
                f"{given[position]!r} stands in rows {first} and {second}. Remove one."
            )
        else:
            places[text] = position
    some = entries.first(_LOOKED_AT)
    suffixes = {os.path.splitext(entry.origin)[1].lower() for entry in some} - {""}
    key_of = _key_of(list(places), tuple(suffixes))
    seen: dict[str, str] = {}
    rows = np.full(len(entries), -1, np.int64)
    for index, entry in enumerate(entries):
        key = key_of(entry.origin)
        if key in places and key in seen:
            raise InputError(
                f"Every id must be that of one image; {key!r} is that of "
                f"{seen[key]!r} and {entry.path!r}. Rename one, or use ids that are "
                f"paths."
            )
        seen[key] = entry.path
        rows[index] = places.get(key, -1)
    # A table keeps numbers without the zeros that names of files begin with.
    without_zeros = {
        key.lstrip("0"): path for key, path in seen.items() if key not in places
    }
    for text, position in places.items():
        if text not in seen:
            shown = str(given[position])[:80]
            message = f"{table}: there is no image with the id {shown!r}"
            if text[:1].isdigit() and text.lstrip("0") in without_zeros:
                message += (
                    f", but there is {without_zeros[text.lstrip('0')][-80:]!r}: ids "
                    f"must have the leading zeros of the names; write them as text"
                )
            orphans.append(
                Orphan(int(numbers[position]), Reason.LABEL_WITHOUT_IMAGE, message)
            )
    orphans.sort(key=lambda orphan: orphan.row or 0)
    return rows, orphans


def _ends_here(
    texts: list[str | None], entries: FileList, root: str
) -> list[str | None]:
    """Returns the ends of paths of another machine that are paths here.

    The paths stay where one of them is here, where the ends are not unique, and where
    those that are left belong to another split than the root.
    """
    given = {*texts}
    if not any(map(_is_path, texts)):
        return texts
    here: set[str] = set()
    for entry in entries:
        names = {entry.origin, os.path.splitext(entry.origin)[0]}
        if not given.isdisjoint(names):
            return texts
        here |= names
    ends = texts
    while here.isdisjoint(ends):
        if not any(map(_is_path, ends)):
            return texts
        ends = [text and text[text.find("/") + 1 :] for text in ends]
    fronts = {
        split_in_path(text[: -len(end)])
        for text, end in zip(texts, ends, strict=True)
        if text and end and end in here
    }
    split = split_in_path(os.path.basename(root))
    is_other = bool(split) and not fronts <= {"", split}
    return texts if is_other or len({*ends}) < len(given) else ends


def _is_path(text: str | None) -> bool:
    """Whether an id has folders; false of null."""
    return text is not None and "/" in text


def _key_of(ids: Sequence[str], suffixes: tuple[str, ...]) -> Callable[[str], str]:
    """Returns what makes the id of a file's path, by what the ids look like."""
    suffixed = any(
        is_image_name(text) or text.lower().endswith(suffixes) for text in ids
    )
    are_paths = any(map(_is_path, ids))

    def key(path: str) -> str:
        name = path if are_paths else os.path.basename(path)
        return name if suffixed else os.path.splitext(name)[0]

    return key


class SourcePaths:
    r"""The files below a source, and their folders, as annotations name them.

    Annotations are written on other machines and in other folders. A path means its
    longest tail that exists below the source, first from the annotation's folder, then
    from the root, then from one more folder; so nothing outside of these is opened.

    >>> paths = SourcePaths(["train/images/a.jpg"])
    >>> paths.file("C:\\x\\images\\a.jpg", "train")
    'train/images/a.jpg'
    >>> paths.folder("../train/images")
    'train/images'
    >>> paths.file("b.jpg") is None
    True
    """

    def __init__(self, files: Iterable[str], more: str = "") -> None:
        """Takes paths relative to the source's root.

        Args:
          files: of the source, and of the other folder.
          more: the other folder, with which the paths of its files begin.
        """
        self._files = {in_nfc(path): path for path in files}
        self._more = more
        self._folders: dict[str, str] = {}
        for path in self._files.values():
            folder = posixpath.dirname(path)
            while folder and in_nfc(folder) not in self._folders:
                self._folders[in_nfc(folder)] = folder
                folder = posixpath.dirname(folder)
        self._named: dict[str, list[str]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def file(self, path: str, *bases: str) -> str | None:
        """Returns the file that a path means, which these folders may hold."""
        return _longest_tail(path, (*bases, "", self._more), self._files)

    def image(self, stated: str, origin: str, *bases: str) -> str:
        """Returns the image of an annotation; a likely path where there is no image.

        Args:
          stated: the path that the annotation states; empty for no path.
          origin: of the annotation, whose stem the image has where `stated` is nowhere.
          bases: folders that may hold the image, the likeliest first.
        """
        if path := self.file(stated, *bases):
            return path
        stem = posixpath.splitext(posixpath.basename(origin))[0]
        called = {in_nfc(posixpath.dirname(p)): p for p in self.called(stem)[::-1]}
        beside = [called.get(in_nfc(base)) for base in (*bases, self._more or bases[0])]
        name = "".join(path_parts(stated)[-1:]) or f"{stem}.jpg"
        return next(filter(None, beside), posixpath.join(bases[0], name))

    def folder(self, path: str, base: str = "") -> str | None:
        """Returns the folder that a path means; `base` itself for its own name, "."."""
        if not path_parts(path):
            return base
        return _longest_tail(path, (base, ""), self._folders)

    def called(self, name: str) -> list[str]:
        """Returns the files of a base name, or else those of a stem."""
        if not self._named:
            named = collections.defaultdict(list)
            for key, path in self._files.items():
                base = posixpath.basename(key)
                for alias in {base, f"{posixpath.splitext(base)[0]}/"}:
                    named[alias].append(path)
            self._named = dict(named)
        base = in_nfc(name.replace("\\", "/").rpartition("/")[2])
        return self._named.get(base) or self._named.get(f"{base}/", [])


def _longest_tail(path: str, bases: Iterable[str], known: dict[str, str]) -> str | None:
    """Returns what the longest known tail of a path means in the first folder."""
    parts = path_parts(in_nfc(path))
    folders = dict.fromkeys(map(in_nfc, bases))
    for first in range(len(parts)):
        for folder in folders:
            match = known.get(posixpath.join(folder, *parts[first:]))
            if match is not None:
                return match
    return None
