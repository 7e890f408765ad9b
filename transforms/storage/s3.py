"""Amazon S3 and compatible stores, through boto3 (the extra `[s3]`).

Arrow asks for an object's size and time (HEAD) before it reads; the answer to the read
(GET) states them, too, of the very bytes that it holds:

    Content-Length or Content-Range   the object's size
    Last-Modified                     when it was written

A request is made and signed here, without the client that boto3 makes of the service's
model: that costs more than twice as much as all else.
"""

import concurrent.futures
import contextlib
import email.utils
import errno
import functools
import os
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from transforms.storage.buckets import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Bucket,
    Upload,
    age_of,
    endpoint_of,
    setting_of,
)
from transforms.storage.entries import Look, OvertakenError
from transforms.storage.read_ahead import CONNECTIONS
from transforms.storage.retry import of_status, reason_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_ATTEMPTS = 3
# Larger files go up in parts, so that a failure costs one part.
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
# The API's limit for one request.
_KEYS_A_REQUEST = 1000
# Another writer of the same object is ahead at this moment; try again.
_CONFLICTS = ("ConditionalRequestConflict", "OperationAborted")
# bytes, size of the object, seconds since 1970 when it was written
_Read = tuple[bytes, int, int]
# After as many failures in a row, nothing is read in this way any more.
_MOST_FAILURES = 8


def connected(parameters: Mapping[str, str], bucket: str) -> "pafs.S3FileSystem":
    """Returns the store as Arrow reaches it."""
    import pyarrow as pa
    import pyarrow.fs as pafs

    # Its client opens as many connections as Arrow has threads, or 25: who reads from
    # more threads of his own would wait for one.
    pa.set_io_thread_count(max(pa.io_thread_count(), CONNECTIONS))
    scheme, host = endpoint_of(parameters, *_ENDPOINT)
    options: dict[str, Any] = {
        name: parameters[name]
        for name in ("access_key", "secret_key", "session_token", "region")
        if name in parameters
    }
    if parameters.get("anonymous") == "true":
        options["anonymous"] = True
    if host:
        options["endpoint_override"] = host
        options["scheme"] = scheme
    elif not setting_of(parameters, "region", *_REGION):
        # Nobody says where the bucket is; Amazon does.
        with contextlib.suppress(OSError):
            options["region"] = pafs.resolve_s3_region(bucket)
    return pafs.S3FileSystem(
        connect_timeout=CONNECT_SECONDS, request_timeout=READ_SECONDS, **options
    )


def _read(answer: Any, part: tuple[int, int] | None, limit: int | None) -> _Read | None:
    """Returns what an answer says; None where that is not what was asked for."""
    if answer.status_code != (200 if part is None else 206):
        answer.raw.close()
        return None
    size = length = int(answer.headers["Content-Length"])
    if part is not None:
        # bytes 0-99/1234
        size = int(answer.headers["Content-Range"].rpartition("/")[2])
    written = email.utils.parsedate_to_datetime(answer.headers["Last-Modified"])
    modified = int(written.timestamp())
    if limit is not None and size > limit:
        answer.raw.close()
        return b"", size, modified
    data: bytes = answer.raw.read()
    start, stop = (0, size) if part is None else part
    expected = min(stop, size) - start
    return (data, size, modified) if len(data) == expected == length else None


@contextlib.contextmanager
def s3_errors(path: str) -> Iterator[None]:
    """See `Bucket.errors`."""
    import boto3.exceptions
    import botocore.exceptions

    try:
        yield
    except botocore.exceptions.ClientError as error:
        raise _of_s3(error, path) from error
    except boto3.exceptions.S3UploadFailedError as error:
        cause = error.__cause__ or error.__context__
        if isinstance(cause, botocore.exceptions.ClientError):
            raise _of_s3(cause, path) from error
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
    details = error.response.get("Error", {})
    code, message = str(details.get("Code", "")), str(details.get("Message", ""))
    if code in _CONFLICTS:
        return OSError(errno.EBUSY, "it is being written by another run", path)
    if code == "NoSuchUpload":
        # `clean` or another run has aborted the upload in parts; it may begin again.
        return OSError(errno.EIO, "the upload was ended by somebody else", path)
    return of_status(int(status), f"{code} {message}".strip(), path)


class S3Bucket(Bucket):
    """See `Bucket`."""

    errors = staticmethod(s3_errors)

    def __init__(self, place: str, parameters: Mapping[str, str]) -> None:
        import boto3
        import botocore
        import botocore.config
        from boto3.s3.transfer import TransferConfig

        self.place = place
        self._bucket = place.removeprefix("s3://")
        session = boto3.session.Session(
            aws_access_key_id=parameters.get("access_key"),
            aws_secret_access_key=parameters.get("secret_key"),
            aws_session_token=parameters.get("session_token"),
            region_name=setting_of(parameters, "region", *_REGION) or None,
        )
        config: dict[str, Any] = {}
        scheme, host = endpoint_of(parameters, *_ENDPOINT)
        # Few other servers have a host name for each bucket.
        if host and not host.rstrip("/").endswith(_AMAZON):
            config["s3"] = {"addressing_style": "path"}
        if parameters.get("anonymous") == "true":
            config["signature_version"] = botocore.UNSIGNED
        self._client = session.client(
            "s3",
            region_name=session.region_name or "us-east-1",
            endpoint_url=f"{scheme}://{host}" if host else None,
            config=botocore.config.Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                **config,
            ),
        )
        signed = "signature_version" not in config
        self._credentials = session.get_credentials() if signed else None
        # Requests in a row that have failed; see `fetch`.
        self._failures = _MOST_FAILURES if signed and not self._credentials else 0
        self._transfer = TransferConfig(
            multipart_threshold=_PART_BYTES,
            multipart_chunksize=_PART_BYTES,
            max_concurrency=_PARTS_AT_ONCE,
        )

    @functools.cached_property
    def _unsigned(self) -> tuple[str, Any]:
        """The address that keys follow, and what sends requests."""
        import botocore.httpsession
        import botocore.session
        import botocore.utils

        url = self._client.generate_presigned_url(
            "get_object", Params={"Bucket": self._bucket, "Key": "k"}
        )
        # With the bucket in the host or in the path, as this store has it.
        base = url.partition("?")[0].removesuffix("k")
        bundle = botocore.session.get_session().get_config_variable("ca_bundle")
        return base, botocore.httpsession.URLLib3Session(
            verify=bundle or True,
            proxies=botocore.utils.get_environ_proxies(base),
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            max_pool_connections=CONNECTIONS,
        )

    def fetch(
        self, key: str, part: tuple[int, int] | None, limit: int | None
    ) -> _Read | None:
        """See `Bucket`; None also where it fails: Arrow finds why."""
        import botocore.exceptions
        import urllib3.exceptions

        if self._failures >= _MOST_FAILURES:
            return None
        answer = None
        failures = botocore.exceptions.BotoCoreError, urllib3.exceptions.HTTPError
        with contextlib.suppress(*failures, LookupError, OSError, ValueError):
            answer = _read(self._answer(key, part), part, limit)
        self._failures = self._failures + 1 if answer is None else 0
        return answer

    def _answer(self, key: str, part: tuple[int, int] | None) -> Any:
        """Asks for an object; its bytes are still to be read."""
        import botocore.auth
        import botocore.awsrequest

        base, http = self._unsigned
        url = base + urllib.parse.quote(key, safe="/~")
        request = botocore.awsrequest.AWSRequest("GET", url, stream_output=True)
        if part is not None:
            request.headers["Range"] = f"bytes={part[0]}-{part[1] - 1}"
        if self._credentials is not None:
            # They may have been renewed.
            now = self._credentials.get_frozen_credentials()
            region = self._client.meta.region_name
            botocore.auth.S3SigV4Auth(now, "s3", region).add_auth(request)
        return http.send(request.prepare())

    def look(self, key: str) -> Look:
        """See `Bucket`."""
        try:
            with s3_errors(self.path(key)):
                head = self._client.head_object(Bucket=self._bucket, Key=key)
        except FileNotFoundError:
            return Look()
        return Look(str(head["ETag"]), age_of(head["LastModified"]))

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """See `Bucket`."""
        with open(local, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size <= _PART_BYTES:
                self.put(key, file.read(), "" if new else None)
                return
            with self.naming_missing(), s3_errors(self.path(key)):
                self._put_parts(key, file.fileno(), size, new=new)

    def _put_parts(self, key: str, file: int, size: int, *, new: bool) -> None:
        """Uploads a large file in parts, a few at a time; boto3 knows no condition."""
        condition = {"IfNoneMatch": "*"} if new else {}
        named = {"Bucket": self._bucket, "Key": key}
        upload = self._client.create_multipart_upload(**named)["UploadId"]

        def put(start: int) -> dict[str, Any]:
            number = start // _PART_BYTES + 1
            body = os.pread(file, _PART_BYTES, start)
            answer = self._client.upload_part(
                **named, UploadId=upload, PartNumber=number, Body=body
            )
            return {"PartNumber": number, "ETag": answer["ETag"]}

        try:
            with concurrent.futures.ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
                parts = [*pool.map(put, range(0, size, _PART_BYTES))]
            self._client.complete_multipart_upload(
                **named, UploadId=upload, MultipartUpload={"Parts": parts}, **condition
            )
        except BaseException:
            with contextlib.suppress(Exception):
                self._client.abort_multipart_upload(**named, UploadId=upload)
            raise

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """See `Bucket`."""
        # Between a look and a plain write another run might write: the server decides.
        condition = {}
        if version is not None:
            condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        try:
            with s3_errors(self.path(key)):
                self._client.put_object(
                    Bucket=self._bucket, Key=key, Body=data, **condition
                )
        except FileNotFoundError as error:
            if not version:
                raise self.no_bucket() from error
            # The object was removed, so no version matches.
            raise OvertakenError(key) from error

    def copy(self, key: str, to: str) -> None:
        """See `Bucket`."""
        with s3_errors(self.path(key)):
            self._client.copy(
                {"Bucket": self._bucket, "Key": key},
                self._bucket,
                to,
                Config=self._transfer,
            )

    def remove(self, key: str) -> None:
        """See `Bucket`."""
        with contextlib.suppress(FileNotFoundError), s3_errors(self.path(key)):
            self._client.delete_object(Bucket=self._bucket, Key=key)

    def remove_below(self, folder: str) -> None:
        """See `Bucket`."""
        with s3_errors(self.path(folder)):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{folder}/"
            )
            keys = [obj["Key"] for page in pages for obj in page.get("Contents", ())]
            # Markers of folders go after their content: some servers insist.
            keys.sort(key=lambda key: (key.endswith("/"), -key.count("/")))
            for start in range(0, len(keys), _KEYS_A_REQUEST):
                named = [{"Key": key} for key in keys[start : start + _KEYS_A_REQUEST]]
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": named, "Quiet": True}
                )
                for failed in answer.get("Errors", ()):
                    status = 403 if failed["Code"] == "AccessDenied" else 500
                    reason = f"{failed['Code']}: {failed.get('Message', '')}"
                    raise of_status(status, reason, self.path(failed["Key"]))

    def uploads(self, prefix: str) -> list[Upload]:
        """See `Bucket`."""
        with s3_errors(self.path(prefix)):
            pages = self._client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self._bucket, Prefix=prefix
            )
            uploads = [upload for page in pages for upload in page.get("Uploads", ())]
        return [
            Upload(upload["Key"], upload["UploadId"], upload["Initiated"].timestamp())
            for upload in uploads
        ]

    def give_up(self, key: str, upload: str) -> None:
        """See `Bucket`."""
        with (
            s3_errors(self.path(key)),
            contextlib.suppress(self._client.exceptions.NoSuchUpload),
        ):
            self._client.abort_multipart_upload(
                Bucket=self._bucket, Key=key, UploadId=upload
            )
