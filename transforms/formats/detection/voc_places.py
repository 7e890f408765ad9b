"""Where a Pascal VOC folder keeps its images and splits.

    VOC2012/Annotations/2007_000027.xml
    VOC2012/JPEGImages/2007_000027.jpg
    VOC2012/ImageSets/Main/{train,val,trainval,test}.txt    ids, one a line

Images may also be in `images` beside the folder of the XML files, or among them.
"""

import functools
import os
import posixpath
from collections.abc import Mapping

from transforms import files
from transforms.errors import InputError

_FOLDERS = ("JPEGImages", "images")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".webp")
_SETS = {"train": "train", "val": "validation", "test": "test"}


def image_path(root: str, origin: str, filename: str, images_root: str = "") -> str:
    """Returns where the image of an XML file is, relative to the root if it can be.

    The stated file name comes before the XML file's own with another suffix. Where
    nothing is found, the likeliest path is returned.

    Args:
      root: the source's.
      origin: of the XML file, relative to it.
      filename: as the XML file states it; empty for none.
      images_root: the folder of all images; empty to look where they usually are.
    """
    folder, name = posixpath.split(origin)
    above = posixpath.dirname(folder)
    places = [posixpath.join(above, inner) for inner in _FOLDERS if folder]
    places.append(folder)
    if images_root:
        places = [images_root]
    stem = name.rpartition(".")[0]
    # Some tools write whole paths, some of them those of Windows.
    stated = posixpath.basename(filename.replace("\\", "/"))
    names = [stated] if stated else []
    names += [stem + suffix for suffix in _SUFFIXES]
    for name in names:
        for place in places:
            path = posixpath.join(place, name)
            if files.exists(os.path.join(root, path)):
                return path
    return posixpath.join(places[0], names[0])


def image_sets(root: str, folder: str) -> Mapping[str, str] | None:
    """Returns the split of each id, as the image sets beside a folder say it.

    Args:
      root: the source's.
      folder: of XML files, relative to it.

    Returns:
      id -> split; None where there are no image sets.

    Raises:
      InputError: an id is in the lists of two splits.
      OSError: a list cannot be read.
    """
    main = os.path.join(root, posixpath.dirname(folder), "ImageSets", "Main")
    stamps: list[tuple[str, int]] = []
    for name in (*_SETS, "trainval"):
        path = os.path.join(main, f"{name}.txt")
        try:
            with files.open_input(path) as file:
                stamps.append((name, files.stamp_of(file)))
        except (FileNotFoundError, NotADirectoryError):
            continue
    return _read_sets(main, tuple(stamps)) if folder and stamps else None


@functools.lru_cache(maxsize=4)
def _read_sets(main: str, stamps: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    """Reads the lists; the stamps make the cache miss when one has changed."""
    splits: dict[str, str] = {}
    for name, _ in stamps:
        path = os.path.join(main, f"{name}.txt")
        try:
            ids = files.read_bytes(path).decode("utf-8-sig").split("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"Lists of ids must be UTF-8; {path!r} is not.") from error
        for line in ids:
            item = line.strip()
            if not item:
                continue
            # An id of `trainval` that is in neither half belongs to the larger one.
            split = _SETS.get(name) or splits.get(item, "train")
            if splits.setdefault(item, split) != split:
                raise InputError(
                    f"An image must be in one split; {path!r} lists {item!r}, which is "
                    f"in {splits[item]!r} too. Take it out of one of the lists."
                )
    return splits
