"""Real storage servers, one of each for a run, and a fresh bucket for each test."""

import concurrent.futures
import dataclasses
import datetime
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import google.auth.credentials
import google.cloud.storage
import pyarrow.fs as pafs
import pytest
from PIL import Image

from tests.support.segments import IN_FILES, program

_ROOT = Path(__file__).parents[2]
_RETRY_SECONDS = 5


def _script() -> ModuleType:
    """Loads `scripts/storage`, which has no ending."""
    loader = importlib.machinery.SourceFileLoader(
        "scripts_storage", str(_ROOT / "scripts" / "storage")
    )
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their own module up.
    sys.modules[loader.name] = module
    unwanted, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = unwanted
    return module


storage = _script()


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server, and a bucket of one test's own.

    Attributes:
      store: "s3" or "gcs".
      endpoint: its URL.
      bucket: empty at the test's begin.
      access_key: "" for a store that asks for none.
      secret_key: of the server as well.
    """

    store: str
    endpoint: str
    bucket: str
    access_key: str = ""
    secret_key: str = ""

    @property
    def url(self) -> str:
        """The bucket, as our commands are given it."""
        return f"{'s3' if self.store == 's3' else 'gs'}://{self.bucket}"

    def place(self, path: str) -> str:
        """A path in the bucket that says itself how the server is reached."""
        scheme, _, host = self.endpoint.partition("://")
        said = {"scheme": scheme, "endpoint_override": host}
        if self.store == "gcs":
            said["anonymous"] = "true"
        else:
            said |= {
                "access_key": self.access_key,
                "secret_key": self.secret_key,
                "region": "us-east-1",
            }
        return f"{self.url}/{path}?{urllib.parse.urlencode(said)}"

    def through(self, endpoint: str) -> "Server":
        """The same, reached at another endpoint: a `FaultProxy`'s."""
        return dataclasses.replace(self, endpoint=endpoint)

    def keys(self, prefix: str = "") -> list[str]:
        """The keys that begin so, with those that Arrow takes for folders."""
        if self.store == "gcs":
            return sorted(blob.name for blob in self._gcs.list_blobs(prefix=prefix))
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=prefix
        )
        return sorted(
            each["Key"] for page in pages for each in page.get("Contents", ())
        )

    def uploads(self) -> list[str]:
        """The keys of unfinished uploads in parts; Google's store has none to show."""
        if self.store == "gcs":
            return []
        found = self._s3.list_multipart_uploads(Bucket=self.bucket)
        return [each["Key"] for each in found.get("Uploads", ())]

    def read(self, key: str) -> bytes:
        """An object's bytes."""
        if self.store == "gcs":
            return bytes(self._gcs.blob(key).download_as_bytes())
        return bytes(self._s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def write(self, key: str, data: bytes) -> None:
        """Puts an object."""
        if self.store == "gcs":
            self._gcs.blob(key).upload_from_string(data)
        else:
            self._s3.put_object(Bucket=self.bucket, Key=key, Body=data)

    def write_tree(self, prefix: str, folder: Path) -> None:
        """Puts all files below a folder."""
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for _ in pool.map(
                lambda path: self.write(
                    f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes()
                ),
                paths,
            ):
                pass

    @property
    def _s3(self) -> Any:
        return _s3_client(self.endpoint, self.access_key, self.secret_key)

    @property
    def _gcs(self) -> Any:
        return _gcs_client(self.endpoint).bucket(self.bucket)

    @property
    def environment(self) -> dict[str, str]:
        """What the usual variables must hold for a program to find the server."""
        if self.store == "gcs":
            return {"STORAGE_EMULATOR_HOST": self.endpoint}
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            # Else clients without a key ask a cloud's own machines for one.
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def arrow(self, **options: Any) -> pafs.FileSystem:
        """Arrow's client of this server."""
        scheme, _, host = self.endpoint.partition("://")
        if self.store == "gcs":
            limit = datetime.timedelta(seconds=_RETRY_SECONDS)
            return pafs.GcsFileSystem(
                anonymous=True,
                scheme=scheme,
                endpoint_override=host,
                **{"retry_time_limit": limit} | options,
            )
        return pafs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            region="us-east-1",
            scheme=scheme,
            endpoint_override=host,
            **options,
        )


@functools.cache
def _s3_client(endpoint: str, access_key: str, secret_key: str) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
    )


@functools.cache
def _gcs_client(endpoint: str) -> Any:
    return google.cloud.storage.Client(
        project="none",
        credentials=google.auth.credentials.AnonymousCredentials(),
        client_options={"api_endpoint": endpoint},
    )


def running(
    store: str, folder: Path, *, keep_alive: bool = False
) -> Iterator[dict[str, Any]]:
    """Gives the state of a server while it runs; see `scripts/storage`."""
    try:
        state = storage.up(store, folder, keep_alive=keep_alive)
    except storage.StorageError as error:
        if os.environ.get("GO") or shutil.which("go"):
            raise
        pytest.skip(str(error))
    try:
        yield state
    finally:
        storage.down(store, folder)


@pytest.fixture(scope="session")
def _s3_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    yield from running("s3", tmp_path_factory.mktemp("s3"))


@pytest.fixture(scope="session")
def _gcs_running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    yield from running("gcs", tmp_path_factory.mktemp("gcs"))


def with_bucket(state: dict[str, Any], test: str) -> Server:
    """Makes the bucket of a test on a running server."""
    server = Server(
        store=state["store"],
        endpoint=state["endpoint"],
        bucket=f"bucket-{hashlib.sha256(test.encode()).hexdigest()[:16]}",
        access_key=state.get("access_key", ""),
        secret_key=state.get("secret_key", ""),
    )
    options: dict[str, Any] = (
        {"allow_bucket_creation": True}
        if server.store == "s3"
        else {"project_id": "none"}
    )
    server.arrow(**options).create_dir(server.bucket)
    return server


@pytest.fixture
def s3_server(_s3_running: dict[str, Any], request: pytest.FixtureRequest) -> Server:
    """An S3 server, with an empty bucket."""
    return with_bucket(_s3_running, request.node.nodeid)


@pytest.fixture
def gcs_server(_gcs_running: dict[str, Any], request: pytest.FixtureRequest) -> Server:
    """An emulator of Google's store, with an empty bucket."""
    return with_bucket(_gcs_running, request.node.nodeid)


@pytest.fixture(params=["s3", "gcs"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each of the two."""
    found: Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture(autouse=True)
def _no_own_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's accounts is read, nor a cloud's machine asked for one."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "STORAGE_EMULATOR_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def pets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of small images, `split/label/file`."""
    root = tmp_path_factory.mktemp("sources") / "pets"
    number = 0
    for split, count in (("train", 12), ("test", 4)):
        for label in ("고양이", "dog"):
            folder = root / split / label
            folder.mkdir(parents=True)
            for _ in range(count):
                colour = (number * 7 % 256, number * 31 % 256, 128)
                image = Image.new("RGB", (8 + number % 5, 8), colour)
                image.save(folder / f"{number:02} ü.png")
                number += 1
    return root


@pytest.fixture(scope="session")
def measures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of CSV files, each of which is a block."""
    root = tmp_path_factory.mktemp("sources") / "measures"
    root.mkdir()
    for part in range(4):
        rows = (
            f"{part * 500 + n},{n / 8},{('cat', 'dog', 'goat')[n % 3]},note {n}"
            for n in range(500)
        )
        text = "\n".join(["id,weight,animal,note", *rows, ""])
        (root / f"part-{part}.csv").write_text(text)
    return root


@pytest.fixture(scope="session")
def local_pets(pets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The images, converted on this machine."""
    return _converted(pets, tmp_path_factory.mktemp("local") / "pets", PETS)


@pytest.fixture(scope="session")
def local_measures(measures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables, converted on this machine."""
    target = tmp_path_factory.mktemp("local") / "measures"
    return _converted(measures, target, MEASURES)


# What the tests convert their sources with.
PETS = ("--name", "pets", "--shards", "2")
MEASURES = (
    *(IN_FILES, "--name", "measures", "--shards", "3"),
    *("--splits", "train=0.8,test=0.2", "--label-column", "animal"),
)


def _converted(source: Path, target: Path, flags: Sequence[str]) -> Path:
    command = program("convert", source, target, *flags)
    subprocess.run(command, cwd=_ROOT, check=True, capture_output=True)
    return target
