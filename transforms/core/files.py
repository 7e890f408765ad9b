"""Files: the names of shards and of parts of a dataset, and opening regular files.

    <name>-<split>.tfrecord-SSSSS-of-NNNNN[.gz]

This is the template that TFDS reads by default
(`{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}`).

Only regular files are opened: reading a pipe waits for its writer, and a device or a
socket may supply bytes forever. Only descriptors that the caller passed to this
process, such as `/dev/stdin`, may be pipes, for readers that need no seeking.
"""

import dataclasses
import errno
import os
import re
import stat

# Of the files of one version of a dataset in a bucket.
_FOLDER = re.compile("data-[0-9a-f]{32}(-[0-9a-f]{12})?")
COMPRESSION_SUFFIXES = {"none": "", "gzip": ".gz", "zlib": ".zlib"}

_REST = re.compile(
    r"(?P<split>[A-Za-z0-9_-]+)\.tfrecord"
    r"-(?P<index>[0-9]{5,})-of-(?P<shards>[0-9]{5,})(?P<suffix>\.gz|\.zlib)?"
)


@dataclasses.dataclass(frozen=True, slots=True)
class ShardName:
    """The parts of a shard's file name; `index` counts from 0."""

    name: str
    split: str
    index: int
    shards: int
    compression: str = "none"

    def __str__(self) -> str:
        suffix = COMPRESSION_SUFFIXES[self.compression]
        return (
            f"{self.name}-{self.split}.tfrecord"
            f"-{self.index:05d}-of-{self.shards:05d}{suffix}"
        )


def parse_shard_name(text: str, name: str) -> ShardName | None:
    """Returns the parts of a file name of the dataset `name`; None for others.

    The dataset's name is needed, because both it and the split may contain '-'.
    """
    match = _REST.fullmatch(text.removeprefix(f"{name}-"))
    if match is None:
        return None
    compression = {v: k for k, v in COMPRESSION_SUFFIXES.items()}
    parsed = ShardName(
        name=name,
        split=match["split"],
        index=int(match["index"]),
        shards=int(match["shards"]),
        compression=compression[match["suffix"] or ""],
    )
    # Names with extra zeros, or an index beyond the count, are never written.
    return parsed if parsed.index < parsed.shards and str(parsed) == text else None


PART_PREFIX = "part="
"""How the folders of the parts of a dataset begin."""
# Letters, digits and these, which no shell, store or pattern takes apart.
_PART = re.compile(r"\w[\w.+-]{0,199}")


def is_part_name(name: str) -> bool:
    """Whether a part of a dataset may have this name.

    >>> is_part_name("2026-11-03"), is_part_name("a/b")
    (True, False)
    """
    return _PART.fullmatch(name) is not None


def part_folder(directory: str, name: str) -> str:
    """Returns the folder of a part; the same for one that is that folder already."""
    own = f"{PART_PREFIX}{name}"
    plain = directory.rstrip("/") or directory
    return plain if os.path.basename(plain) == own else os.path.join(plain, own)


def part_name(directory: str) -> str:
    """Returns the name of the part in a folder; empty where that is no part.

    >>> part_name("sets/events/part=2026-11-03"), part_name("sets/events")
    ('2026-11-03', '')
    """
    own = os.path.basename(directory.rstrip("/"))
    return own.removeprefix(PART_PREFIX) if own.startswith(PART_PREFIX) else ""


def folder_of_parts(directory: str) -> str:
    """Returns the folder that holds a part's folder.

    >>> folder_of_parts("sets/events/part=2026-11-03")
    'sets/events'
    """
    return os.path.dirname(directory.rstrip("/"))


_GIVEN = re.compile(r"/dev/stdin|(/dev|/proc/self)/fd/[0-9]+")


def is_data_folder(name: str) -> bool:
    """Whether a name has the form of a folder that a dataset's files are in."""
    return _FOLDER.fullmatch(name) is not None


def open_regular(path: str, flags: int, folder: int | None = None) -> int:
    """Returns a descriptor of a regular file; the `opener` of `open`.

    Args:
      path: of the file.
      flags: as `os.open` takes them.
      folder: descriptor of the folder that a relative path starts from.

    The check looks at the open file, so no other can replace it in between.

    Raises:
      OSError: it cannot be opened, or is no regular file.
    """
    return open_with_status(path, flags, folder)[0]


def open_with_status(
    path: str, flags: int, folder: int | None = None
) -> tuple[int, os.stat_result]:
    """Returns a descriptor as `open_regular` does, and its status."""
    flags |= os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, dir_fd=folder)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor, status


def open_stream(path: str, flags: int) -> int:
    """Returns a descriptor as `open_regular` does, or of a pipe of this process.

    Raises:
      OSError: it cannot be opened, or is neither.
    """
    if _GIVEN.fullmatch(path):
        return os.open(path, flags | os.O_CLOEXEC)
    return open_regular(path, flags)
