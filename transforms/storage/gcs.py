"""Google Cloud Storage through its own client (the extra `[gcs]`)."""

import concurrent.futures
import contextlib
import datetime
import errno
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from transforms.storage.buckets import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Bucket,
    age_of,
    endpoint_of,
)
from transforms.storage.entries import SECOND_NS, Found, Look
from transforms.storage.retry import of_status, reason_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_ENDPOINT = "STORAGE_EMULATOR_HOST"
# What the client's own repetitions may take in all.
_RETRY_SECONDS = 5
_REMOVED_AT_ONCE = 8
# So short that Arrow's client never repeats: its long pauses would add to ours.
_ARROW_SECONDS = 0.1


def connected(parameters: Mapping[str, str]) -> "pafs.GcsFileSystem":
    """Returns the store as Arrow reaches it."""
    import pyarrow.fs as pafs

    scheme, host = endpoint_of(parameters, _ENDPOINT)
    options: dict[str, Any] = {}
    if host:
        options["endpoint_override"] = host
        options["scheme"] = scheme
    if host or parameters.get("anonymous") == "true":
        # Emulators know no accounts.
        options["anonymous"] = True
    limit = datetime.timedelta(seconds=_ARROW_SECONDS)
    return pafs.GcsFileSystem(retry_time_limit=limit, **options)


@contextlib.contextmanager
def gcs_errors(path: str) -> Iterator[None]:
    """See `Bucket.errors`."""
    import google.api_core.exceptions as api
    import google.auth.exceptions
    import requests

    try:
        yield
    except api.GoogleAPICallError as error:
        raise of_status(int(error.code or 0), str(error.message), path) from error
    except google.auth.exceptions.GoogleAuthError as error:
        reason = reason_of(error)
        if error.retryable:
            raise OSError(errno.ECONNRESET, reason, path) from error
        raise PermissionError(errno.EACCES, reason, path) from error
    except (api.RetryError, requests.exceptions.RequestException) as error:
        reason = reason_of(error)
        raise OSError(errno.ECONNRESET, reason, path) from error


class GcsBucket(Bucket):
    """See `Bucket`."""

    errors = staticmethod(gcs_errors)

    def __init__(self, place: str, parameters: Mapping[str, str]) -> None:
        import google.auth.credentials
        import google.cloud.storage as storage
        import google.cloud.storage.retry

        self.place = place
        options: dict[str, Any] = {}
        scheme, host = endpoint_of(parameters, _ENDPOINT)
        if host:
            options["client_options"] = {"api_endpoint": f"{scheme}://{host}"}
        if host or parameters.get("anonymous") == "true":
            # Emulators know no accounts.
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = os.environ.get("GOOGLE_CLOUD_PROJECT", "none")
        self._bucket = storage.Client(**options).bucket(place.partition("://")[2])
        retry = google.cloud.storage.retry.DEFAULT_RETRY.with_timeout(_RETRY_SECONDS)
        timeout = (CONNECT_SECONDS, READ_SECONDS)
        self._patience: dict[str, Any] = {"timeout": timeout, "retry": retry}

    def look(self, key: str) -> Look:
        """See `Bucket`."""
        blob = self._bucket.blob(key)
        try:
            with gcs_errors(self.path(key)):
                blob.reload(**self._patience)
        except FileNotFoundError:
            return Look()
        return Look(str(blob.generation), age_of(blob.updated))

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """See `Bucket`."""
        with self.naming_missing(), gcs_errors(self.path(key)):
            self._bucket.blob(key).upload_from_filename(
                local,
                checksum="crc32c",
                if_generation_match=0 if new else None,
                **self._patience,
            )

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """See `Bucket`."""
        with self.naming_missing(), gcs_errors(self.path(key)):
            self._bucket.blob(key).upload_from_string(
                data,
                checksum="crc32c",
                if_generation_match=None if version is None else int(version or 0),
                **self._patience,
            )

    def copy(self, key: str, to: str) -> None:
        """See `Bucket`."""
        source, target = self._bucket.blob(key), self._bucket.blob(to)
        with gcs_errors(self.path(key)):
            token = None
            while True:
                # A large object is copied by several requests.
                token, _, _ = target.rewrite(source, token=token, **self._patience)
                if token is None:
                    return

    def remove(self, key: str) -> None:
        """See `Bucket`."""
        with contextlib.suppress(FileNotFoundError), gcs_errors(self.path(key)):
            self._bucket.blob(key).delete(**self._patience)

    def remove_below(self, folder: str) -> None:
        """See `Bucket`."""
        with gcs_errors(self.path(folder)):
            blobs = self._bucket.list_blobs(prefix=f"{folder}/", **self._patience)
            keys = [blob.name for blob in blobs]
        with concurrent.futures.ThreadPoolExecutor(_REMOVED_AT_ONCE) as pool:
            for _ in pool.map(self.remove, keys):
                pass

    def list_in(self, folder: str) -> list[Found]:
        """See `Bucket`; Arrow shows only folders that have an object of their own."""
        prefix = f"{folder}/" if folder else ""
        with gcs_errors(self.path(folder)):
            pages = self._bucket.list_blobs(
                prefix=prefix, delimiter="/", **self._patience
            )
            blobs = list(pages)
            folders = set(pages.prefixes)
        top = self.path(folder)
        entries = [
            Found(f"{top}/{it.removeprefix(prefix)[:-1]}", True) for it in folders
        ]
        for blob in blobs:
            name = blob.name.removeprefix(prefix)
            if name and not name.endswith("/"):
                seconds = int(blob.updated.timestamp()) if blob.updated else 0
                path, size = f"{top}/{name}", blob.size or 0
                entries.append(Found(path, False, size, seconds * SECOND_NS))
        return entries
