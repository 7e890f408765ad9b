"""What version 0.2 has written, copied to where a test may change it."""

import importlib.util
import pathlib
import shutil
import zipfile
from collections.abc import Mapping
from types import ModuleType

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


def put_objects(name: str, store: MemoryStore) -> None:
    """Puts the objects of a bucket into a store."""
    root = DATA / name
    for path in sorted(root.rglob("*")):
        if path.is_file():
            store.put(path.relative_to(root).as_posix(), path.read_bytes())
