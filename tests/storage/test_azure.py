"""Azure's store, by Arrow and its own client: a real emulator, Azurite, from npm."""

import base64
import dataclasses
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from tests.storage.conftest import PETS
from tests.storage.program import Program, files_of
from tests.support.outputs import contents
from transforms.storage.files import storage
from transforms.storage.paths import plain
from transforms.storage.protocol import Look
from transforms.storage.retry import OvertakenError

_VERSION = "3.37.0"
_READY_SECONDS = 60
_CONTAINER = "sets"
# Of two blocks and a byte.
_LARGE_BYTES = (8 << 20) + 1


@dataclasses.dataclass(frozen=True)
class Azurite:
    """A running emulator with one container.

    Attributes:
      port: on the loopback interface.
      key: of its one account.
    """

    port: int
    key: str

    @property
    def environment(self) -> Mapping[str, str]:
        """The account that may write, in the form of Azure's own programs."""
        return {"AZURE_STORAGE_ACCOUNT": "tester", "AZURE_STORAGE_KEY": self.key}

    def url(self, path: str) -> str:
        """A path in the container, with what says where the emulator is."""
        at = f"blob_storage_authority=127.0.0.1:{self.port}&enable_tls=false"
        return f"abfs://{_CONTAINER}/{path}?{at}"

    def system(self) -> pafs.FileSystem:
        """The store by Arrow, without the program."""
        place = f"127.0.0.1:{self.port}"
        return pafs.AzureFileSystem(
            account_name="tester",
            account_key=self.key,
            blob_storage_authority=place,
            dfs_storage_authority=place,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )

    def files(self, folder: str) -> dict[str, bytes]:
        """Every file below a folder, by its name there."""
        system, root = self.system(), f"{_CONTAINER}/{folder}"
        selector = pafs.FileSelector(root, recursive=True, allow_not_found=True)
        return {
            info.path.removeprefix(f"{root}/"): system.open_input_file(info.path).read()
            for info in system.get_file_info(selector)
            if info.type is pafs.FileType.File
        }


def _program() -> Path:
    """The emulator's program, installed once into the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "beam-tfrecord" / "storage" / f"azurite-{_VERSION}"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        if shutil.which("npm") is None:
            pytest.skip("the emulator comes by npm, which is not on the PATH")
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        wanted = ["--prefix", str(folder), f"azurite@{_VERSION}"]
        subprocess.run([*command, *wanted], check=True, capture_output=True)
    return program


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """The emulator, with an empty container."""
    pytest.importorskip("azure.storage.blob")
    folder = tmp_path_factory.mktemp("azurite")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    found = Azurite(port, base64.b64encode(secrets.token_bytes(32)).decode())
    command = [_program(), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    process = subprocess.Popen(
        [*map(str, command), "--location", str(folder), "--skipApiVersionCheck"],
        env={**os.environ, "AZURITE_ACCOUNTS": f"tester:{found.key}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        found.system().create_dir(_CONTAINER)
        yield found
    finally:
        # It has nothing to finish, and takes its time about that.
        process.kill()
        process.wait(10)


def test_a_dataset_on_azure(
    azurite: Azurite, pets: Path, local_pets: Path, tmp_path: Path
) -> None:
    """Converted, sound, up to date, the bytes of a local one; nothing beside it."""
    program = Program(azurite, tmp_path)
    target = azurite.url("out")
    program.run("convert", pets, target, *PETS)
    assert "sound: 32 records" in program.run("verify", target).out
    assert "up to date" in program.run("convert", pets, target, *PETS).out
    there = azurite.files("out")
    here = contents(local_pets)
    secret = azurite.key.encode()
    assert not any(secret in data for data in there.values())
    assert files_of(there) == here
    assert azurite.files(".out.beam-tfrecord") == {}
    program.run("clean", target)
    assert "no dead run" in program.run("clean", target).out


def test_sources_on_azure(
    azurite: Azurite, pets: Path, local_pets: Path, tmp_path: Path
) -> None:
    """Images in the store give the bytes of local ones."""
    system = azurite.system()
    for path in sorted(pets.rglob("*.png")):
        name = path.relative_to(pets).as_posix()
        with system.open_output_stream(f"{_CONTAINER}/pets/{name}") as sink:
            sink.write(path.read_bytes())
    program = Program(azurite, tmp_path)
    program.run("convert", azurite.url("pets"), "here", *PETS)
    assert contents(tmp_path / "here") == contents(local_pets)


def test_overwrite(azurite: Azurite, pets: Path, tmp_path: Path) -> None:
    """A dataset is replaced by one swap of its manifest; the old files go."""
    program = Program(azurite, tmp_path)
    arguments = ("convert", pets, azurite.url("twice"), *PETS)
    program.run(*arguments)
    before = azurite.files("twice")
    program.run(*arguments, "--seed", "2", "--overwrite")
    assert "sound: 32 records" in program.run("verify", azurite.url("twice")).out
    after = azurite.files("twice")
    assert after["manifest.json"] != before["manifest.json"]
    assert not {name for name in before if name.startswith("data-")} & after.keys()
    assert azurite.files(".twice.beam-tfrecord") == {}


def test_conditions(azurite: Azurite, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object is put only if it is absent, or has the version that was seen."""
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)
    file = storage(plain(azurite.url("conditions/a")))
    assert file.look() == Look()
    file.put_if(b"1", "")
    seen = file.look()
    assert seen.version
    assert 0 <= seen.age < _READY_SECONDS
    for version in ("", '"0x8D0000000000000"'):
        with pytest.raises(OvertakenError):
            file.put_if(b"2", version)
    file.put_if(b"2", seen.version)
    with pytest.raises(OvertakenError):
        file.put_if(b"3", seen.version)
    assert azurite.files("conditions") == {"a": b"2"}
    file.remove_file()
    with pytest.raises(OvertakenError):
        file.put_if(b"3", seen.version)
    assert azurite.files("conditions") == {}


def test_large_files(
    azurite: Azurite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A file in parts is whole or absent, never replaces one, and can be copied."""
    for name, value in azurite.environment.items():
        monkeypatch.setenv(name, value)
    folder = plain(azurite.url("large"))
    data = os.urandom(_LARGE_BYTES)
    storage(f"{folder}/a").put_if(data, "")
    with pytest.raises(OvertakenError):
        storage(f"{folder}/a").put_if(data, "")
    assert storage(f"{folder}/a").copy_to(f"{folder}/b")
    assert azurite.files("large") == {"a": data, "b": data}
    storage(folder).remove_tree()
    assert azurite.files("large") == {}


def test_what_is_missing_is_named(azurite: Azurite, tmp_path: Path) -> None:
    """A container that is not there, and a key that is wrong: without any secret."""
    program = Program(azurite, tmp_path)
    (tmp_path / "in.csv").write_text("a\n1\n")
    missing = azurite.url("out").replace(f"//{_CONTAINER}/", "//none/")
    done = program.ended(program.started("convert", "in.csv", missing))
    assert done.code in (1, 2)
    assert "there is no such bucket" in done.err
    wrong = base64.b64encode(b"wrong" * 7).decode()
    program = Program(azurite, tmp_path, AZURE_STORAGE_KEY=wrong)
    arguments = ("convert", "in.csv", azurite.url("wrong"))
    done = program.ended(program.started(*arguments))
    assert done.code in (1, 2)
    assert "Traceback" not in done.err
    assert wrong not in done.err
    assert azurite.files("wrong") == {}
