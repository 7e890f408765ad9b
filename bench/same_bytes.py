#!/usr/bin/env python3
"""Converts a hundred sources with two versions of the program and compares all files.

    bench/same_bytes.py BASE NEW [CASE ...] [--keep DIR] [--list]

BASE and NEW are paths of `beam-tfrecord` in two environments. Programs in Python
run with the `python` beside each. Every file that a case leaves is compared byte by
byte: shards, class names, indexes, catalogues, rejects, locks, what a failed run
leaves. Of `manifest.json` all fields are compared but those of MAY_DIFFER. Exit codes
must be those that the case expects. What is printed is not compared.

Prints a line a case with the processor time of both, and for a case that differs the
files, and of JSON the keys. Exits with 1 where one differs.

To make the environment of an older version: `git worktree add ../base COMMIT`, then
`./run_local.sh setup` there. Small sources are made. `BEAM_TFRECORD_TEST_DATA` names a
folder of real data, which adds cases. `--list` prints all cases.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from same_bytes_cases import PYTHON, Case, cases

__all__ = ["MAY_DIFFER", "Result", "Version", "differences", "main"]

BENCH = pathlib.Path(__file__).resolve().parent
# Fields of the manifest that differ between two runs or two versions: times, versions,
# the path of a temporary file that holds Python rows, and digests of all settings that
# a version has; settings that were words in 0.2 and are flags. `[]` is any item of a
# list.
MAY_DIFFER = frozenset(
    {
        "run.started",
        "run.finished",
        "run.versions.beam-tfrecord",
        "run.spec.source",
        "run.spec.index",
        "run.spec.catalogue",
        "run.request.settings",
        "run.job",
        "derived[].version",
    }
)
# Settings that only one of the versions has are not compared; those of both are.
MAY_BE_NEW = "run.spec"
# A work folder holds process ids, and names by chance: that it is there is compared.
_WORK_FOLDER = re.compile(r"(^|/)\.[^/]*\.beam-tfrecord$")
_MOST_LINES = 20
_MOST_CHARACTERS = 60
_NOTHING = object()


@dataclasses.dataclass(frozen=True)
class Version:
    """One of the two environments.

    Attributes:
      name: `base` or `new`, also the folder of what it writes.
      command: its `beam-tfrecord`.
    """

    name: str
    command: pathlib.Path

    @property
    def python(self) -> str:
        """The Python of the environment."""
        return str(self.command.parent / "python")

    def has(self, library: str) -> bool:
        """Whether a library is installed there."""
        finds = f"not importlib.util.find_spec({library!r})"
        code = f"import importlib.util; raise SystemExit({finds})"
        return subprocess.run([self.python, "-c", code], check=False).returncode == 0


@dataclasses.dataclass(frozen=True)
class Result:
    """What one version did in a case.

    Attributes:
      codes: the exit code of each step.
      seconds: of processor time.
      folder: where it has written.
    """

    codes: Sequence[int]
    seconds: float
    folder: pathlib.Path


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(version: Version, case: Case, folder: pathlib.Path, made: str) -> Result:
    """Runs the steps of a case. Both versions see the same current folder."""
    current = folder / "current"
    temporary = current / "tmp"
    temporary.mkdir(parents=True)
    environment = {**os.environ, "TMPDIR": str(temporary), "NO_COLOR": "1"}
    before = _processor_seconds()
    codes: list[int] = []
    with (folder / f"{version.name}.log").open("wb") as log:
        for step in case.steps:
            command: Sequence[str | pathlib.Path] = [version.command, *step]
            if step[0] == PYTHON:
                program = BENCH / "same_bytes_programs.py"
                command = [version.python, "-P", program, *step[1:], made]
            done = subprocess.run(
                command,
                cwd=current,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
            codes.append(done.returncode)
            if codes[-1]:
                break
    seconds = _processor_seconds() - before
    written = folder / version.name
    current.rename(written)
    return Result(codes, seconds, written)


def _files(folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Returns the files by their paths; folders have a slash behind."""
    out = {}
    for parent, folders, names in os.walk(folder):
        for name in sorted(folders):
            path = pathlib.Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            out[f"{relative}/"] = path
            if _WORK_FOLDER.search(relative):
                folders.remove(name)
        for name in names:
            path = pathlib.Path(parent, name)
            out[path.relative_to(folder).as_posix()] = path
    return out


def differences(case: Case, base: Result, new: Result) -> Iterator[str]:
    """Yields a line for each file or key of a case that differs."""
    expected = [0] * (len(case.steps) - 1) + [case.code]
    for name, result in (("base", base), ("new", new)):
        if list(result.codes) != expected:
            yield f"exit codes of {name}: {list(result.codes)}, expected {expected}"
    ones, others = _files(base.folder), _files(new.folder)
    for name in sorted(ones.keys() | others.keys()):
        if name not in others:
            yield f"{name}: only base has it"
        elif name not in ones:
            yield f"{name}: only new has it"
        elif not name.endswith("/"):
            one, other = ones[name].read_bytes(), others[name].read_bytes()
            if one != other:
                yield from _of_files(name, one, other)


def _of_files(name: str, one: bytes, other: bytes) -> Iterator[str]:
    keys: list[str] = []
    if name.endswith((".json", ".jsonl")):
        is_manifest = pathlib.PurePath(name).name == "manifest.json"
        try:
            unequal = list(_of_json(_parsed(name, one), _parsed(name, other)))
        except ValueError:
            is_manifest, unequal = False, []
        keys = [
            f"{path}: {_shown(left)} | {_shown(right)}"
            for path, left, right in unequal
            if not (is_manifest and _may_differ(path, left, right))
        ]
        if is_manifest and not keys:
            return
    place = f"the first difference at {_first_other(one, other):,}"
    yield f"{name}: {len(one):,} and {len(other):,} bytes, {place}"
    for key in keys[:_MOST_LINES]:
        yield f"  {key}"
    if len(keys) > _MOST_LINES:
        yield f"  and {len(keys) - _MOST_LINES} keys more"


def _first_other(one: bytes, other: bytes) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    unequal = (place for place, (a, b) in pairs if a != b)
    return next(unequal, min(len(one), len(other)))


def _parsed(name: str, content: bytes) -> object:
    if name.endswith(".jsonl"):
        return [json.loads(line) for line in content.splitlines()]
    return json.loads(content)


def _of_json(
    one: object, other: object, path: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yields the path and both values of each value that differs, at any depth."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in [*one, *(key for key in other if key not in one)]:
            inner = f"{path}.{key}".removeprefix(".")
            yield from _of_json(one.get(key, _NOTHING), other.get(key, _NOTHING), inner)
    elif isinstance(one, list) and isinstance(other, list):
        pairs = itertools.zip_longest(one, other, fillvalue=_NOTHING)
        for place, (left, right) in enumerate(pairs):
            yield from _of_json(left, right, f"{path}[{place}]")
    elif type(one) is not type(other) or one != other:
        yield path, one, other


def _shown(value: object) -> str:
    if value is _NOTHING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > _MOST_CHARACTERS:
        return f"{text[:_MOST_CHARACTERS]}..."
    return text


def _may_differ(path: str, one: object, other: object) -> bool:
    """Whether a field of the manifest is one that two versions need not share."""
    field = re.sub(r"\[\d+\]", "[]", path)
    if field.rpartition(".")[0] == MAY_BE_NEW and _NOTHING in (one, other):
        return True
    return field in MAY_DIFFER


def _sources(version: Version, folder: pathlib.Path) -> None:
    """Makes the sources with the libraries of a version, unless they are there."""
    if folder.exists():
        return
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    maker = BENCH / "same_bytes_sources.py"
    subprocess.run([version.python, "-P", maker, partial], check=True)
    partial.rename(folder)


def _compare(
    chosen: Mapping[str, Case], versions: Sequence[Version], root: pathlib.Path
) -> int:
    """Runs cases and prints a line for each; returns how many differ."""
    made = root / "sources"
    _sources(versions[0], made)
    differ = 0
    for name, case in chosen.items():
        if case.library and not all(v.has(case.library) for v in versions):
            print(f"skipped  {name}: {case.library} is not installed in both")
            continue
        folder = root / "cases" / name
        shutil.rmtree(folder, ignore_errors=True)
        base, new = (_run(version, case, folder, str(made)) for version in versions)
        lines = list(differences(case, base, new))
        differ += bool(lines)
        word = "DIFFERS" if lines else "same"
        print(
            f"{word:9}{name:32}{base.seconds:7.2f} s {new.seconds:7.2f} s", flush=True
        )
        for line in lines:
            print(f"    {line}", flush=True)
    return differ


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Compares what two versions of the program write.",
    )
    parser.add_argument("base", metavar="BASE", nargs="?", help="a beam-tfrecord")
    parser.add_argument("new", metavar="NEW", nargs="?", help="another one")
    parser.add_argument("cases", metavar="CASE", nargs="*", help="all by default")
    parser.add_argument("--keep", metavar="DIR", help="write below DIR and keep it")
    parser.add_argument("--list", action="store_true", help="print the cases and exit")
    arguments = parser.parse_intermixed_args()
    if not arguments.list and not arguments.new:
        parser.error("BASE and NEW are missing")
    return arguments


def main() -> None:
    """Runs the cases that the command line names."""
    arguments = _arguments()
    data = os.environ.get("BEAM_TFRECORD_TEST_DATA", "")
    data = str(pathlib.Path(data).resolve()) if data else ""
    with contextlib.ExitStack() as stack:
        kept = arguments.keep or stack.enter_context(
            tempfile.TemporaryDirectory(prefix="same-bytes-")
        )
        root = pathlib.Path(kept).resolve()
        every = cases(str(root / "sources"), data)
        unknown = set(arguments.cases) - every.keys()
        if unknown:
            names = ", ".join(sorted(unknown))
            print(f"no such case: {names}; --list lists them", file=sys.stderr)
            sys.exit(2)
        chosen = {n: every[n] for n in every if n in (arguments.cases or every)}
        if arguments.list:
            print("\n".join(chosen))
            return
        # Not resolved: a command of an environment may be a link out of it.
        versions = [
            Version(name, pathlib.Path(command).absolute())
            for name, command in (("base", arguments.base), ("new", arguments.new))
        ]
        differ = _compare(chosen, versions, root)
    print(f"{differ} of {len(chosen)} cases differ" if differ else "all the same")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
