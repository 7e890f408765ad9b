"""Measures how cost grows with what a dataset has many of, or wide or large things of.

    make bench-growth
    make bench-growth BENCH_ARGS="--only columns,rejects --small --runs 1"

A line of the table is one thing that grows: columns, files, row groups and so on.
Each line has points of a factor of ten, with one more between the last two. At each
point, every command runs as a whole process with one worker. What the same command
takes for a source of one row in the same round is subtracted. The exponent is the
slope of cost over units, in logarithms, over the top decade: 1 is a straight line.

Runs write into fresh folders, and nothing is deleted until the end of a line, because
ext4 creates files slowly beside deleted ones. Results are written to `bench/results/`
as JSON, which `growth_plot.py` draws.
"""

import argparse
import dataclasses
import datetime
import json
import math
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import data
import growth_data
import measure

__all__ = ["LINES", "Cost", "Line", "Programs", "costs", "print_table", "select"]

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
TABLE_COMMANDS = ("convert", "plan", "unchanged", "verify", "inspect")
OWN_COMMANDS = ("own", "verify", "inspect")
REJECTING = ("--max-reject-rate", "1", "--min-records", "0")
# What is less than this share of the empty run is taken for noise. Where the top takes
# less than LEAST_AT_TOP times the empty run, an exponent says nothing.
NOISE_OF_EMPTY = 0.1
LEAST_AT_TOP = 2.0
MAX_EXPONENT = 1.10

Options = Callable[[int], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Line:
    """What grows: its unit, its points, its data and its commands.

    Attributes:
      name: of the line; also of the function of `growth_data` that makes its data.
      unit: what is counted.
      top: the largest number of units.
      small: the largest number in the small version.
      bottom: the smallest number of units.
      options: what `convert` and `plan` are given for a number of units; `own_rows.py`
        in lines of own pipelines.
      commands: what is measured.
    """

    name: str
    unit: str
    top: int
    small: int
    bottom: int = 1
    options: Options = lambda _: ()
    commands: Sequence[str] = TABLE_COMMANDS

    def points(self, *, small: bool) -> list[int]:
        """Returns the numbers of units, ascending; two decades in the small version."""
        top = self.small if small else self.top
        decades = 2 if small else math.ceil(math.log10(top / self.bottom))
        lower = {max(self.bottom, top // 10**d) for d in range(1, decades + 1)}
        return sorted(lower | {max(self.bottom, top // 3), top})


LINES = (
    Line("rows", "row", 30_000_000, 3_000_000),
    Line("columns", "column of 1,000 rows", 10_000, 3_000, bottom=4),
    Line("mixed_columns", "column of 300 rows", 10_000, 3_000, bottom=4),
    Line("files", "file", 100_000, 10_000),
    Line(
        "classes",
        "class",
        1_000_000,
        300_000,
        bottom=2,
        options=lambda _: ["--label-column", "label"],
    ),
    Line(
        "shards",
        "shard",
        10_000,
        3_000,
        options=lambda count: ["--shards", str(count)],
        commands=(*TABLE_COMMANDS, "overwrite"),
    ),
    Line("row_bytes", "byte of each of 20 rows", 50_000_000, 10_000_000, bottom=20),
    Line("parquet_lists", "value of each of 40 lists", 5_000_000, 1_000_000),
    Line("json_lists", "value of each of 20 lists", 1_000_000, 300_000),
    # Of a table whose rows are all of another length, the delimiter is to blame.
    Line(
        "rejects",
        f"rejected row of {growth_data.REJECT_ROWS:,}",
        growth_data.REJECT_ROWS // 2,
        growth_data.REJECT_ROWS // 2,
        options=lambda _: REJECTING,
        commands=(*TABLE_COMMANDS, "rejects"),
    ),
    Line(
        "bad_images",
        f"rejected image of {growth_data.BAD_IMAGES:,}",
        growth_data.BAD_IMAGES,
        growth_data.BAD_IMAGES // 3,
        options=lambda _: REJECTING,
        commands=("convert", "plan", "unchanged", "rejects"),
    ),
    Line("row_groups", "row group of 200 rows", 50_000, 20_000),
    Line("json_depth", "level of 600,000 rows", 60, 60),
    Line("zip_members", "member", 100_000, 30_000),
    Line("tar_members", "member", 100_000, 30_000),
    Line("zip_tables", "table of one row in a zip", 100_000, 10_000),
    Line("tars", "tar of 10 samples", 10_000, 1_000),
    Line("images", "image", 300_000, 30_000),
    Line("annotations", "box of each of 200 images", 10_000, 3_000),
    Line(
        "own_rows",
        "row",
        3_000_000,
        1_000_000,
        options=lambda count: ["--rows", str(count)],
        commands=OWN_COMMANDS,
    ),
    Line(
        "own_columns",
        "column of 300 rows",
        10_000,
        3_000,
        options=lambda count: ["--rows", "300", "--columns", str(count)],
        commands=OWN_COMMANDS,
    ),
    Line(
        "own_keys",
        "key, of which each of 20,000 rows has ten",
        3_000,
        1_000,
        bottom=10,
        options=lambda count: ["--rows", "20000", "--keys", str(count)],
        commands=OWN_COMMANDS,
    ),
    Line(
        "own_shards",
        "shard of 20 rows",
        10_000,
        3_000,
        options=lambda count: ["--rows", str(20 * count), "--shards", str(count)],
        commands=OWN_COMMANDS,
    ),
)


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one command costs along a line.

    Attributes:
      points: numbers of units.
      processor, wall: seconds at each point, less the empty run's; median of rounds.
      memory: bytes of the largest process at each point.
      empty: processor time of the empty run, median of rounds.
    """

    line: str
    unit: str
    command: str
    program: str
    points: Sequence[int]
    processor: Sequence[float]
    wall: Sequence[float]
    memory: Sequence[int]
    empty: float

    @property
    def exponent(self) -> float | None:
        """The exponent in processor time; None if the top is too small to say."""
        return self._slope(self.processor)

    @property
    def wall_exponent(self) -> float | None:
        """The exponent in wall time; None if the top is too small to say."""
        return self._slope(self.wall)

    @property
    def memory_ratio(self) -> float:
        """Memory at the top divided by that a decade lower."""
        return self.memory[-1] / self.memory[self._decade()]

    @property
    def of_empty(self) -> float:
        """Processor time at the top, as a multiple of the empty run's."""
        return 1 + self.processor[-1] / self.empty

    @property
    def unit_costs(self) -> list[float]:
        """Microseconds of processor time a unit, at each point that is no noise."""
        least = NOISE_OF_EMPTY * self.empty
        pairs = zip(self.points, self.processor, strict=True)
        return [seconds / units * 1e6 for units, seconds in pairs if seconds >= least]

    def _decade(self) -> int:
        lower = [i for i, p in enumerate(self.points) if p * 10 <= self.points[-1]]
        return max(lower, default=0)

    def _slope(self, seconds: Sequence[float]) -> float | None:
        begin = self._decade()
        pairs = list(zip(self.points[begin:], seconds[begin:], strict=True))
        least = NOISE_OF_EMPTY * self.empty
        if self.of_empty < LEAST_AT_TOP or min(s for _, s in pairs) < least:
            return None
        x = [math.log(units) for units, _ in pairs]
        y = [math.log(s) for _, s in pairs]
        return statistics.linear_regression(x, y).slope

    def row(self) -> tuple[str, ...]:
        """Returns the cells of the table's line."""

        def shown(value: float | None) -> str:
            return "-" if value is None else f"{value:.2f}"

        each = [f"{cost:,.1f}" for cost in self.unit_costs] or ["-"]
        return (
            self.line,
            self.command,
            self.program,
            f"{self.points[0]:,}-{self.points[-1]:,}",
            each[0],
            each[-1],
            shown(self.exponent),
            shown(self.wall_exponent),
            f"{self.of_empty:.1f}",
            f"{self.memory[-1] / 1e6:,.0f}",
            f"{self.memory_ratio:.2f}",
        )


HEADER = (
    "line",
    "command",
    "program",
    "units",
    "us a unit, bottom",
    "us a unit, top",
    "exponent",
    "in wall time",
    "top/empty",
    "MB",
    "MB, a decade",
)


class Programs:
    """Commands of a version of the program, by its Python."""

    def __init__(self, python: str) -> None:
        self.python = python

    def command(
        self,
        name: str,
        source: pathlib.Path,
        folder: pathlib.Path,
        options: Sequence[str],
    ) -> measure.Command:
        """Returns a command. Those after `convert` or `own` use what it has written."""
        program = pathlib.Path(self.python).parent / "beam-tfrecord"
        dataset = folder / "dataset"
        if name == "own":
            return [self.python, BENCH / "own_rows.py", folder, *options]
        if name == "plan":
            return [program, "plan", source, folder / "planned", *options]
        if name in ("convert", "unchanged", "overwrite"):
            flags = ["--quiet", "--workers", "1", *options]
            if name == "overwrite":
                flags += ["--overwrite", "--seed", "1"]
            return [program, "convert", source, dataset, *flags]
        return [program, name, dataset]


def select(names: Sequence[str]) -> list[Line]:
    """Returns the named lines. Raises ValueError for a name that none has."""
    known = {line.name: line for line in LINES}
    if unknown := set(names) - set(known):
        raise ValueError(f"unknown line {', '.join(sorted(unknown))}")
    return [known[name] for name in names]


class _Round:
    """One round of a line: the empty run, then each point, each into a fresh folder."""

    def __init__(self, folder: pathlib.Path, programs: Mapping[str, Programs]) -> None:
        self.folder = folder
        self.programs = programs

    def run(
        self, line: Line, points: Sequence[int], sources: Mapping[int, pathlib.Path]
    ) -> Iterator[tuple[str, str, int, measure.Measured]]:
        """Yields program, command, units (0 for the empty run), and what it took."""
        for units in (0, *points):
            options = line.options(units or 1)
            for number, (name, program) in enumerate(self.programs.items()):
                folder = self.folder / f"{units}-{number}"
                folder.mkdir(parents=True)
                for command in line.commands:
                    words = program.command(command, sources[units], folder, options)
                    measured = measure.run(words)
                    took = measured.processor_seconds
                    print(
                        f"  {line.name} {units:>10,} {command:<10} {name:<7}"
                        f"{took:8.2f} s, {measured.process_bytes / 1e6:,.0f} MB",
                        flush=True,
                    )
                    yield name, command, units, measured


def costs(
    line: Line,
    programs: Mapping[str, Programs],
    *,
    runs: int,
    small: bool,
    scratch: pathlib.Path,
) -> list[Cost]:
    """Measures a line; returns the cost of each command of each program."""
    points = line.points(small=small)
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    # New folders below it then start in block groups of their own, where ext4 finds
    # free inodes at once. Other file systems have no such mark.
    subprocess.run(["chattr", "+T", scratch], check=False, stderr=subprocess.DEVNULL)
    sources = dict(_sources(line, points, scratch))
    found: dict[tuple[str, str], dict[int, list[measure.Measured]]] = {}
    for number in range(runs):
        each = _Round(scratch / f"round-{number}", programs)
        for name, command, units, measured in each.run(line, points, sources):
            by_units = found.setdefault((name, command), {})
            by_units.setdefault(units, []).append(measured)
    shutil.rmtree(scratch)
    return [_cost(line, *key, points, runs) for key, runs in found.items()]


def _sources(
    line: Line, points: Sequence[int], scratch: pathlib.Path
) -> Iterator[tuple[int, pathlib.Path]]:
    """Yields the source of each number of units, and of the empty run."""
    own = "own" in line.commands
    for units in (0, *points):
        folder = scratch / f"source-{units}"
        if not own:
            name, count = (line.name, units) if units else ("classes", 1)
            script = BENCH / "growth_data.py"
            measure.run([sys.executable, script, name, str(count), folder])
        yield units, folder


def _cost(
    line: Line,
    program: str,
    command: str,
    points: Sequence[int],
    found: Mapping[int, Sequence[measure.Measured]],
) -> Cost:
    empty = found[0]

    def less_empty(units: int, field: str) -> float:
        differences: list[float] = [
            getattr(full, field) - getattr(nothing, field)
            for full, nothing in zip(found[units], empty, strict=True)
        ]
        return statistics.median(differences)

    return Cost(
        line.name,
        line.unit,
        command,
        program,
        points,
        [less_empty(units, "processor_seconds") for units in points],
        [less_empty(units, "seconds") for units in points],
        [
            int(statistics.median(each.process_bytes for each in found[units]))
            for units in points
        ],
        statistics.median(each.processor_seconds for each in empty),
    )


def print_table(found: Sequence[Cost]) -> None:
    """Prints the costs, a command a line."""
    rows = [HEADER, *(cost.row() for cost in found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    for row in rows:
        cells = (cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells))


def _save(
    path: pathlib.Path, found: Sequence[Cost], arguments: argparse.Namespace
) -> None:
    path.parent.mkdir(exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    facts = {
        "time": now.isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "runs": arguments.runs,
        "costs": [dataclasses.asdict(cost) for cost in found],
    }
    path.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    names = ",".join(line.name for line in LINES)
    parser.add_argument("--only", default=names, help=f"of {names}")
    runs = int(os.environ.get("BENCH_RUNS", "3"))
    parser.add_argument("--runs", type=int, default=runs, help="rounds per median")
    parser.add_argument("--small", action="store_true", help="two decades, lower tops")
    parser.add_argument("--ours", default=os.fspath(ROOT / ".venv/bin/python"))
    parser.add_argument(
        "--before", help="Python of an older version, measured in the same rounds"
    )
    parser.add_argument(
        "--scratch", type=pathlib.Path, default=data.data_folder() / "growth"
    )
    arguments = parser.parse_args()
    try:
        arguments.lines = select(arguments.only.split(","))
    except ValueError as error:
        parser.error(str(error))
    return arguments


def main() -> int:
    """Measures the lines; returns 1 if an exponent is over its bound."""
    arguments = _arguments()
    measure.compile_program(arguments.ours)
    programs = {"ours": Programs(arguments.ours)}
    if arguments.before:
        programs["before"] = Programs(arguments.before)
    found: list[Cost] = []
    now = datetime.datetime.now(datetime.UTC)
    path = BENCH / "results" / f"growth-{now:%Y%m%d-%H%M%S}.json"
    for line in arguments.lines:
        found += costs(
            line,
            programs,
            runs=arguments.runs,
            small=arguments.small,
            scratch=arguments.scratch,
        )
        # After each line: a run over all of them takes hours.
        _save(path, found, arguments)
    print_table(found)
    print(f"\n{path}")
    exponents = [
        exponent
        for cost in found
        if cost.program == "ours"
        for exponent in (cost.exponent, cost.wall_exponent)
        if exponent is not None
    ]
    return int(any(exponent > MAX_EXPONENT for exponent in exponents))


if __name__ == "__main__":
    sys.exit(main())
