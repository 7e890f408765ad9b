"""A second name for the bytes of a file, without reading them."""

import errno
import functools
import os

from transforms.storage.arrow import look
from transforms.storage.buckets import HDFS, bucket_of
from transforms.storage.paths import is_remote, split_remote
from transforms.storage.remote import is_frozen
from transforms.storage.retry import asked

# What file systems say that link no files, or not these two.
_NO_LINKS = frozenset(
    (
        *(errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOSYS),
        *(errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTSUP),
    )
)


def duplicate(source: str, target: str) -> bool:
    """Gives a file another name, too; in an object store, makes the store copy it.

    On a disk both names are those of one file (a hard link).

    Args:
      source: the file.
      target: the name, which is not taken.

    Returns:
      Whether it was done; else nothing has changed, and the bytes must be copied: the
      two are on different file systems, say.

    Raises:
      OSError: the file cannot be found, or the store cannot copy it.
    """
    if is_remote(source) != is_remote(target):
        return False
    if not is_remote(target):
        try:
            os.link(source, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                return False
            raise
        return True
    (place, key), (new_place, new_key) = split_remote(source), split_remote(target)
    if place != new_place or target.startswith(HDFS):
        return False
    bucket = bucket_of(target)
    if is_frozen(target) and look(target) is not None:
        # Another run of the same job has put it; only its bytes say that it is equal.
        return False
    asked(target, functools.partial(bucket.copy, key, new_key))
    return True
