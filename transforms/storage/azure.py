"""Azure's Blob Storage, by its own client (the extra `[azure]`).

A place is `abfs://container[@account.host]`. Without a key and a token both clients ask
for a login as Azure's own programs do.
"""

import concurrent.futures
import contextlib
import errno
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from transforms.storage.buckets import READ_SECONDS, Bucket, age_of, setting_of
from transforms.storage.entries import Look, OvertakenError
from transforms.storage.retry import of_status, reason_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

# The time to send a block counts for that, too.
_CONNECT_SECONDS = 20
_BLOCK_BYTES = 4 << 20
_BLOCKS_AT_ONCE = 4
_REMOVED_AT_ONCE = 8
_COPY_LOOK_SECONDS = 0.5


class _Account:
    """What a path and the environment say of an account.

    Attributes:
      name: of the account.
      container: of the path.
      credentials: `account_key` or `sas_token` with its value, or nothing.
      authority: the server's address, or what comes behind the account's name; "" for
        Azure's own.
      scheme: http or https.
    """

    def __init__(self, parameters: Mapping[str, str], place: str) -> None:
        self.container, _, host = place.partition("://")[2].partition("@")
        name, _, suffix = host.partition(".")
        account = ("AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME")
        key = ("AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY")
        self.name = name or setting_of(parameters, "account_name", *account)
        if not self.name:
            raise ValueError(
                "it must name an account, as in abfs://container@account.dfs.core."
                "windows.net/folder, or AZURE_STORAGE_ACCOUNT must"
            )
        self.credentials: dict[str, str] = {}
        if secret := setting_of(parameters, "account_key", *key):
            self.credentials["account_key"] = secret
        elif token := setting_of(parameters, "sas_token", "AZURE_STORAGE_SAS_TOKEN"):
            self.credentials["sas_token"] = token
        self.authority = parameters.get("blob_storage_authority", "")
        domain = suffix.partition(".")[2]
        self.dfs_authority = parameters.get("dfs_storage_authority") or self.authority
        if domain:
            self.authority = self.authority or f".blob.{domain}"
            self.dfs_authority = self.dfs_authority or f".dfs.{domain}"
        self.scheme = "http" if parameters.get("enable_tls") == "false" else "https"

    @property
    def url(self) -> str:
        """The address of the account, as Arrow makes it of these."""
        authority = self.authority or ".blob.core.windows.net"
        if authority.startswith("."):
            return f"{self.scheme}://{self.name}{authority}"
        return f"{self.scheme}://{authority}/{self.name}"


def connected(
    parameters: Mapping[str, str], place: str
) -> tuple["pafs.FileSystem", str]:
    """Returns the store as Arrow reaches it, and the container."""
    import pyarrow.fs as pafs

    account = _Account(parameters, place)
    options: dict[str, Any] = dict(account.credentials)
    if account.authority:
        options["blob_storage_authority"] = account.authority
        options["dfs_storage_authority"] = account.dfs_authority
    if account.scheme == "http":
        options["blob_storage_scheme"] = options["dfs_storage_scheme"] = "http"
    system = pafs.AzureFileSystem(account_name=account.name, **options)
    return system, account.container


@contextlib.contextmanager
def azure_errors(path: str) -> Iterator[None]:
    """See `Bucket.errors`."""
    import azure.core.exceptions as core

    try:
        yield
    except core.ClientAuthenticationError as error:
        raise PermissionError(errno.EACCES, _reason(error), path) from error
    except core.HttpResponseError as error:
        raise _of_azure(error, path) from error
    except core.AzureError as error:
        # Refused, cut, or too slow.
        raise OSError(errno.ECONNRESET, _reason(error), path) from error


def _reason(error: Exception) -> str:
    # Addresses in it may end with a token.
    return reason_of(error).partition("?")[0]


def _of_azure(error: Any, path: str) -> Exception:
    code = getattr(error, "error_code", None) or ""
    code = str(getattr(code, "value", code))
    if code == "BlobAlreadyExists":
        return OvertakenError(path)
    if code == "InvalidBlockList":
        # Another run has put the same object, which ends the parts of this one.
        return OSError(errno.EIO, "the upload was ended by somebody else", path)
    return of_status(int(error.status_code or 0), f"{code} {error.reason}", path)


class AzureBucket(Bucket):
    """See `Bucket`. Accounts may have folders that stay when they are empty."""

    errors = staticmethod(azure_errors)
    flat = False

    def __init__(self, place: str, parameters: Mapping[str, str]) -> None:
        from azure.core import MatchConditions
        from azure.storage.blob import BlobServiceClient

        self.place = place
        self._same = MatchConditions.IfNotModified
        account = _Account(parameters, place)
        credential: Any = account.credentials.get("sas_token")
        if key := account.credentials.get("account_key"):
            credential = {"account_name": account.name, "account_key": key}
        elif credential is None:
            from azure.identity import DefaultAzureCredential

            credential = DefaultAzureCredential()
        self._container = BlobServiceClient(
            account.url,
            credential,
            connection_timeout=_CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            # `asked` repeats, and says so.
            retry_total=0,
            max_single_put_size=_BLOCK_BYTES,
            max_block_size=_BLOCK_BYTES,
        ).get_container_client(account.container)

    def look(self, key: str) -> Look:
        """See `Bucket`."""
        try:
            with azure_errors(self.path(key)):
                blob = self._container.get_blob_client(key)
                properties = blob.get_blob_properties()
        except FileNotFoundError:
            return Look()
        return Look(str(properties.etag), age_of(properties.last_modified))

    def put(self, key: str, data: bytes, version: str | None = None) -> None:
        """See `Bucket`."""
        condition: dict[str, Any] = {"overwrite": version != ""}
        if version:
            condition |= {"etag": version, "match_condition": self._same}
        self._upload(key, data, **condition)

    def put_file(self, key: str, local: str, *, new: bool = False) -> None:
        """See `Bucket`; the store removes parts that were not put together."""
        with open(local, "rb") as file:
            self._upload(key, file, overwrite=not new, max_concurrency=_BLOCKS_AT_ONCE)

    def _upload(self, key: str, data: Any, **options: Any) -> None:
        with self.naming_missing(), azure_errors(self.path(key)):
            # With a checksum of each part.
            blob = self._container.get_blob_client(key)
            blob.upload_blob(data, validate_content=True, **options)

    def copy(self, key: str, to: str) -> None:
        """See `Bucket`."""
        source = self._container.get_blob_client(key)
        target = self._container.get_blob_client(to)
        with azure_errors(self.path(key)):
            status: Any = target.start_copy_from_url(source.url)["copy_status"]
            while status == "pending":
                time.sleep(_COPY_LOOK_SECONDS)
                status = target.get_blob_properties().copy.status
        if status != "success":
            raise OSError(errno.EIO, f"the copy has ended: {status}", self.path(to))

    def remove(self, key: str) -> None:
        """See `Bucket`."""
        with contextlib.suppress(FileNotFoundError), azure_errors(self.path(key)):
            self._container.delete_blob(key)

    def remove_below(self, folder: str) -> None:
        """See `Bucket`; the folders go, too."""
        with azure_errors(self.path(folder)):
            names = [*self._container.list_blob_names(name_starts_with=f"{folder}/")]
        # Folders that are blobs go after what is in them.
        levels: dict[int, list[str]] = {}
        for name in (*names, folder):
            levels.setdefault(name.count("/"), []).append(name)
        with concurrent.futures.ThreadPoolExecutor(_REMOVED_AT_ONCE) as pool:
            for _, level in sorted(levels.items(), reverse=True):
                for _ in pool.map(self.remove, level):
                    pass
