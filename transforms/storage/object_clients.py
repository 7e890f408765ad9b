"""The client library of an object store, where it is installed.

boto3 and google-cloud-storage are extras of the installation, `[s3]` and `[gcs]`;
without them such places are written by Arrow alone, and what needs more is refused.
"""

import contextlib
import errno
import functools
import os

from transforms.storage.gcs_client import GcsClient, gcs_errors
from transforms.storage.object_store import Client, reason_of
from transforms.storage.paths import parameters_of, split_remote
from transforms.storage.s3_client import S3Client, S3Reads, s3_errors

_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs"}


def extra_of(path: str) -> str:
    """Returns the extra to install for the client of a place; "" for none."""
    return _EXTRAS.get(path.partition("://")[0], "")


def client_of(path: str) -> Client | None:
    """Returns the client for the bucket of a path; None where there is none.

    Raises:
      OSError: there is one, but not with what the environment or the parameters say.
    """
    place, _ = split_remote(path)
    said = tuple(sorted(parameters_of(place).items()))
    return _connected(place, said, os.getpid())


def reads_of(path: str) -> S3Reads | None:
    """Returns what reads objects with one request; None where Arrow must, or does so.

    That the settings are no good finds out who asks in another way.
    """
    if path.startswith("s3://"):
        with contextlib.suppress(OSError):
            client = client_of(path)
            return client.reads if isinstance(client, S3Client) else None
    return None


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], _process: int
) -> Client | None:
    scheme, _, bucket = place.partition("://")
    try:
        if scheme == "s3":
            with s3_errors(place):
                return S3Client(bucket, dict(said))
        if scheme in ("gs", "gcs"):
            with gcs_errors(place):
                return GcsClient(bucket, dict(said))
    except ValueError as error:
        raise OSError(errno.EINVAL, reason_of(error), place) from error
    except ImportError:
        return None
    return None
