"""Reads of objects in S3 with one request, whose answer says what it is of.

Arrow asks for an object's size and time (HEAD) before it reads; the answer to the read
(GET) states them, too, of the very bytes that it holds:

    Content-Length or Content-Range   the object's size
    Last-Modified                     when it was written

A request is made and signed here, without the client that boto3 makes of the service's
model: that costs more than twice as much as all else.
"""

import contextlib
import email.utils
import urllib.parse
from typing import Any

from transforms.storage.file_systems import CONNECTIONS
from transforms.storage.object_store import CONNECT_SECONDS, READ_SECONDS

__all__ = ["Read", "S3Reads"]

# bytes, size of the object, seconds since 1970 when it was written
Read = tuple[bytes, int, int]
# After as many failures in a row, nothing is read in this way any more.
_MOST_FAILURES = 8


class S3Reads:
    """Reads of the objects of one bucket."""

    def __init__(self, session: Any, client: Any, bucket: str) -> None:
        """Takes what finds credentials, and what knows where the bucket is.

        Args:
          session: a `boto3.session.Session`.
          client: boto3's client of S3.
          bucket: its name.
        """
        import botocore
        import botocore.httpsession
        import botocore.session
        import botocore.utils

        url = client.generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": "k"}
        )
        # With the bucket in the host or in the path, as this store has it.
        self._base = url.partition("?")[0].removesuffix("k")
        self._region = client.meta.region_name
        signed = client.meta.config.signature_version is not botocore.UNSIGNED
        self._credentials = session.get_credentials() if signed else None
        self._failures = _MOST_FAILURES if signed and not self._credentials else 0
        bundle = botocore.session.get_session().get_config_variable("ca_bundle")
        self._http = botocore.httpsession.URLLib3Session(
            verify=bundle or True,
            proxies=botocore.utils.get_environ_proxies(self._base),
            timeout=(CONNECT_SECONDS, READ_SECONDS),
            max_pool_connections=CONNECTIONS,
        )

    def read(
        self, key: str, part: tuple[int, int] | None = None, limit: int | None = None
    ) -> Read | None:
        """Reads an object; None where that fails: who asks in another way finds why.

        Args:
          key: of the object.
          part: the first byte, and the one after the last; None for all.
          limit: of an object that has more bytes, none are read.
        """
        import botocore.exceptions
        import urllib3.exceptions

        if self._failures >= _MOST_FAILURES:
            return None
        found = None
        failures = botocore.exceptions.BotoCoreError, urllib3.exceptions.HTTPError
        with contextlib.suppress(*failures, LookupError, OSError, ValueError):
            found = _read(self._answer(key, part), part, limit)
        self._failures = self._failures + 1 if found is None else 0
        return found

    def _answer(self, key: str, part: tuple[int, int] | None) -> Any:
        """Asks for an object; its bytes are still to be read."""
        import botocore.auth
        import botocore.awsrequest

        url = self._base + urllib.parse.quote(key, safe="/~")
        request = botocore.awsrequest.AWSRequest("GET", url, stream_output=True)
        if part is not None:
            request.headers["Range"] = f"bytes={part[0]}-{part[1] - 1}"
        if self._credentials is not None:
            # They may have been renewed.
            now = self._credentials.get_frozen_credentials()
            botocore.auth.S3SigV4Auth(now, "s3", self._region).add_auth(request)
        return self._http.send(request.prepare())


def _read(answer: Any, part: tuple[int, int] | None, limit: int | None) -> Read | None:
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
    wanted = min(stop, size) - start
    return (data, size, modified) if len(data) == wanted == length else None
