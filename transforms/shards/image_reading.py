"""Read one image, by its path or out of its row, and prepare it."""

import os

from transforms import files
from transforms.core import this_worker
from transforms.core.image.policy import (
    ImagePolicy,
    PreparedImage,
    prepare_image,
    too_many_bytes,
)
from transforms.core.model import Reason
from transforms.core.reasons import Fault
from transforms.errors import SpecError, bounded
from transforms.shards import decoders
from transforms.shards.loaded_images import LoadedImage
from transforms.storage.entries import TooLargeError
from transforms.storage.paths import is_remote, plain, spellings, without_access
from transforms.storage.visibility import unseen

_CHANGED = "it has another size or time than when it was listed"


def load_image(
    value: str | bytes | None, stamp: int, root: str, policy: ImagePolicy
) -> LoadedImage | None:
    """Returns an image, or what is wrong with it; None where there is none.

    Args:
      value: the image, or its path.
      stamp: of the file when it was listed; 0 if that is not known.
      root: the folder of paths that are not absolute.
      policy: what is done to the image.
    """
    if value is None:
        return None
    if isinstance(value, bytes):
        return LoadedImage(value, prepare(value, policy))
    try:
        data, found = _read(value, root, policy.max_bytes)
    except TooLargeError as large:
        if stamp and files.stamp(large.size, large.modified_ns) != stamp:
            return LoadedImage(b"", Fault(Reason.CHANGED_DURING_RUN, _CHANGED))
        return LoadedImage(b"", too_many_bytes(large.size, policy.max_bytes))
    except FileNotFoundError:
        # A link that was dangling when it was listed has no time of its own.
        missing = stamp in (0, files.stamp(0, 0))
        reason = Reason.UNREADABLE if missing else Reason.CHANGED_DURING_RUN
        tried = without_access(full_path(value, root))
        return LoadedImage(b"", Fault(reason, bounded(f"there is no file {tried!r}")))
    except OSError as error:
        found_out = str(error.strerror or error)
        return LoadedImage(b"", Fault(Reason.UNREADABLE, found_out))
    except SpecError as error:
        return LoadedImage(b"", Fault(Reason.UNREADABLE, str(error)))
    if stamp and found != stamp:
        return LoadedImage(data, Fault(Reason.CHANGED_DURING_RUN, _CHANGED))
    return LoadedImage(data, prepare(data, policy), value)


def prepare(data: bytes, policy: ImagePolicy) -> PreparedImage | Fault:
    """Returns an image under a policy; foreign kinds by a process of their own."""
    return prepare_image(data, policy, foreign=decoders.SHARED.prepare)


def _read(path: str, root: str, limit: int) -> tuple[bytes, int]:
    """Returns a file and its stamp; the stamp is 0 for a file in a store."""
    if "://" not in path:
        return _read_named(path, root, limit)
    path = plain(path)
    if not is_remote(path):
        return _read_named(path, root, limit)
    # Its path is in a cell, so no listing has its stamp.
    return files.read_stamped(path, limit)[0], 0


def _read_named(path: str, root: str, limit: int) -> tuple[bytes, int]:
    """Returns a file and its stamp; tries the other spellings of its name, too.

    Raises:
      WorkerError: the path is of another machine's disk.
    """
    if this_worker.is_elsewhere() and (never := unseen(full_path(path, root))):
        raise never
    try:
        return files.read_stamped(full_path(path, root), limit)
    except FileNotFoundError:
        for spelling in spellings(path)[1:]:
            other = os.path.join(root, spelling)
            if files.exists(other):
                return files.read_stamped(other, limit)
        if never := unseen(full_path(path, root), root):
            raise never from None
        raise


def full_path(path: str, root: str) -> str:
    """Returns the result of `os.path.join`, in a tenth of the time."""
    return path if not root or path.startswith("/") else f"{root}/{path}"
