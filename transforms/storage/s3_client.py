"""Amazon S3 and compatible stores, through boto3 (the extra `[s3]`)."""

import contextlib
import errno
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from transforms.storage.object_store import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Listed,
    Look,
    OvertakenError,
    age_of,
    naming_missing_bucket,
    no_bucket,
    of_status,
    reason_of,
    s3_endpoint,
    s3_region,
    url_of,
)
from transforms.storage.s3_reads import S3Reads

__all__ = ["S3Client", "s3_errors"]

# Larger files go up in parts, so that a failure costs one part.
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
_ATTEMPTS = 3
# The API's limit for one request.
_KEYS_A_REQUEST = 1000
# Another writer of the same object is ahead at this moment; try again.
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")


class S3Client:
    """See `transforms.storage.object_store.Client`."""

    def __init__(self, bucket: str, parameters: Mapping[str, str]) -> None:
        import boto3
        import botocore
        import botocore.config
        from boto3.s3.transfer import TransferConfig

        self._bucket = bucket
        self._place = f"s3://{bucket}"
        self._session = session = boto3.session.Session(
            aws_access_key_id=parameters.get("access_key"),
            aws_secret_access_key=parameters.get("secret_key"),
            aws_session_token=parameters.get("session_token"),
            region_name=parameters.get("region") or s3_region() or None,
        )
        config: dict[str, Any] = {}
        endpoint = s3_endpoint(parameters)
        if endpoint:
            endpoint = url_of(endpoint, parameters)
            # Few other servers have a host name for each bucket.
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
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                **config,
            ),
        )
        self._transfer = TransferConfig(
            multipart_threshold=_PART_BYTES,
            multipart_chunksize=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    @functools.cached_property
    def reads(self) -> S3Reads:
        """What reads objects with one request each."""
        return S3Reads(self._session, self._client, self._bucket)

    def look(self, key: str) -> Look:
        """See `Client`."""
        try:
            with s3_errors(self._path(key)):
                found = self._client.head_object(Bucket=self._bucket, Key=key)
        except FileNotFoundError:
            return Look()
        date = found["ResponseMetadata"]["HTTPHeaders"]["date"]
        return Look(str(found["ETag"]), age_of(found["LastModified"], date))

    def put_file(self, key: str, local: str) -> None:
        """See `Client`."""
        with naming_missing_bucket(self._path()), s3_errors(self._path(key)):
            self._client.upload_file(local, self._bucket, key, Config=self._transfer)

    def put(self, key: str, data: bytes) -> None:
        """See `Client`."""
        with naming_missing_bucket(self._path()), s3_errors(self._path(key)):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=data)

    def put_if(self, key: str, data: bytes, version: str) -> None:
        """See `Client`."""
        # Between a look and a plain write another run might write: the server decides.
        condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        try:
            with s3_errors(self._path(key)):
                self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=data, **condition
                )
        except FileNotFoundError as error:
            if not version:
                raise no_bucket(self._path()) from error
            # The object was removed, so no version matches.
            raise OvertakenError(key) from error

    def copy(self, key: str, to: str) -> None:
        """See `Client`."""
        with s3_errors(self._path(key)):
            self._client.copy(
                {"Bucket": self._bucket, "Key": key},
                self._bucket,
                to,
                Config=self._transfer,
            )

    def remove(self, key: str) -> None:
        """See `Client`."""
        with contextlib.suppress(FileNotFoundError), s3_errors(self._path(key)):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def remove_below(self, folder: str) -> None:
        """See `Client`."""
        with s3_errors(self._path(folder)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{folder}/"
            )
            keys = [each["Key"] for page in pages for each in page.get("Contents", ())]
            # Markers of folders go after their content: some servers insist.
            keys.sort(key=lambda key: (key.endswith("/"), -key.count("/")))
            for start in range(0, len(keys), _KEYS_A_REQUEST):
                named = [{"Key": key} for key in keys[start : start + _KEYS_A_REQUEST]]
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": named, "Quiet": True}
                )
                for failed in answer.get("Errors", ()):
                    status = 403 if failed["Code"] == "AccessDenied" else 500
                    found = f"{failed['Code']}: {failed.get('Message', '')}"
                    raise of_status(status, found, self._path(failed["Key"]))

    def list_in(self, folder: str) -> list[Listed] | None:
        """See `Client`."""
        return None

    def uploads(self, prefix: str) -> list[tuple[str, str]]:
        """See `Client`."""
        with s3_errors(self._path(prefix)):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            found = [each for page in pages for each in page.get("Uploads", ())]
        return [(each["Key"], each["UploadId"]) for each in found]

    def give_up(self, key: str, upload: str) -> None:
        """See `Client`."""
        with (
            s3_errors(self._path(key)),
            contextlib.suppress(self._client.exceptions.NoSuchUpload),
        ):
            self._client.abort_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=upload
            )

    def _path(self, key: str = "") -> str:
        return f"s3://{self._bucket}/{key}".rstrip("/")


@contextlib.contextmanager
def s3_errors(path: str) -> Iterator[None]:
    """Turns what boto3 raises about a path into an OSError or an OvertakenError."""
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
        reason = f"the upload failed: {reason_of(error)}"
        raise OSError(errno.EIO, reason, path) from error
    except botocore.exceptions.NoCredentialsError as error:
        raise PermissionError(errno.EACCES, str(error), path) from error
    except (
        botocore.exceptions.ConnectionError,
        botocore.exceptions.HTTPClientError,
        botocore.exceptions.IncompleteReadError,
    ) as error:
        # Refused, cut, or too slow.
        reason = reason_of(error)
        raise OSError(errno.ECONNRESET, reason, path) from error
    except botocore.exceptions.BotoCoreError as error:
        # Invalid settings.
        raise OSError(errno.EINVAL, reason_of(error), path) from error


def _of_s3(error: Any, path: str) -> Exception:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    found = error.response.get("Error", {})
    code, message = str(found.get("Code", "")), str(found.get("Message", ""))
    if code in _CONFLICTS:
        return OSError(errno.EBUSY, "it is being written by another run", path)
    if code == "NoSuchUpload":
        # `clean` or another run has aborted the upload in parts; it may begin again.
        return OSError(errno.EIO, "the upload was ended by somebody else", path)
    return of_status(int(status), f"{code} {message}".strip(), path)
