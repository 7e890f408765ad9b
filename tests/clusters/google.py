"""The program as it talks to stand-ins of Google's services, as a user's would."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import pyarrow.fs as pafs

from beam_pipeline.engines.dataflow_submission import required_here
from tests.clusters.environments import environment
from tests.clusters.fake_dataflow import fetched
from tests.clusters.runs import ROOT

__all__ = [
    "BUCKET",
    "LAUNCHER",
    "Done",
    "Google",
    "environment_of_google",
    "install_staged",
]

Folder = pathlib.Path
Done = subprocess.CompletedProcess[str]

BUCKET = "gs://bucket-of-tests"
# What Google's launcher adds to the parameters of a template, and where from.
LAUNCHER = (
    *("--project=my-project", "--region=europe-west1", f"--temp_location={BUCKET}/tmp"),
    f"--staging_location={BUCKET}/staging",
)
_RUN_SECONDS = 240


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
        """Starts the program by its file, as Google's launcher does."""
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
    pins = [each for each in required_here() if not each.startswith("google-")]
    return environment("dataflow", "--editable", f"{ROOT}[dataflow]", pins=pins)


def install_staged(google: Google, folder: Folder) -> str:
    """Installs the staged program by pip in a clean environment of a folder.

    Returns: its interpreter.
    """
    (name,) = (n for n in google.names(f"{BUCKET}/staging") if n.endswith(".tar.gz"))
    package = folder / name.rpartition("/")[2]
    package.write_bytes(fetched(google.storage, f"{BUCKET}/staging/{name}"))
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*install, str(package)], check=True)
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
