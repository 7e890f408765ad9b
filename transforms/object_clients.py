"""Object stores through their own clients: what `pyarrow.fs` has no words for.

That is: writing an object only if nobody else has (`If-None-Match`, `If-Match`,
Google's generations), giving up the multi-part uploads of dead runs, and removing
objects without putting others in the place of empty folders. boto3 and
google-cloud-storage are extras of the installation, `[s3]` and `[gcs]`; without them
such places are written by Arrow alone, and what needs these words is refused.
"""

import concurrent.futures
import contextlib
import dataclasses
import errno
import functools
import os
from collections.abc import Iterator
from typing import Any, Protocol

from transforms.paths import parameters_of, split_remote

__all__ = [
    "Client",
    "Listed",
    "OvertakenError",
    "client_of",
    "extra_of",
    "gcs_endpoint",
    "s3_endpoint",
    "s3_region",
]

# Larger files go up in parts, so that a failure costs one of them.
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
_CONNECT_SECONDS = 5
_READ_SECONDS = 60
_ATTEMPTS = 3
# What the clients' own repetitions may take in all.
_RETRY_SECONDS = 5
_REMOVED_AT_ONCE = 8
# As many as one request of S3 may name.
_KEYS_A_REQUEST = 1000
# Somebody else is writing the same object this very moment.
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")
_LONGEST_REASON = 300
_EXTRAS = {"s3": "s3", "gs": "gcs", "gcs": "gcs"}


class OvertakenError(Exception):
    """An object is not what it was to be when it was to be written."""


@dataclasses.dataclass(frozen=True, slots=True)
class Listed:
    """What lies in a folder.

    Attributes:
      name: there.
      is_folder: whether it is a folder too.
      size: bytes of an object.
      modified: of an object, whole seconds since 1970.
    """

    name: str
    is_folder: bool
    size: int = 0
    modified: int = 0


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

    def remove(self, key: str) -> None:
        """Removes an object; it may be gone already."""

    def remove_below(self, folder: str) -> None:
        """Removes every object whose key begins with `folder` and a slash."""

    def list_in(self, folder: str) -> list[Listed] | None:
        """Returns what lies in a folder; None where Arrow tells as much."""

    def give_up_uploads(self, prefix: str) -> int:
        """Ends all uploads in parts below a prefix; returns how many there were."""


def extra_of(path: str) -> str:
    """Returns the extra of the installation that a place wants; "" for none."""
    return _EXTRAS.get(path.partition("://")[0], "")


def client_of(path: str) -> Client | None:
    """Returns the client for the bucket of a path; None where there is none.

    Raises:
      OSError: there is one, but not with what the environment or the parameters say.
    """
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
            with _s3_errors(place):
                return _S3(bucket, dict(said))
        if scheme in ("gs", "gcs"):
            with _gcs_errors(place):
                return _Gcs(bucket, dict(said))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error)[:_LONGEST_REASON], place) from error
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


def s3_region() -> str:
    """Returns the region that the environment names; "" for none."""
    names = ("AWS_REGION", "AWS_DEFAULT_REGION")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


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
        import botocore
        import botocore.config
        from boto3.s3.transfer import TransferConfig

        self._bucket = bucket
        self._place = f"s3://{bucket}"
        session = boto3.session.Session(
            aws_access_key_id=parameters.get("access_key"),
            aws_secret_access_key=parameters.get("secret_key"),
            aws_session_token=parameters.get("session_token"),
            region_name=parameters.get("region") or s3_region() or None,
        )
        config: dict[str, Any] = {}
        endpoint = s3_endpoint(parameters)
        if endpoint:
            endpoint = _url(endpoint, parameters)
            # Of servers elsewhere few have a host name for each bucket.
            if not endpoint.rstrip("/").endswith(
                (".amazonaws.com", ".amazonaws.com.cn")
            ):
                config["s3"] = {"addressing_style": "path"}
        if parameters.get("anonymous") == "true":
            config["signature_version"] = botocore.UNSIGNED
        self._client = session.client(
            "s3",
            region_name=session.region_name or "us-east-1",
            endpoint_url=endpoint or None,
            config=botocore.config.Config(
                connect_timeout=_CONNECT_SECONDS,
                read_timeout=_READ_SECONDS,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                **config,
            ),
        )
        self._transfer = TransferConfig(
            multipart_threshold=_PART_BYTES,
            multipart_chunksize=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    def version(self, key: str) -> str:
        """See `Client`."""
        try:
            with _s3_errors(self._path(key)):
                found = self._client.head_object(Bucket=self._bucket, Key=key)
        except FileNotFoundError:
            return ""
        return str(found["ETag"])

    def put_file(self, key: str, local: str) -> None:
        """See `Client`."""
        with _bucket_stands(self._path()), _s3_errors(self._path(key)):
            self._client.upload_file(local, self._bucket, key, Config=self._transfer)

    def put(self, key: str, data: bytes) -> None:
        """See `Client`."""
        with _bucket_stands(self._path()), _s3_errors(self._path(key)):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """See `Client`."""
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        try:
            with _s3_errors(self._path(key)):
                self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=data, **condition
                )
        except FileNotFoundError as error:
            if not version:
                raise _no_bucket(self._path()) from error
            # There is none to match any more.
            raise OvertakenError(key) from error

    def remove(self, key: str) -> None:
        """See `Client`."""
        with contextlib.suppress(FileNotFoundError), _s3_errors(self._path(key)):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def remove_below(self, folder: str) -> None:
        """See `Client`."""
        with _s3_errors(self._path(folder)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{folder}/"
            )
            keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
            # What stands for a folder goes after what lies in it: some servers insist.
            keys.sort(key=lambda key: (key.endswith("/"), -key.count("/")))
            for start in range(0, len(keys), _KEYS_A_REQUEST):
                named = [{"Key": key} for key in keys[start : start + _KEYS_A_REQUEST]]
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": named, "Quiet": True}
                )
                for failed in answer.get("Errors", ()):
                    status = 403 if failed["Code"] == "AccessDenied" else 500
                    found = f"{failed['Code']}: {failed.get('Message', '')}"
                    raise _of_status(status, found, self._path(failed["Key"]))

    def list_in(self, folder: str) -> list[Listed] | None:
        """See `Client`."""
        return None

    def give_up_uploads(self, prefix: str) -> int:
        """See `Client`."""
        ended = 0
        with _s3_errors(self._path(prefix)):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            for upload in [each for page in pages for each in page.get("Uploads", ())]:
                with contextlib.suppress(self._client.exceptions.NoSuchUpload):
                    self._client.abort_multipart_upload(
                        Bucket=self._bucket,
                        Key=upload["Key"],
                        UploadId=upload["UploadId"],
                    )
                    ended += 1
        return ended

    def _path(self, key: str = "") -> str:
        return f"s3://{self._bucket}/{key}".rstrip("/")


@contextlib.contextmanager
def _s3_errors(path: str) -> Iterator[None]:
    import boto3.exceptions
    import botocore.exceptions

    try:
        yield
    except botocore.exceptions.ClientError as error:
        raise _of_s3(error, path) from error
    except boto3.exceptions.S3UploadFailedError as error:
        found = error.__cause__ or error.__context__
        if isinstance(found, botocore.exceptions.ClientError):
            raise _of_s3(found, path) from error
        reason = f"the upload failed: {error}"[:_LONGEST_REASON]
        raise OSError(errno.EIO, reason, path) from error
    except botocore.exceptions.NoCredentialsError as error:
        raise PermissionError(errno.EACCES, str(error), path) from error
    except (
        botocore.exceptions.ConnectionError,
        botocore.exceptions.HTTPClientError,
        botocore.exceptions.IncompleteReadError,
    ) as error:
        # Refused, cut, or too slow.
        reason = str(error)[:_LONGEST_REASON]
        raise OSError(errno.ECONNRESET, reason, path) from error
    except botocore.exceptions.BotoCoreError as error:
        # Settings that make no sense.
        raise OSError(errno.EINVAL, str(error)[:_LONGEST_REASON], path) from error


def _of_s3(error: Any, path: str) -> Exception:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    found = error.response.get("Error", {})
    code, message = str(found.get("Code", "")), str(found.get("Message", ""))
    if code in _CONFLICTS:
        return OSError(errno.EBUSY, "it is being written by another run", path)
    return _of_status(int(status), f"{code} {message}".strip(), path)


def _of_status(status: int, found: str, path: str) -> Exception:
    said = f"the store answered {status} {found}".rstrip()[:_LONGEST_REASON]
    if status == 412:
        return OvertakenError(said)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if status in (401, 403):
        return PermissionError(errno.EACCES, said, path)
    if status in (408, 429) or status >= 500:
        return OSError(errno.EIO, said, path)
    return OSError(errno.EREMOTEIO, said, path)


@contextlib.contextmanager
def _bucket_stands(place: str) -> Iterator[None]:
    """Says what is missing where something was to be written."""
    try:
        yield
    except FileNotFoundError as error:
        raise _no_bucket(place) from error


def _no_bucket(place: str) -> FileNotFoundError:
    reason = "there is no such bucket, or not for these credentials"
    return FileNotFoundError(errno.ENOENT, reason, place)


class _Gcs:
    def __init__(self, bucket: str, parameters: dict[str, str]) -> None:
        import google.auth.credentials
        import google.cloud.storage as storage
        import google.cloud.storage.retry

        options: dict[str, Any] = {}
        if endpoint := gcs_endpoint(parameters):
            options["client_options"] = {"api_endpoint": _url(endpoint, parameters)}
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = os.environ.get("GOOGLE_CLOUD_PROJECT", "none")
        elif parameters.get("anonymous") == "true":
            options["credentials"] = google.auth.credentials.AnonymousCredentials()
            options["project"] = "none"
        self._bucket = storage.Client(**options).bucket(bucket)
        retry = google.cloud.storage.retry.DEFAULT_RETRY.with_timeout(_RETRY_SECONDS)
        timeout = (_CONNECT_SECONDS, _READ_SECONDS)
        self._patience: dict[str, Any] = {"timeout": timeout, "retry": retry}

    def version(self, key: str) -> str:
        """See `Client`."""
        with _gcs_errors(self._path(key)):
            found = self._bucket.get_blob(key, **self._patience)
        return "" if found is None else str(found.generation)

    def put_file(self, key: str, local: str) -> None:
        """See `Client`."""
        with _bucket_stands(self._path()), _gcs_errors(self._path(key)):
            self._bucket.blob(key).upload_from_filename(
                local, checksum="crc32c", **self._patience
            )

    def put(self, key: str, data: bytes) -> None:
        """See `Client`."""
        with _bucket_stands(self._path()), _gcs_errors(self._path(key)):
            self._bucket.blob(key).upload_from_string(
                data, checksum="crc32c", **self._patience
            )

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """See `Client`."""
        with _bucket_stands(self._path()), _gcs_errors(self._path(key)):
            self._bucket.blob(key).upload_from_string(
                data,
                checksum="crc32c",
                if_generation_match=int(version or 0),
                **self._patience,
            )

    def remove(self, key: str) -> None:
        """See `Client`."""
        with contextlib.suppress(FileNotFoundError), _gcs_errors(self._path(key)):
            self._bucket.blob(key).delete(**self._patience)

    def remove_below(self, folder: str) -> None:
        """See `Client`."""
        with _gcs_errors(self._path(folder)):
            found = self._bucket.list_blobs(prefix=f"{folder}/", **self._patience)
            keys = [blob.name for blob in found]
        with concurrent.futures.ThreadPoolExecutor(_REMOVED_AT_ONCE) as pool:
            for _ in pool.map(self.remove, keys):
                pass

    def list_in(self, folder: str) -> list[Listed] | None:
        """See `Client`: Arrow shows only folders that have an object of their own."""
        prefix = f"{folder}/" if folder else ""
        with _gcs_errors(self._path(folder)):
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

    def give_up_uploads(self, prefix: str) -> int:
        """None: what is not finished of them, Google's store forgets by itself."""
        return 0

    def _path(self, key: str = "") -> str:
        return f"gs://{self._bucket.name}/{key}".rstrip("/")


@contextlib.contextmanager
def _gcs_errors(path: str) -> Iterator[None]:
    import google.api_core.exceptions as api
    import google.auth.exceptions
    import requests

    try:
        yield
    except api.GoogleAPICallError as error:
        raise _of_status(int(error.code or 0), str(error.message), path) from error
    except google.auth.exceptions.GoogleAuthError as error:
        reason = str(error)[:_LONGEST_REASON]
        if error.retryable:
            raise OSError(errno.ECONNRESET, reason, path) from error
        raise PermissionError(errno.EACCES, reason, path) from error
    except (api.RetryError, requests.exceptions.RequestException) as error:
        reason = str(error)[:_LONGEST_REASON]
        raise OSError(errno.ECONNRESET, reason, path) from error
