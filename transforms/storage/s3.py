"""Amazon S3 and compatible stores, through boto3 (the extra `[s3]`).

Arrow asks for an object's size and time (HEAD) before it reads; the answer to the read
(GET) states them, too, of the very bytes that it holds: `Content-Length` or
`Content-Range`, and `Last-Modified`. So reads are requests that are made and signed
here, without the client that boto3 makes of the service's model: that costs more than
twice as much as all else.
"""

import concurrent.futures
import contextlib
import email.utils
import functools
import os
import urllib.parse
from collections.abc import Mapping
from typing import IO, Any

from transforms.storage.buckets import (
    CONNECT_SECONDS,
    CONNECTIONS,
    READ_SECONDS,
    Bucket,
    Parameters,
    Reached,
    endpoint_of,
    look_of,
    setting_of,
)
from transforms.storage.paths import SECOND_NS
from transforms.storage.protocol import Look

_ENDPOINT = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION = ("AWS_REGION", "AWS_DEFAULT_REGION")
_AMAZON = (".amazonaws.com", ".amazonaws.com.cn")
_ATTEMPTS = 3
# Larger files go up in parts, so that a failure costs one part.
_PART_BYTES = 16 << 20
_PARTS_AT_ONCE = 4
# After as many failures in a row, nothing is read in the way of `fetch` any more.
_MOST_FAILURES = 8
# Bytes, size of the object, and when it was written, as `FileEntry.modified_ns`.
_Read = tuple[bytes, int, int]


class S3Bucket(Bucket):
    """See `Bucket`."""

    extra = "s3"

    def __init__(self, place: str, parameters: Parameters) -> None:
        import boto3
        import botocore
        import botocore.config

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
        signed = parameters.get("anonymous") != "true"
        if not signed:
            config["signature_version"] = botocore.UNSIGNED
        self._client = session.client(
            "s3",
            region_name=session.region_name or "us-east-1",
            endpoint_url=f"{scheme}://{host}" if host else None,
            config=botocore.config.Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                max_pool_connections=CONNECTIONS,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                **config,
            ),
        )
        self._credentials = session.get_credentials() if signed else None
        # Requests in a row that have failed; see `fetch`.
        self._failures = _MOST_FAILURES if signed and not self._credentials else 0

    @staticmethod
    def connected(place: str, parameters: Parameters) -> Reached:
        """See `Bucket`."""
        import pyarrow as pa
        import pyarrow.fs as pafs

        bucket = place.removeprefix("s3://")
        # Its client opens as many connections as Arrow has threads, or 25: who reads
        # from more threads of his own would wait for one.
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
            options |= {"endpoint_override": host, "scheme": scheme}
        elif not setting_of(parameters, "region", *_REGION):
            # Nobody says where the bucket is; Amazon does.
            with contextlib.suppress(OSError):
                options["region"] = pafs.resolve_s3_region(bucket)
        system = pafs.S3FileSystem(
            connect_timeout=CONNECT_SECONDS, request_timeout=READ_SECONDS, **options
        )
        return system, bucket

    @functools.cached_property
    def _unsigned(self) -> tuple[str, Any]:
        """The address that keys follow, and what sends requests."""
        import botocore.httpsession
        import botocore.session
        import botocore.utils

        url = self._client.generate_presigned_url("get_object", Params=self._named("k"))
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
        """Reads an object with one request; None where it fails: Arrow finds why.

        Args:
          key: of the object.
          part: the first byte, and the one after the last; None for all.
          limit: of an object that has more bytes, none are read.
        """
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

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": key}

    def look(self, key: str) -> Look:
        """See `Bucket`."""
        head = self._client.head_object(**self._named(key))
        return look_of(str(head["ETag"]), head["LastModified"])

    def put(self, key: str, file: IO[bytes], size: int, version: str | None) -> None:
        """See `Bucket`."""
        # Between a look and a plain write another run might write: the server decides.
        condition = {}
        if version is not None:
            condition = {"IfMatch": version} if version else {"IfNoneMatch": "*"}
        if size <= _PART_BYTES:
            self._client.put_object(**self._named(key), Body=file.read(), **condition)
        else:
            self._put_parts(key, file.fileno(), size, condition)

    def _put_parts(
        self, key: str, file: int, size: int, condition: Mapping[str, str]
    ) -> None:
        """Uploads a large file in parts, a few at a time; boto3 knows no condition."""
        named = self._named(key)
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

    def copy(self, key: str, to: str) -> None:
        """See `Bucket`."""
        self._client.copy(self._named(key), self._bucket, to)

    def _remove(self, key: str) -> None:
        self._client.delete_object(**self._named(key))

    def _keys_below(self, prefix: str) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=prefix
        )
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]


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
    modified = int(written.timestamp()) * SECOND_NS
    if limit is not None and size > limit:
        answer.raw.close()
        return b"", size, modified
    data: bytes = answer.raw.read()
    start, stop = (0, size) if part is None else part
    expected = min(stop, size) - start
    return (data, size, modified) if len(data) == expected == length else None
