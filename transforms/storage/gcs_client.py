"""Google Cloud Storage through its own client (the extra `[gcs]`)."""

import concurrent.futures
import contextlib
import datetime
import errno
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

from transforms.storage.object_store import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Listed,
    Look,
    Upload,
    age_of,
    gcs_endpoint,
    naming_missing_bucket,
    of_status,
    reason_of,
    url_of,
)

# What the client's own repetitions may take in all.
_RETRY_SECONDS = 5
_REMOVED_AT_ONCE = 8


class GcsClient:
    """See `transforms.storage.object_store.Client`."""

    def __init__(self, bucket: str, parameters: Mapping[str, str]) -> None:
        import google.auth.credentials
        import google.cloud.storage as storage
        import google.cloud.storage.retry

        options: dict[str, Any] = {}
        if endpoint := gcs_endpoint(parameters):
            options["client_options"] = {"api_endpoint": url_of(endpoint, parameters)}
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = os.environ.get("GOOGLE_CLOUD_PROJECT", "none")
        elif parameters.get("anonymous") == "true":
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = "none"
        self._bucket = storage.Client(**options).bucket(bucket)
        retry = google.cloud.storage.retry.DEFAULT_RETRY.with_timeout(_RETRY_SECONDS)
        timeout = (CONNECT_SECONDS, READ_SECONDS)
        self._patience: dict[str, Any] = {"timeout": timeout, "retry": retry}

    def look(self, key: str) -> Look:
        """See `Client`.

        Blobs of the library do not show the answer's `Date`, so it is asked directly.
        """
        import google.api_core.exceptions as api

        client = self._bucket.client
        named = f"{self._bucket.name}/o/{urllib.parse.quote(key, safe='')}"
        url = f"{client.api_endpoint}/storage/v1/b/{named}"

        def ask() -> Any:
            answer = client._http.get(
                url,
                params={"fields": "generation,updated"},
                timeout=self._patience["timeout"],
            )
            if not answer.ok:
                raise api.from_http_response(answer)
            return answer

        try:
            with gcs_errors(self._path(key)):
                answer = self._patience["retry"](ask)()
        except FileNotFoundError:
            return Look()
        found = answer.json()
        written = datetime.datetime.fromisoformat(found["updated"])
        return Look(str(found["generation"]), age_of(written, answer.headers["Date"]))

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """See `Client`."""
        with naming_missing_bucket(self._path()), gcs_errors(self._path(key)):
            self._bucket.blob(key).upload_from_filename(
                local,
                checksum="crc32c",
                if_generation_match=0 if new else None,
                **self._patience,
            )

    def put(self, key: str, data: bytes) -> None:
        """See `Client`."""
        with naming_missing_bucket(self._path()), gcs_errors(self._path(key)):
            self._bucket.blob(key).upload_from_string(
                data, checksum="crc32c", **self._patience
            )

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """See `Client`."""
        with naming_missing_bucket(self._path()), gcs_errors(self._path(key)):
            self._bucket.blob(key).upload_from_string(
                data,
                checksum="crc32c",
                if_generation_match=int(version or 0),
                **self._patience,
            )

    def copy(self, key: str, to: str) -> None:
        """See `Client`."""
        source, target = self._bucket.blob(key), self._bucket.blob(to)
        with gcs_errors(self._path(key)):
            token = None
            while True:
                # A large object is copied by several requests.
                token, _, _ = target.rewrite(source, token=token, **self._patience)
                if token is None:
                    return

    def remove(self, key: str) -> None:
        """See `Client`."""
        with contextlib.suppress(FileNotFoundError), gcs_errors(self._path(key)):
            self._bucket.blob(key).delete(**self._patience)

    def remove_below(self, folder: str) -> None:
        """See `Client`."""
        with gcs_errors(self._path(folder)):
            found = self._bucket.list_blobs(prefix=f"{folder}/", **self._patience)
            keys = [blob.name for blob in found]
        with concurrent.futures.ThreadPoolExecutor(_REMOVED_AT_ONCE) as pool:
            for _ in pool.map(self.remove, keys):
                pass

    def list_in(self, folder: str) -> list[Listed] | None:
        """See `Client`: Arrow shows only folders that have an object of their own."""
        prefix = f"{folder}/" if folder else ""
        with gcs_errors(self._path(folder)):
            pages = self._bucket.list_blobs(
                prefix=prefix, delimiter="/", **self._patience
            )
            blobs = list(pages)
            folders = set(pages.prefixes)
        names = [Listed(each.removeprefix(prefix)[:-1], True) for each in folders]
        for blob in blobs:
            name = blob.name.removeprefix(prefix)
            if name and not name.endswith("/"):
                seconds = int(blob.updated.timestamp()) if blob.updated else 0
                names.append(Listed(name, False, blob.size or 0, seconds))
        return names

    def uploads(self, prefix: str) -> list[Upload]:
        """Returns none: Google's store removes unfinished uploads by itself."""
        return []

    def give_up(self, key: str, upload: str) -> None:
        """See `Client`; there is none to give up."""

    def _path(self, key: str = "") -> str:
        return f"gs://{self._bucket.name}/{key}".rstrip("/")


@contextlib.contextmanager
def gcs_errors(path: str) -> Iterator[None]:
    """Turns what the client raises about a path into an OSError or OvertakenError."""
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
