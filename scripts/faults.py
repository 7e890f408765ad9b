"""Puts the faults of `tests/faults.toml` in, and says which of them the tests catch.

    python scripts/faults.py                all faults, each with its own tests
    python scripts/faults.py tar spool     these
    python scripts/faults.py --find tar     the whole suite until a test fails

It works in a copy of the checkout. The exit code is 1 if a fault is missed.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "faults.toml"
FOLDERS = ("tests/unit", "tests/program", "tests/readers", "tests/proof")
MISSED = "MISSED"


def main() -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(description="Puts known faults in.")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--find", metavar="NAME", help="search the whole suite")
    chosen = parser.parse_args()
    faults = tomllib.loads(FAULTS.read_text(encoding="utf-8"))
    names = [chosen.find] if chosen.find else chosen.names or [*faults]
    if unknown := {*names} - {*faults}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        copy = pathlib.Path(folder) / "checkout"
        copy_checkout(copy)
        for name in names:
            found = outcome(copy, faults[name], search=bool(chosen.find))
            print(f"{name:<16} {found}", flush=True)
            missed += found == MISSED
    return 1 if missed else 0


def copy_checkout(copy: pathlib.Path) -> None:
    """Copies what git tracks; checks that programs there import the copy."""
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
    for name in listed.split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    code = "import beam_pipeline, transforms; print(transforms.__file__)"
    done = run([sys.executable, "-c", code], copy, cwd=copy.parent)
    if pathlib.Path(done.stdout.strip()) != copy / "transforms" / "__init__.py":
        raise SystemExit(f"the copy imports other code: {done.stdout} {done.stderr}")


def outcome(copy: pathlib.Path, fault: dict[str, Any], *, search: bool) -> str:
    """Returns what becomes of a fault, in words."""
    path = copy / fault["module"]
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    before = f"\n{fault['before']}" if "before" in fault else ""
    old = f"{before}\n{fault['line']}\n"
    if text.count(old) != 1:
        return "line is gone"
    path.write_text(text.replace(old, f"{before}\n{fault['fault']}\n"), "utf-8")
    try:
        if search:
            return find(copy, fault["module"])
        return verdict(copy, fault["tests"])
    finally:
        # With its time, so that no bytecode of the fault is used again.
        shutil.copy2(ROOT / fault["module"], path)


def find(copy: pathlib.Path, module: str) -> str:
    """Runs the tests with the name of a module, then all until one fails."""
    stem = pathlib.Path(module).stem
    near = [
        str(path.relative_to(copy))
        for folder in FOLDERS
        for path in sorted((copy / folder).rglob("test_*.py"))
        if stem in path.stem
    ]
    for tests in (near, *([folder] for folder in FOLDERS)):
        if (found := verdict(copy, tests)) != MISSED:
            return found
    return MISSED


def verdict(copy: pathlib.Path, tests: Sequence[str]) -> str:
    """Runs tests until one fails; returns which one, or that none does."""
    if not tests:
        return MISSED
    options = ("-q", "-x", "-rfE", "--tb=line", "-p", "no:cacheprovider")
    done = run([sys.executable, "-m", "pytest", *options, *tests], copy)
    # Codes of pytest: all have passed, and some have failed.
    if done.returncode == 0:
        return MISSED
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode != 1 or not failed:
        return f"tests do not run: {done.stdout[-500:]} {done.stderr[-500:]}"
    return f"caught by {failed[0].split()[1]}"


def run(
    command: Sequence[str], copy: pathlib.Path, *, cwd: pathlib.Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command that imports the packages of the copy."""
    return subprocess.run(
        command,
        cwd=cwd or copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    raise SystemExit(main())
