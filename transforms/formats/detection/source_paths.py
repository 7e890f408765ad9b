r"""What paths in annotations mean: the longest tail of a path that is in the source.

Annotations are written on other machines and in other folders. A path means its longest
tail that exists below the source, first from the annotation's folder, then from the
root; so nothing outside of the source is opened.

    ../train/images    /content/drive/images    data/obj_train_data/a.jpg    C:\x\a.jpg
"""

import collections
import posixpath
import unicodedata
from collections.abc import Iterable


def _composed(path: str) -> str:
    return path if path.isascii() else unicodedata.normalize("NFC", path)


class SourcePaths:
    r"""The files below a source, and their folders.

    >>> paths = SourcePaths(["train/images/a.jpg"])
    >>> paths.file("C:\\x\\images\\a.jpg", "train")
    'train/images/a.jpg'
    >>> paths.folder("../train/images")
    'train/images'
    >>> paths.file("b.jpg") is None
    True
    """

    def __init__(self, files: Iterable[str]) -> None:
        """Takes paths relative to the source's root."""
        self._files = {_composed(path): path for path in files}
        self._folders: dict[str, str] = {}
        for path in self._files.values():
            folder = posixpath.dirname(path)
            while folder and _composed(folder) not in self._folders:
                self._folders[_composed(folder)] = folder
                folder = posixpath.dirname(folder)
        self._named: dict[str, list[str]] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._files

    def file(self, path: str, base: str = "") -> str | None:
        """Returns the file that a path means, written in the folder `base`."""
        return _longest_tail(path, base, self._files)

    def folder(self, path: str, base: str = "") -> str | None:
        """Returns the folder that a path means; `base` itself for its own name, "."."""
        if not _parts(path):
            return base
        return _longest_tail(path, base, self._folders)

    def called(self, name: str) -> list[str]:
        """Returns the files of a base name, or else those of a stem."""
        if not self._named:
            named = collections.defaultdict(list)
            for key, path in self._files.items():
                base = posixpath.basename(key)
                for each in {base, f"{posixpath.splitext(base)[0]}/"}:
                    named[each].append(path)
            self._named = dict(named)
        base = _composed(name.replace("\\", "/").rpartition("/")[2])
        return self._named.get(base) or self._named.get(f"{base}/", [])


def _parts(path: str) -> list[str]:
    parts = posixpath.normpath(path.replace("\\", "/")).split("/")
    return [part for part in parts if part not in ("", ".", "..")]


def _longest_tail(path: str, base: str, known: dict[str, str]) -> str | None:
    parts = _parts(_composed(path))
    folders = dict.fromkeys([_composed(base), ""])
    for first in range(len(parts)):
        for folder in folders:
            found = known.get(posixpath.join(folder, *parts[first:]))
            if found is not None:
                return found
    return None
