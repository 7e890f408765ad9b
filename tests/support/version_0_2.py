"""What version 0.2 has written, copied to where a test may change it."""

import importlib
import importlib.util
import pathlib
import shutil
import zipfile
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import pytest

from tests.support.memory_store import MemoryStore
from tests.support.segments import IN_FILES

__all__ = [
    "DATA",
    "JOBS",
    "MAKE",
    "copy_sources",
    "copy_target",
    "flags_of",
    "put_objects",
]

Folder = pathlib.Path
DATA = pathlib.Path(__file__).parents[1] / "data" / "v0.2"
# Where conversions find their runner, or what a test has put in its place.
RUNNING = "beam_pipeline.running.convert"


def _make() -> ModuleType:
    """Loads the script that has made the data, whose folder is no package."""
    spec = importlib.util.spec_from_file_location("make_v0_2", DATA / "make.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = _make()
JOBS: dict[str, tuple[str, ...]] = MAKE.JOBS


def copy_target(name: str, folder: Folder) -> Folder:
    """Copies a dataset, or a target with its work folder, into a folder.

    Returns the folder with the name, which a packed target has in a folder of its own.
    """
    packed = DATA / f"{name}.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as file:
            file.extractall(folder / name)
    else:
        shutil.copytree(DATA / name, folder / name)
    return folder / name


def copy_sources(folder: Folder) -> None:
    """Copies the sources to where the jobs read them, with their old times."""
    MAKE.copy_sources(folder / "in")


# Flags that this version lacks, and the arguments of tests that do the same.
GONE: Mapping[tuple[str, str], list[str]] = {
    ("--index", "text"): [],
    ("--catalogue", "full"): [],
    ("--segments", "files"): [IN_FILES],
    ("--vocabulary-lock", "names.lock"): ["--vocabulary", "names.lock"],
}


def flags_of(name: str) -> tuple[str, ...]:
    """Returns the flags of a job of `convert`, without its source, for this version."""
    flags = [*JOBS[name][1:]]
    for gone, instead in GONE.items():
        if gone[0] in flags:
            at = flags.index(gone[0])
            assert tuple(flags[at : at + 2]) == gone
            flags[at : at + 2] = instead
    return tuple(flags)


def put_objects(name: str, store: MemoryStore) -> bytes:
    """Puts the objects of a bucket into a store.

    Returns the manifest that the run which left them was about to put; b"" for none.
    """
    objects: dict[str, bytes] = {}
    packed = DATA / f"{name}.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as file:
            names = [each for each in file.namelist() if not each.endswith("/")]
            objects = {each: file.read(each) for each in names}
    else:
        paths = [path for path in (DATA / name).rglob("*") if path.is_file()]
        root = DATA / name
        objects = {p.relative_to(root).as_posix(): p.read_bytes() for p in paths}
    manifest = objects.pop("manifest.json", b"")
    for key, data in sorted(objects.items()):
        store.put(key, data)
    return manifest


def beside(patch: pytest.MonkeyPatch, other: Callable[[], None]) -> Callable[[], None]:
    """Lets another run do something once a conversion is at work.

    Returns a function that checks that it has been done, once.
    """
    run_job = importlib.import_module(RUNNING).run_job
    done: list[None] = []

    def both(*arguments: Any, **options: Any) -> None:
        other()
        done.append(None)
        run_job(*arguments, **options)

    patch.setattr(f"{RUNNING}.run_job", both)

    def check() -> None:
        assert len(done) == 1

    return check
