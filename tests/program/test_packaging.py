"""What a wheel holds: the packages with their data, and nothing else."""

import importlib.util
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

Folder = pathlib.Path
ROOT = pathlib.Path(__file__).parents[2]
PACKAGES = ("beam_pipeline", "beam_tfrecord", "transforms")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Returns the names in a wheel that is built offline from a copy of the sources."""
    pytest.importorskip("setuptools")
    # Before 70.1 setuptools leaves the writing of wheels to another package.
    builders = ("setuptools.command.bdist_wheel", "wheel")
    if not any(map(importlib.util.find_spec, builders)):
        pytest.skip("nothing here builds wheels")
    folder = tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "tests"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__", "corpus", "clusters"),
        )
    for name in ("setup.py", "pyproject.toml", "README.md", "MANIFEST.in", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    program = "from setuptools import build_meta as b; print(b.build_wheel('out'))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "out").glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_says_that_the_packages_are_typed(
    package: str, wheel: list[str]
) -> None:
    """Type checkers read the annotations of a package that holds `py.typed` alone."""
    assert f"{package}/py.typed" in wheel


def test_a_wheel_holds_the_modules_and_their_data(wheel: list[str]) -> None:
    """Every module of the three packages, and no tests."""
    modules = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }
    assert modules <= set(wheel)
    tops = {name.partition("/")[0] for name in wheel}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
