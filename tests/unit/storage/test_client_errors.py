"""What the errors of stores' clients mean, by their classes and answers alone."""

import errno
from typing import Any

import pyarrow.fs as pafs
import pytest

from transforms.errors import StorageError
from transforms.storage import retry, stores
from transforms.storage.buckets import HdfsBucket
from transforms.storage.files import storage
from transforms.storage.retry import OvertakenError, client_errors, is_transient
from transforms.storage.s3 import S3Bucket

_HTTP = "azure.core.exceptions.AzureError azure.core.exceptions.HttpResponseError"


def raised(bases: str, **facts: Any) -> BaseException:
    """Returns what a client raises: an error of the last class, with attributes."""
    kind: type[BaseException] = Exception
    for name in bases.split():
        module, _, last = name.rpartition(".")
        kind = type(last, (kind,), {"__module__": module})
    error = kind("no; see https://host/key?sig=hush")
    for name, value in facts.items():
        setattr(error, name, value)
    return error


def of_s3(status: int, code: str) -> BaseException:
    facts = {"HTTPStatusCode": status}, {"Code": code, "Message": "told"}
    response = dict(zip(("ResponseMetadata", "Error"), facts, strict=True))
    return raised("botocore.exceptions.ClientError", response=response)


def of_azure(status: int | None, code: str, last: str = "") -> BaseException:
    facts = {"status_code": status, "error_code": code, "reason": "told"}
    return raised(f"{_HTTP} {last}", **facts)


def of_login(status: int | None) -> BaseException:
    # It has no code: no store has answered.
    names = (
        "azure.core.exceptions.ClientAuthenticationError "
        "azure.identity.CredentialUnavailableError"
    )
    return raised(f"{_HTTP} {names}", status_code=status, reason="told")


def of_google(status: int) -> BaseException:
    kinds = "GoogleAPICallError", "ClientError"
    names = " ".join(f"google.api_core.exceptions.{kind}" for kind in kinds)
    return raised(names, code=status, message="told")


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (of_s3(404, "NoSuchKey"), errno.ENOENT),
        (of_s3(404, "NoSuchUpload"), errno.EIO),
        (of_s3(403, "AccessDenied"), errno.EACCES),
        (of_s3(409, "ConditionalRequestConflict"), errno.EBUSY),
        (of_s3(409, "BucketNotEmpty"), errno.EREMOTEIO),
        (of_s3(503, "SlowDown"), errno.EIO),
        (of_google(429), errno.EIO),
        (of_google(404), errno.ENOENT),
        (of_azure(400, "InvalidBlockList"), errno.EIO),
        (of_azure(400, "InvalidInput"), errno.EREMOTEIO),
        (of_azure(None, ""), errno.EIO),
        (
            of_azure(None, "", "azure.core.exceptions.ClientAuthenticationError"),
            errno.EACCES,
        ),
        (of_login(None), errno.EACCES),
        (of_login(400), errno.EACCES),
        (raised(_HTTP, status_code=503, reason="told"), errno.EIO),
        (raised(_HTTP, status_code=400, reason="told"), errno.EREMOTEIO),
        (raised("botocore.exceptions.BotoCoreError"), errno.EINVAL),
        (
            raised(
                "botocore.exceptions.BotoCoreError botocore.exceptions.ConnectionError"
            ),
            errno.EIO,
        ),
        (raised("google.auth.exceptions.GoogleAuthError"), errno.EACCES),
        (
            raised("google.auth.exceptions.GoogleAuthError", retryable=True),
            errno.EIO,
        ),
        (raised("requests.exceptions.RequestException"), errno.EIO),
    ],
    ids=repr,
)
def test_numbers(error: BaseException, number: int) -> None:
    """What may pass is transient; no message has what comes behind an address."""
    with pytest.raises(OSError, match="b/k") as caught, client_errors("s3://b/k"):
        raise error
    assert (caught.value.errno, caught.value.filename) == (number, "s3://b/k")
    assert is_transient(caught.value) is (number in (errno.EIO, errno.EBUSY))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "error", [of_s3(412, "PreconditionFailed"), of_azure(409, "BlobAlreadyExists")]
)
def test_overtaken(error: BaseException) -> None:
    """A condition that does not hold is no failure of the store."""
    with pytest.raises(OvertakenError), client_errors("s3://b/k"):
        raise error


def test_errors_of_others() -> None:
    """They pass as they are."""
    with pytest.raises(KeyError), client_errors("s3://b/k"):
        raise KeyError("mine")


def test_a_store_that_pyarrow_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build of Arrow without the store is an error that names the place."""

    def lacking(*_: object) -> None:
        raise ImportError("no S3FileSystem")

    monkeypatch.setattr(S3Bucket, "connected", lacking)
    with pytest.raises(OSError, match="S3FileSystem") as caught:
        storage("s3://lacking/a").is_file()
    assert (caught.value.errno, caught.value.filename) == (
        errno.ENOSYS,
        "s3://lacking",
    )


def test_a_folder_that_is_gone_is_no_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """HDFS, as any tree of files, says which file is not there."""
    bucket = HdfsBucket("hdfs://host", "", pafs.LocalFileSystem())
    monkeypatch.setattr(stores, "client_of", lambda *_: bucket)
    with pytest.raises(FileNotFoundError, match="no/such") as caught:
        storage("hdfs://host/no/such/folder/a").put_if(b"", "")
    assert "bucket" not in str(caught.value)


def test_a_place_that_is_asked_again_and_again_gets_patience_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half a minute after it was given up it has second tries, whoever asks."""
    clock, tries = [1000.0], [0]

    def work() -> None:
        tries[0] += 1
        raise OSError(errno.EIO, "down")

    def asked_at(seconds: float) -> int:
        clock[0], tries[0] = 1000 + seconds, 0
        with pytest.raises(StorageError):
            retry.asked("s3://down/key", work)
        return tries[0]

    monkeypatch.setattr(retry, "_shunned_until", {})
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    first = asked_at(0)
    assert first > 1
    assert [asked_at(20), asked_at(40)] == [1, first]
