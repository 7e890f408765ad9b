"""The program as it talks to stand-ins of Google's services, as a user's would."""

import contextlib
import dataclasses
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import tarfile

import pyarrow.fs as pafs

from beam_pipeline.version import __version__
from tests.clusters.environments import environment
from tests.clusters.runs import ROOT
from tests.support.engines import PACKAGES

__all__ = [
    "BUCKET",
    "LAUNCHER",
    "Done",
    "Google",
    "environment_of_google",
    "install",
    "pack",
]

Folder = pathlib.Path
Done = subprocess.CompletedProcess[str]

BUCKET = "gs://bucket-of-tests"
# What every job is given.
LAUNCHER = (
    *("--project=my-project", "--region=europe-west1", f"--temp_location={BUCKET}/tmp"),
    f"--staging_location={BUCKET}/staging",
)
_RUN_SECONDS = 240
_PACKED = ("setup.py", "pyproject.toml", "README.md", "CHANGELOG.md")


@dataclasses.dataclass(frozen=True)
class Google:
    """The replacements of Google's services, and the program that talks to them.

    Attributes:
      python: an interpreter with Beam's parts for Google Cloud.
      storage: URL of the store.
    """

    python: str
    storage: str

    @property
    def environment(self) -> dict[str, str]:
        """Finds the store, and no real account."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GOOGLE_")}
        return {**kept, "STORAGE_EMULATOR_HOST": self.storage}

    def store(self) -> pafs.FileSystem:
        """Arrow's client of the store."""
        host = self.storage.partition("//")[2]
        return pafs.GcsFileSystem(
            anonymous=True, scheme="http", endpoint_override=host, project_id="none"
        )

    def put(self, local: Folder, url: str) -> str:
        """Copies a file or a folder into the store; returns its URL there."""
        key = url.removeprefix("gs://")
        pafs.copy_files(str(local), key, destination_filesystem=self.store())
        return url

    def get(self, url: str, local: Folder) -> Folder:
        """Copies a folder out of the store."""
        store, key = self.store(), url.removeprefix("gs://")
        for name in self.names(url):
            path = local / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.open_input_file(f"{key}/{name}").read())
        return local

    def names(self, url: str) -> list[str]:
        """Returns the objects below a folder, by their paths relative to it."""
        key = url.removeprefix("gs://")
        selector = pafs.FileSelector(key, recursive=True, allow_not_found=True)
        found = self.store().get_file_info(selector)
        return sorted(
            each.path.removeprefix(f"{key}/")
            for each in found
            if each.type == pafs.FileType.File
        )

    def start(self, *flags: str) -> "subprocess.Popen[str]":
        """Starts the program by its file, as schedulers do."""
        return subprocess.Popen(
            [self.python, str(ROOT / "beam_pipeline" / "__main__.py"), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env=self.environment,
        )

    def run(self, *flags: str) -> Done:
        """Runs the program by its file to its end."""
        with self.start(*flags) as process:
            try:
                out, err = process.communicate(timeout=_RUN_SECONDS)
            except BaseException:
                process.kill()
                raise
        return Done(process.args, process.returncode, out, err)


def environment_of_google() -> str:
    """Returns the interpreter of an environment with the extra `dataflow`.

    It holds what is installed here, in the same versions: bytes are compared.
    """
    # Of Google's own client Beam's parts ask for a version.
    pins = [each for each in _required_here() if not each.startswith("google-")]
    return environment("dataflow", "--editable", f"{ROOT}[dataflow]", pins=pins)


def _required_here() -> list[str]:
    """Returns what this program requires, in the versions that are installed here."""
    found = set()
    for requirement in importlib.metadata.requires("beam-tfrecord") or []:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", requirement)
        if name is None or (extra is not None and extra[1] not in ("heif", "gcs")):
            continue
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.add(f"{name[0]}=={importlib.metadata.version(name[0])}")
    return sorted(found)


def pack(folder: Folder) -> Folder:
    """Packs the program, for `--extra_package`; returns the file."""
    root = f"beam_tfrecord-{__version__}"
    path = folder / f"{root}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo(f"{root}/PKG-INFO"))
        for name in (*_PACKED, *PACKAGES):
            archive.add(ROOT / name, f"{root}/{name}")
    return path


def install(google: Google, package: Folder, folder: Folder) -> str:
    """Installs a package by pip in a clean environment of a folder.

    Returns: its interpreter.
    """
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, str(package)], check=True)
    # Its requirements are in the other environment, which is not searched for
    # programs in development: a path in a .pth file brings no .pth files of its own.
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    of_google, of_worker = (
        subprocess.run(
            [each, "-c", where], capture_output=True, text=True, check=True
        ).stdout.strip()
        for each in (google.python, python)
    )
    Folder(of_worker, "requirements.pth").write_text(f"{of_google}\n")
    return str(python)
