"""Object stores through their own clients: what `pyarrow.fs` has no words for.

That is: writing an object only if nobody else has (`If-None-Match`, `If-Match`,
Google's generations), and giving up the multi-part uploads of dead runs. boto3 and
google-cloud-storage are extras of the installation, `[s3]` and `[gcs]`; without them
such places are written by Arrow alone, and what needs these words is refused.
"""

import contextlib
import errno
import functools
import os
from typing import Any, Protocol

from transforms.paths import parameters_of, split_remote

__all__ = [
    "Client",
    "OvertakenError",
    "client_of",
    "extra_of",
    "gcs_endpoint",
    "s3_endpoint",
]

# Larger files go up in parts, so that a failure costs one of them.
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
_CONNECT_SECONDS = 10
_READ_SECONDS = 60
_ATTEMPTS = 3
_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs"}


class OvertakenError(Exception):
    """An object is not what it was to be when it was to be written."""


class Client(Protocol):
    """A bucket, through its store's own client. All raise OSError."""

    def version(self, key: str) -> str:
        """Returns what tells this state of an object from any other; "" for none."""

    def put_file(self, key: str, local: str) -> None:
        """Uploads a file, in parts where it is large; gives up what has failed."""

    def put(self, key: str, data: bytes) -> None:
        """Writes an object."""

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """Writes an object if it is still of this version.

        Raises:
          OvertakenError: it is not; nothing has changed.
        """

    def give_up_uploads(self, prefix: str) -> int:
        """Ends all uploads in parts below a prefix; returns how many there were."""


def extra_of(path: str) -> str:
    """Returns the extra of the installation that a place wants; "" for none."""
    return _EXTRAS.get(path.partition("://")[0], "")


def client_of(path: str) -> Client | None:
    """Returns the client for the bucket of a path; None where there is none."""
    place, _ = split_remote(path)
    said = tuple(sorted(parameters_of(place).items()))
    return _connected(place, said, os.getpid())


@functools.lru_cache(maxsize=64)
def _connected(
    place: str, said: tuple[tuple[str, str], ...], process: int
) -> Client | None:
    scheme, _, bucket = place.partition("://")
    try:
        if scheme == "s3":
            return _S3(bucket, dict(said))
        if scheme in ("gs", "gcs"):
            return _Gcs(bucket, dict(said))
    except ImportError:
        return None
    return None


def s3_endpoint(parameters: dict[str, str]) -> str:
    """Returns the endpoint that is asked for; "" for Amazon's own."""
    return (
        parameters.get("endpoint_override")
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or ""
    )


def gcs_endpoint(parameters: dict[str, str]) -> str:
    """Returns the endpoint that is asked for; "" for Google's own."""
    return (
        parameters.get("endpoint_override")
        or os.environ.get("STORAGE_EMULATOR_HOST")
        or ""
    )


def _url(endpoint: str, parameters: dict[str, str]) -> str:
    if "://" in endpoint:
        return endpoint
    return f"{parameters.get('scheme', 'https')}://{endpoint}"


class _S3:
    def __init__(self, bucket: str, parameters: dict[str, str]) -> None:
        import boto3
        import botocore.config
        from boto3.s3.transfer import TransferConfig

        self._bucket = bucket
        options: dict[str, Any] = {}
        if endpoint := s3_endpoint(parameters):
            options["endpoint_url"] = _url(endpoint, parameters)
        for theirs, ours in (
            ("aws_access_key_id", "access_key"),
            ("aws_secret_access_key", "secret_key"),
            ("aws_session_token", "session_token"),
            ("region_name", "region"),
        ):
            if ours in parameters:
                options[theirs] = parameters[ours]
        if not options.get("region_name") and not os.environ.get("AWS_REGION"):
            session = boto3.session.Session()
            options.setdefault("region_name", session.region_name or "us-east-1")
        self._client = boto3.client(
            "s3",
            config=botocore.config.Config(
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            ),
            **options,
        )
        self._transfer = TransferConfig(
            multipart_threshold=_PART_BYTES,
            multipart_chunksize=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    def version(self, key: str) -> str:
        """See `Client`."""
        try:
            with _s3_errors(key):
                found = self._client.head_object(Bucket=self._bucket, Key=key)
        except FileNotFoundError:
            return ""
        return str(found["ETag"])

    def put_file(self, key: str, local: str) -> None:
        """See `Client`."""
        with _s3_errors(key):
            self._client.upload_file(local, self._bucket, key, Config=self._transfer)

    def put(self, key: str, data: bytes) -> None:
        """See `Client`."""
        with _s3_errors(key):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """See `Client`."""
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        try:
            with _s3_errors(key):
                self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=data, **condition
                )
        except FileNotFoundError as error:
            if not version:
                raise
            # There is none to match any more.
            raise OvertakenError(key) from error

    def give_up_uploads(self, prefix: str) -> int:
        """See `Client`."""
        ended = 0
        with _s3_errors(prefix):
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix):
                for upload in page.get("Uploads", ()):
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket,
                        Key=upload["Key"],
                        UploadId=upload["UploadId"],
                    )
                    ended += 1
        return ended


@contextlib.contextmanager
def _s3_errors(key: str) -> Any:
    import boto3.exceptions
    import botocore.exceptions

    try:
        yield
    except botocore.exceptions.ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        code = error.response.get("Error", {}).get("Code", "")
        raise _of_status(int(status), str(code), key) from error
    except boto3.exceptions.S3UploadFailedError as error:
        found = error.__cause__ or error.__context__
        if isinstance(found, botocore.exceptions.ClientError):
            status = found.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            raise _of_status(int(status), str(error), key) from error
        raise OSError(errno.EIO, f"the upload failed: {error}"[:300], key) from error
    except botocore.exceptions.NoCredentialsError as error:
        raise PermissionError(errno.EACCES, str(error), key) from error
    except botocore.exceptions.BotoCoreError as error:
        # What is left are connections: refused, cut, or too slow.
        raise OSError(errno.ECONNRESET, str(error)[:300], key) from error


def _of_status(status: int, code: str, key: str) -> Exception:
    if status in (409, 412):
        return OvertakenError(code)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key)
    if status in (401, 403):
        return PermissionError(errno.EACCES, code or "access denied", key)
    if status in (408, 429) or status >= 500:
        return OSError(errno.EIO, f"the store answered {status} {code}"[:300], key)
    return OSError(errno.EREMOTEIO, f"the store answered {status} {code}"[:300], key)


class _Gcs:
    def __init__(self, bucket: str, parameters: dict[str, str]) -> None:
        import google.auth.credentials
        import google.cloud.storage as storage

        options: dict[str, Any] = {}
        if endpoint := gcs_endpoint(parameters):
            options["client_options"] = {"api_endpoint": _url(endpoint, parameters)}
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = os.environ.get("GOOGLE_CLOUD_PROJECT", "none")
        elif parameters.get("anonymous") == "true":
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = "none"
        self._bucket = storage.Client(**options).bucket(bucket)

    def version(self, key: str) -> str:
        """See `Client`."""
        with _gcs_errors(key):
            found = self._bucket.get_blob(key)
        return "" if found is None else str(found.generation)

    def put_file(self, key: str, local: str) -> None:
        """See `Client`."""
        with _gcs_errors(key):
            blob = self._bucket.blob(key, chunk_size=None)
            blob.upload_from_filename(local, timeout=_READ_SECONDS, checksum="crc32c")

    def put(self, key: str, data: bytes) -> None:
        """See `Client`."""
        with _gcs_errors(key):
            self._bucket.blob(key).upload_from_string(
                data, timeout=_READ_SECONDS, checksum="crc32c"
            )

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """See `Client`."""
        with _gcs_errors(key):
            self._bucket.blob(key).upload_from_string(
                data,
                timeout=_READ_SECONDS,
                checksum="crc32c",
                if_generation_match=int(version or 0),
            )

    def give_up_uploads(self, prefix: str) -> int:
        """None: what is not finished of them, Google's store forgets by itself."""
        return 0


@contextlib.contextmanager
def _gcs_errors(key: str) -> Any:
    import google.api_core.exceptions as api
    import google.auth.exceptions
    import requests

    try:
        yield
    except api.GoogleAPICallError as error:
        raise _of_status(int(error.code or 0), str(error.message), key) from error
    except google.auth.exceptions.GoogleAuthError as error:
        raise PermissionError(errno.EACCES, str(error)[:300], key) from error
    except (api.RetryError, requests.exceptions.RequestException) as error:
        raise OSError(errno.ECONNRESET, str(error)[:300], key) from error
