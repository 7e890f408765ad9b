"""The connections to a store: Arrow, which reads, and the store's own client.

There is one of each for every place and process. Endpoints and credentials come from
the usual environment variables, or from URI parameters of the path.
"""

import errno
import functools
import os
from typing import TYPE_CHECKING, Any

from transforms.errors import TargetError
from transforms.storage.buckets import HDFS, Bucket
from transforms.storage.paths import parameters_of, split_remote
from transforms.storage.retry import reason_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs", "abfs": "azure", "abfss": "azure"}
_Said = tuple[tuple[str, str], ...]


def extra_of(path: str) -> str:
    """Returns the extra to install for the client of a place; "" for none."""
    return _EXTRAS.get(path.partition("://")[0], "")


def _said_of(place: str) -> _Said:
    return tuple(sorted(parameters_of(place).items()))


def file_system(path: str) -> tuple["pafs.FileSystem", str]:
    """Returns the file system of a path, and the path within it.

    Raises:
      OSError: what the environment or the parameters say makes no sense.
    """
    place, key = split_remote(path)
    system, base = _connected_by_arrow(place, _said_of(place), os.getpid())
    return system, f"{base.rstrip('/')}/{key}" if key else base


@functools.lru_cache(maxsize=64)
def _connected_by_arrow(
    place: str, said: _Said, _process: int
) -> tuple["pafs.FileSystem", str]:
    """Connects once in each process: threads do not survive a fork."""
    # Here, because it loads the clients of all clouds.
    import pyarrow as pa

    from transforms.storage import azure, gcs, hdfs, s3

    scheme, _, authority = place.partition("://")
    parameters = dict(said)
    try:
        if scheme == "s3":
            return s3.connected(parameters, authority), authority
        if scheme in ("gs", "gcs"):
            return gcs.connected(parameters), authority
        if scheme in ("abfs", "abfss"):
            return azure.connected(parameters, place)
        return hdfs.connected(parameters, place), ""
    except (ValueError, pa.ArrowException, OSError) as error:
        raise OSError(errno.EINVAL, reason_of(error), place) from error


def bucket_of(path: str, attempts: str = "") -> Bucket:
    """Returns the bucket of a path, for writing.

    Args:
      path: of an object.
      attempts: in HDFS, a folder for files that are not whole; elsewhere nothing.

    Raises:
      OSError: the environment or the parameters make no sense.
      TargetError: the store's client is not installed.
    """
    client = client_of(path, attempts)
    if client is None:
        raise TargetError(
            f"Writing to {split_remote(path)[0]!r} needs the store's own client, which "
            f"is not installed. Install it with pip install "
            f"'beam-tfrecord[{extra_of(path)}]', or choose another output."
        )
    return client


def client_of(path: str, attempts: str = "") -> Bucket | None:
    """Returns the bucket of a path; None where the store's client is not installed.

    Args:
      path, attempts: see `bucket_of`.

    Raises:
      OSError: it is, but the environment or the parameters make no sense.
    """
    place, _ = split_remote(path)
    if path.startswith(HDFS):
        from transforms.storage.hdfs import HdfsBucket

        return HdfsBucket(place, attempts, file_system(place)[0])
    return _connected(place, _said_of(place), os.getpid())


@functools.lru_cache(maxsize=64)
def _connected(place: str, said: _Said, _process: int) -> Bucket | None:
    """As `_connected_by_arrow`, by the store's own client."""
    from transforms.storage import azure, gcs, s3

    kinds: dict[str, Any] = {
        "s3": s3.S3Bucket,
        "gs": gcs.GcsBucket,
        "gcs": gcs.GcsBucket,
    }
    kind = kinds.get(place.partition("://")[0], azure.AzureBucket)
    try:
        with kind.errors(place):
            client: Bucket = kind(place, dict(said))
            return client
    except ValueError as error:
        raise OSError(errno.EINVAL, reason_of(error), place) from error
    except ImportError:
        return None
