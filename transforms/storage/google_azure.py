"""Google Cloud Storage and Azure's Blob Storage, by their own clients.

The clients are extras of the installation: google-cloud-storage (`[gcs]`) and
azure-storage-blob (`[azure]`). Beside each is how Arrow reaches the store.
"""

import datetime
import errno
import os
import time
from typing import IO, Any

from transforms.storage.buckets import (
    CONNECT_SECONDS,
    READ_SECONDS,
    Bucket,
    Parameters,
    Reached,
    endpoint_of,
    look_of,
    setting_of,
)
from transforms.storage.paths import SECOND_NS, FileEntry
from transforms.storage.protocol import Look

_ENDPOINT = "STORAGE_EMULATOR_HOST"
# What the repetitions of Google's client may take in all. Those of Arrow's would add
# long pauses to ours: in so short a time there are none.
_RETRY_SECONDS = 5
_ARROW_RETRY = datetime.timedelta(seconds=0.1)
# Of Azure's client, also the time to send a block.
_CONNECT_SECONDS = 20
_BLOCK_BYTES = 4 << 20
_BLOCKS_AT_ONCE = 4
_COPY_LOOK_SECONDS = 0.5


class GcsBucket(Bucket):
    """See `Bucket`."""

    extra = "gcs"

    def __init__(self, place: str, parameters: Parameters) -> None:
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
        retry = google.cloud.storage.retry.DEFAULT_RETRY
        self._patience: dict[str, Any] = {
            "timeout": (CONNECT_SECONDS, READ_SECONDS),
            "retry": retry.with_timeout(_RETRY_SECONDS),
        }

    @staticmethod
    def connected(place: str, parameters: Parameters) -> Reached:
        """See `Bucket`."""
        import pyarrow.fs as pafs

        scheme, host = endpoint_of(parameters, _ENDPOINT)
        options: dict[str, Any] = {}
        if host:
            options |= {"endpoint_override": host, "scheme": scheme}
        if host or parameters.get("anonymous") == "true":
            options["anonymous"] = True
        system = pafs.GcsFileSystem(retry_time_limit=_ARROW_RETRY, **options)
        return system, place.partition("://")[2]

    def look(self, key: str) -> Look:
        """See `Bucket`."""
        blob = self._bucket.blob(key)
        blob.reload(**self._patience)
        return look_of(str(blob.generation), blob.updated)

    def put(self, key: str, file: IO[bytes], size: int, version: str | None) -> None:
        """See `Bucket`."""
        generation = None if version is None else int(version or 0)
        self._bucket.blob(key).upload_from_file(
            file,
            size=size,
            checksum="crc32c",
            if_generation_match=generation,
            **self._patience,
        )

    def copy(self, key: str, to: str) -> None:
        """See `Bucket`."""
        source, target = self._bucket.blob(key), self._bucket.blob(to)
        token, _, _ = target.rewrite(source, **self._patience)
        while token is not None:
            # A large object is copied by several requests.
            token, _, _ = target.rewrite(source, token=token, **self._patience)

    def _remove(self, key: str) -> None:
        self._bucket.blob(key).delete(**self._patience)

    def _keys_below(self, prefix: str) -> list[str]:
        blobs = self._bucket.list_blobs(prefix=prefix, **self._patience)
        return [blob.name for blob in blobs]

    def list_in(self, folder: str) -> list[FileEntry]:
        """Returns what is in a folder; Arrow shows only those that are objects, too."""
        prefix, top = f"{folder}/" if folder else "", self.path(folder)
        pages = self._bucket.list_blobs(prefix=prefix, delimiter="/", **self._patience)
        blobs = list(pages)
        out = [
            FileEntry(f"{top}/{name.removeprefix(prefix)[:-1]}", is_folder=True)
            for name in set(pages.prefixes)
        ]
        for blob in blobs:
            name = blob.name.removeprefix(prefix)
            if name and not name.endswith("/"):
                seconds = int(blob.updated.timestamp()) if blob.updated else 0
                path, size = f"{top}/{name}", blob.size or 0
                out.append(FileEntry(path, size, seconds * SECOND_NS))
        return out


class AzureBucket(Bucket):
    """See `Bucket`. Accounts may have folders that stay when they are empty.

    A place is `abfs://container[@account.host]`. Without a key and a token both clients
    ask for a login as Azure's own programs do.
    """

    extra = "azure"
    flat = False

    def __init__(self, place: str, parameters: Parameters) -> None:
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

    @staticmethod
    def connected(place: str, parameters: Parameters) -> Reached:
        """See `Bucket`."""
        import pyarrow.fs as pafs

        account = _Account(parameters, place)
        options: dict[str, Any] = dict(account.credentials)
        for kind, authority in zip(("blob", "dfs"), account.authorities, strict=True):
            if authority:
                options[f"{kind}_storage_authority"] = authority
            options[f"{kind}_storage_scheme"] = account.scheme
        system = pafs.AzureFileSystem(account_name=account.name, **options)
        return system, account.container

    def look(self, key: str) -> Look:
        """See `Bucket`."""
        properties = self._container.get_blob_client(key).get_blob_properties()
        return look_of(str(properties.etag), properties.last_modified)

    def put(self, key: str, file: IO[bytes], size: int, version: str | None) -> None:
        """See `Bucket`; the store removes parts that were not put together."""
        condition: dict[str, Any] = {"overwrite": version != ""}
        if version:
            condition |= {"etag": version, "match_condition": self._same}
        self._container.get_blob_client(key).upload_blob(
            file,
            length=size,
            # With a checksum of each part.
            validate_content=True,
            max_concurrency=_BLOCKS_AT_ONCE,
            **condition,
        )

    def copy(self, key: str, to: str) -> None:
        """See `Bucket`."""
        source = self._container.get_blob_client(key)
        target = self._container.get_blob_client(to)
        status: Any = target.start_copy_from_url(source.url)["copy_status"]
        while status == "pending":
            time.sleep(_COPY_LOOK_SECONDS)
            status = target.get_blob_properties().copy.status
        if status != "success":
            raise OSError(errno.EIO, f"the copy has ended: {status}", self.path(to))

    def _remove(self, key: str) -> None:
        self._container.delete_blob(key)

    def _keys_below(self, prefix: str) -> list[str]:
        return [*self._container.list_blob_names(name_starts_with=prefix)]


class _Account:
    """What a path and the environment say of an account of Azure.

    Attributes:
      container: of the path.
      name: of the account.
      credentials: `account_key` or `sas_token` with its value, or nothing.
      authorities: the server's addresses for blobs and for folders, or what comes
        behind the account's name; "" for Azure's own.
      scheme: http or https.
      url: the address of the account, as Arrow makes it of these.
    """

    def __init__(self, parameters: Parameters, place: str) -> None:
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
        blobs = parameters.get("blob_storage_authority", "")
        folders = parameters.get("dfs_storage_authority") or blobs
        if domain := suffix.partition(".")[2]:
            blobs, folders = blobs or f".blob.{domain}", folders or f".dfs.{domain}"
        self.authorities = blobs, folders
        self.scheme = "http" if parameters.get("enable_tls") == "false" else "https"
        blobs = blobs or ".blob.core.windows.net"
        at = f"{self.name}{blobs}" if blobs[0] == "." else f"{blobs}/{self.name}"
        self.url = f"{self.scheme}://{at}"
