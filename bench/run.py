"""Benchmarks whole processes, from import to exit, against the peers'.

    make bench
    make bench BENCH_ARGS="--only csv,verify --rows 1000000 --runs 1"

Contestants of one kind of work run in turn, and medians are compared. Slow peers run
on fewer items. Their time for all items is then estimated as the fixed part (start,
imports, exit) plus the work scaled up, the estimate most favourable to them.
Needs the project in .venv, Ray in bench/.venv-ray and the other peers in bench/.venv;
`make bench` makes them.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence

import data
import growth
import measure

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent

# Slow peers get at most this many items, and their time is scaled up.
BEAM_ROWS = 300_000
TUTORIAL_ROWS = 500_000
TFX_BSL_ROWS = 2_000_000
RAY_ROWS = 200_000
PEER_IMAGES = 20_000
ONE_BY_ONE_RECORDS = 200_000
VERIFY_RECORDS = 1_000_000
OWN_ROWS = 1_000_000
WIDE_CELLS = 20_000_000
WIDE_COLUMNS = (20, 2_000, 10_000)
BEAM_WIDE_CELLS = 1_000_000
VERIFY_BATCH = 4_096

MAX_PROCESS_BYTES = 500_000_000
MAX_OWN_ROWS_BYTES = 300_000_000
MAX_WIDE_BYTES = 1_500_000_000
# One round of the small version takes minutes. It is noisy, but shows a cliff.
MAX_SMALL_EXPONENT = 1.3

Contestants = Mapping[str, Callable[[], float]]


@dataclasses.dataclass(frozen=True)
class Result:
    """One line of the table: a ratio and its required bound.

    Attributes:
      work: what was done.
      against: what it is compared with.
      required: the bound; `at_most` says on which side of it the ratio must be.
      reached: the measured ratio; None if our side was not run.
      facts: the measurements behind it, for the JSON and the last column.
    """

    work: str
    against: str
    required: float
    reached: float | None
    facts: Mapping[str, float]
    at_most: bool = False
    unit: str = "x"

    @property
    def passed(self) -> bool:
        """Whether the ratio meets the bound or was not measured."""
        if self.reached is None:
            return True
        if self.at_most:
            return self.reached <= self.required
        return self.reached >= self.required

    def row(self) -> tuple[str, ...]:
        """Returns the cells of the table's line."""
        bound = "<=" if self.at_most else ">="
        reached = "-" if self.reached is None else f"{self.reached:.2f}{self.unit}"
        mark = "-" if self.reached is None else "pass" if self.passed else "FAIL"
        facts = ", ".join(f"{name} {value:,.2f}" for name, value in self.facts.items())
        required = f"{bound} {self.required:g}{self.unit}"
        return self.work, self.against, required, reached, mark, facts


class Bench:
    """The kinds of work, each a method that returns lines of the table."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.ours_python: str = arguments.ours
        self.peers_python: str = arguments.peers
        self.ray_python: str = arguments.ray
        self.runs: int = arguments.runs
        self.rows: int = arguments.rows
        self.images_count: int = arguments.images
        self.peers_only: bool = arguments.peers_only
        self.scratch = data.data_folder() / "out"
        shutil.rmtree(self.scratch, ignore_errors=True)

    # ---- contestants

    def _convert(
        self, source: pathlib.Path, output: pathlib.Path, *options: str
    ) -> measure.Command:
        program = pathlib.Path(self.ours_python).parent / "beam-tfrecord"
        flags = ["--quiet", "--overwrite", *options]
        return [program, "convert", source, output, *flags]

    def _ours(self, source: pathlib.Path, *options: str) -> float:
        with _fresh(self.scratch / "ours") as folder:
            command = self._convert(source, folder / "dataset", *options)
            return measure.run(command).seconds

    def _peer(
        self,
        script: str,
        items: int,
        *arguments: str | pathlib.Path,
        python: str = "",
    ) -> float:
        """Returns a peer's seconds, scaled up if it ran on fewer items."""
        with _fresh(self.scratch / "peer") as folder:
            given = [str(a).replace("OUTPUT", str(folder)) for a in arguments]
            program = str(BENCH / "peers" / script)
            command = [python or self.peers_python, program, *given]
            measured = measure.run(command)
        facts = json.loads(measured.output.splitlines()[-1])
        work: float = facts["work_seconds"]
        prepare: float = facts.get("prepare_seconds", 0.0)
        start = measured.seconds - work - prepare
        records: int = facts["items"]
        return start + work * items / records

    def _interleave(self, contestants: Contestants) -> dict[str, float]:
        """Runs the contestants in turn; returns the median seconds of each."""
        seconds: dict[str, list[float]] = {name: [] for name in contestants}
        for number in range(self.runs):
            for name, contestant in contestants.items():
                if self.peers_only and name.startswith("ours"):
                    continue
                seconds[name].append(contestant())
                shown = f"{seconds[name][-1]:10.2f} s"
                print(f"  {number + 1}/{self.runs} {name:<28}{shown}", flush=True)
        return {name: statistics.median(s) for name, s in seconds.items() if s}

    def _compare(
        self,
        work: str,
        items: int,
        medians: Mapping[str, float],
        required: Mapping[str, float],
    ) -> list[Result]:
        """Returns a line for each peer: its median divided by ours."""
        ours = medians.get("ours")
        results = []
        for name, bound in required.items():
            facts = {
                "theirs s": medians[name],
                "theirs k/s": items / medians[name] / 1e3,
            }
            if ours is not None:
                facts |= {"ours s": ours, "ours k/s": items / ours / 1e3}
            reached = None if ours is None else medians[name] / ours
            results.append(Result(work, name, bound, reached, facts))
        return results

    # ---- kinds of work

    def csv(self) -> list[Result]:
        """Converts a CSV of four features to committed shards with one worker."""
        rows = self.rows
        source = data.csv_of(rows)
        fewer = min(BEAM_ROWS, rows)
        beam_source = data.csv_of(fewer)
        tutorial = min(TUTORIAL_ROWS, rows)
        tfx_source = data.csv_of(min(TFX_BSL_ROWS, rows))
        ray_rows = min(RAY_ROWS, rows)
        ray_source = data.csv_of(ray_rows)
        medians = self._interleave(
            {
                "ours": lambda: self._ours(source, "--workers", "1"),
                "tfx_bsl + TFRecordWriter": lambda: self._peer(
                    "tfx_bsl_csv.py", rows, tfx_source, "OUTPUT"
                ),
                "tutorial loop": lambda: self._peer(
                    "tutorial_csv.py", rows, "OUTPUT", "--rows", str(tutorial)
                ),
                "stock Beam": lambda: self._peer(
                    "beam_csv.py", rows, beam_source, "OUTPUT", "--rows", str(fewer)
                ),
                "Ray Data": lambda: self._peer(
                    "ray_csv.py",
                    rows,
                    ray_source,
                    "OUTPUT",
                    *("--rows", str(ray_rows)),
                    python=self.ray_python,
                ),
            }
        )
        required = {
            "stock Beam": 25.0,
            "tutorial loop": 10.0,
            "tfx_bsl + TFRecordWriter": 1.5,
            "Ray Data": 10.0,
        }
        return self._compare(f"CSV of {rows:,} rows", rows, medians, required)

    def wide(self) -> list[Result]:
        """Converts CSVs of as many bytes in few, many and very many columns."""
        cells = min(WIDE_CELLS, 2 * self.rows)
        narrow, wide, widest = WIDE_COLUMNS
        peaks: dict[int, list[float]] = {columns: [] for columns in WIDE_COLUMNS}

        def ours(columns: int) -> Callable[[], float]:
            source = data.wide_of(columns, cells // columns)

            def run() -> float:
                with _fresh(self.scratch / "ours") as folder:
                    command = self._convert(source, folder / "d", "--workers", "1")
                    measured = measure.run(command)
                peaks[columns].append(measured.process_bytes / 1e6)
                return measured.seconds

            return run

        rows, fewer = cells // wide, min(BEAM_WIDE_CELLS, cells) // wide
        beam_source = data.wide_of(wide, fewer)

        def theirs(*options: str) -> Callable[[], float]:
            given = ("OUTPUT", "--rows", str(fewer), *options)
            return lambda: self._peer("beam_wide.py", rows, beam_source, *given)

        medians = self._interleave(
            {
                "ours": ours(wide),
                f"ours, {narrow:,} columns": ours(narrow),
                f"ours, {widest:,} columns": ours(widest),
                "stock Beam": theirs(),
                "stock Beam, filled in place": theirs("--in-place"),
            }
        )
        required = {"stock Beam": 5.0, "stock Beam, filled in place": 2.0}
        work = f"CSV of {wide:,} columns, {rows:,} rows"
        results = self._compare(work, rows, medians, required)
        if self.peers_only:
            return results
        seconds = [medians[f"ours, {n:,} columns"] for n in (narrow, widest)]
        facts = {f"{narrow} s": seconds[0], f"{widest} s": seconds[1]}
        work = f"CSV of {widest:,} columns, as many bytes"
        against = f"{narrow} columns"
        growth = seconds[1] / seconds[0]
        memory = max(statistics.median(each) for each in peaks.values())
        bound = MAX_WIDE_BYTES / 1e6
        return [
            *results,
            # So many columns are possible, and not fast.
            Result(work, against, 8.0, growth, facts, at_most=True),
            Result(work, "a process", bound, memory, {}, at_most=True, unit=" MB"),
        ]

    def encode(self) -> list[Result]:
        """Measures encoding alone, in one process of the peers' environment."""
        environment = ["env", f"PYTHONPATH={ROOT}", self.peers_python]
        command = [*environment, str(BENCH / "encode.py")]
        if self.peers_only:
            command.append("--peer-only")
        runs = [json.loads(measure.run(command).output) for _ in range(self.runs)]
        names = runs[0].keys()
        medians = {name: statistics.median(run[name] for run in runs) for name in names}
        print(f"  {medians}", flush=True)
        reached = None
        if "ours_ns" in medians:
            reached = medians["peer_ns"] / medians["ours_ns"]
        facts = {name.replace("_ns", " ns a row"): v for name, v in medians.items()}
        return [Result("encoding alone", "tfx_bsl's encoder", 3.0, reached, facts)]

    def images(self) -> list[Result]:
        """Converts labelled images to shards with default options and one worker."""
        count = self.images_count
        source = data.images_of(count)
        limit = ["--limit", str(min(PEER_IMAGES, count))]
        one = data.images_of(1)
        medians = self._interleave(
            {
                "ours": lambda: self._ours(source, "--workers", "1"),
                "TFDS builder": lambda: self._peer(
                    "tfds_images.py", count, source, "OUTPUT", *limit
                ),
                "tutorial image_example": lambda: self._peer(
                    "tutorial_images.py", count, source, "OUTPUT", *limit
                ),
                "Ray Data": lambda: self._peer(
                    "ray_images.py",
                    count,
                    source,
                    "OUTPUT",
                    *limit,
                    python=self.ray_python,
                ),
                "plain loop": lambda: self._plain_loop(source, count),
                "ours, two workers": lambda: self._ours(source, "--workers", "2"),
                "ours, one image": lambda: self._ours(one, "--workers", "1"),
                "plain loop, one image": lambda: self._plain_loop(one, 1),
            }
        )
        required = {
            "TFDS builder": 1.5,
            "tutorial image_example": 6.0,
            "Ray Data": 3.0,
        }
        results = self._compare(f"{count:,} images", count, medians, required)
        return [*results, *_beyond_start(count, medians)]

    def _plain_loop(self, source: pathlib.Path, count: int) -> float:
        """Runs the simplest loop, in our environment: it needs nothing else."""
        python = self.ours_python
        return self._peer("plain_images.py", count, source, "OUTPUT", python=python)

    def memory(self) -> list[Result]:
        """Compares the peak memory for all rows with that for a tenth of them."""
        if self.peers_only:
            return []
        peaks: dict[int, measure.Measured] = {}
        for rows in (self.rows // 10, self.rows):
            with _fresh(self.scratch / "ours") as folder:
                source = data.csv_of(rows)
                command = self._convert(source, folder / "d", "--workers", "1")
                peaks[rows] = measure.run(command, memory=True)
            megabytes = peaks[rows].process_bytes / 1e6
            print(f"  {rows:,} rows: {megabytes:,.0f} MB", flush=True)
        small, large = peaks.values()
        facts = {
            "process MB": large.process_bytes / 1e6,
            "of a tenth MB": small.process_bytes / 1e6,
            "tree MB": large.tree_bytes / 1e6,
        }
        growth = large.process_bytes / small.process_bytes
        work = f"peak memory, {self.rows:,} rows"
        largest = large.process_bytes / 1e6
        bound = MAX_PROCESS_BYTES / 1e6
        return [
            Result(work, "a tenth of the rows", 1.3, growth, facts, at_most=True),
            Result(work, "a process", bound, largest, facts, at_most=True, unit=" MB"),
        ]

    def workers(self) -> list[Result]:
        """Compares the speed-up of two workers with that of two separate processes."""
        if self.peers_only:
            return []
        source = data.csv_of(self.rows)

        def side_by_side() -> float:
            with _fresh(self.scratch / "a") as a, _fresh(self.scratch / "b") as b:
                one = ["--workers", "1"]
                return measure.run_side_by_side(
                    [self._convert(source, folder / "d", *one) for folder in (a, b)]
                )

        seconds = self._interleave(
            {
                "ours, one worker": lambda: self._ours(source, "--workers", "1"),
                "ours, two workers": lambda: self._ours(source, "--workers", "2"),
                "ours, twice side by side": side_by_side,
            }
        )
        one, two, side = seconds.values()
        facts = {
            "one s": one,
            "two s": two,
            "side by side s": side,
            "speed-up": one / two,
            "attainable": 2 * one / side,
        }
        work = f"two workers, {self.rows:,} rows"
        reached = (one / two) / (2 * one / side)
        return [Result(work, "two processes side by side", 0.85, reached, facts)]

    def verify(self) -> list[Result]:
        """Reads and checks small records."""
        records = min(VERIFY_RECORDS, self.rows)
        one_by_one = min(ONE_BY_ONE_RECORDS, records)
        source = data.csv_of(records)
        with _fresh(self.scratch / "records") as folder:
            dataset = folder / "dataset"
            if self.peers_only:
                dataset.mkdir()
                script = BENCH / "peers" / "tfx_bsl_csv.py"
                measure.run([self.peers_python, script, source, dataset])
            else:
                measure.run(self._convert(source, dataset))
            files = sorted(dataset.glob("*.tfrecord*"))
            program = pathlib.Path(self.ours_python).parent / "beam-tfrecord"
            limit = ["--limit", str(one_by_one)]
            batch = ["--batch", str(VERIFY_BATCH)]
            medians = self._interleave(
                {
                    "ours": lambda: measure.run([program, "verify", dataset]).seconds,
                    "TFRecordDataset, batched": lambda: self._peer(
                        "tf_read.py", records, *files, *batch
                    ),
                    "TFRecordDataset, one by one": lambda: self._peer(
                        "tf_read.py", records, *files, *limit
                    ),
                }
            )
        required = {
            "TFRecordDataset, one by one": 60.0,
            "TFRecordDataset, batched": 1.5,
        }
        return self._compare(f"verify {records:,} records", records, medians, required)

    def own(self) -> list[Result]:
        """Writes rows that a pipeline generates, as dicts and as Arrow batches."""
        if self.peers_only:
            return []
        rows = min(OWN_ROWS, self.rows)
        used: dict[str, list[float]] = {}
        flags = {
            "dicts": [],
            "batches": ["--kind", "batches"],
            "dicts, dropped": ["--drop"],
            "batches, dropped": ["--kind", "batches", "--drop"],
        }

        def work(name: str, count: int) -> Callable[[], float]:
            def run() -> float:
                measured = self._own(count, *flags.get(name, ()), peer=name == "Beam")
                used.setdefault(f"{name} {count}", []).append(
                    measured.processor_seconds
                )
                return measured.seconds

            return run

        names = [*flags, "Beam"]
        counts = (rows // 10, rows)
        medians = self._interleave(
            {f"{name} {count}": work(name, count) for count in counts for name in names}
        )
        processor = {name: statistics.median(each) for name, each in used.items()}

        def each_row(name: str) -> float:
            """Returns the microseconds of processor time that a further row takes."""
            small, large = (processor[f"{name} {count}"] for count in counts)
            return (large - small) / (counts[1] - counts[0]) * 1e6

        results = []
        theirs = f"Beam {rows}"
        for kind, bound in (("dicts", 6.0), ("batches", 10.0)):
            ours = f"{kind} {rows}"
            facts = {
                "theirs s": medians[theirs],
                "ours s": medians[ours],
                "processor x": processor[theirs] / processor[ours],
                "theirs us a row": each_row("Beam"),
                "ours us a row": each_row(kind),
                "of it making and handing over": each_row(f"{kind}, dropped"),
            }
            reached = medians[theirs] / medians[ours]
            work_name = f"own pipeline, {rows:,} rows in {kind}"
            results.append(Result(work_name, "WriteToTFRecord", bound, reached, facts))
        return [*results, *self._own_memory(rows)]

    def growth(self) -> list[Result]:
        """Fits how cost grows over two decades of each line of `growth.py`."""
        if self.peers_only:
            return []
        programs = {"ours": growth.Programs(self.ours_python)}
        results = []
        for line in growth.LINES:
            found = growth.costs(
                line, programs, runs=1, small=True, scratch=self.scratch / "g"
            )
            for cost in found:
                facts = {"us a unit": cost.unit_costs[-1]} if cost.unit_costs else {}
                facts |= {"times the empty run": cost.of_empty}
                work = f"{cost.command}, by {line.name}, exponent"
                bound = MAX_SMALL_EXPONENT
                reached = cost.exponent
                results.append(
                    Result(work, "1", bound, reached, facts, at_most=True, unit="")
                )
        return results

    def _own(
        self, rows: int, *flags: str, peer: bool = False, memory: bool = False
    ) -> measure.Measured:
        """Runs a pipeline that makes the rows; a peer's writes them in Beam's way."""
        python = self.peers_python if peer else self.ours_python
        script = "peers/beam_rows.py" if peer else "own_rows.py"
        with _fresh(self.scratch / "own") as folder:
            command: measure.Command = [
                python,
                BENCH / script,
                folder,
                "--rows",
                str(rows),
                *flags,
            ]
            return measure.run(command, memory=memory)

    def _own_memory(self, rows: int) -> list[Result]:
        """Compares the peaks of pipelines that write dicts and that drop them."""
        written, dropped = (
            self._own(rows, *flags, memory=True).process_bytes / 1e6
            for flags in ((), ("--drop",))
        )
        facts = {"written MB": written, "dropped MB": dropped}
        work = f"own pipeline, {rows:,} rows, peak memory"
        bound = MAX_OWN_ROWS_BYTES / 1e6
        more = written - dropped
        return [
            Result(work, "rows dropped", bound, more, facts, at_most=True, unit=" MB")
        ]


def _beyond_start(count: int, medians: Mapping[str, float]) -> list[Result]:
    """Compares what images take beyond the start with what the plain loop takes."""

    def each(name: str, start: str) -> float:
        return (medians[name] - medians[f"{start}, one image"]) / (count - 1)

    loop = each("plain loop", "plain loop")
    results = []
    for name, bound in (("ours", 0.7), ("ours, two workers", 0.8)):
        work = name.replace("ours", f"{count:,} images, each")
        facts, reached = {"plain loop us an image": loop * 1e6}, None
        if name in medians:
            ours = each(name, "ours")
            facts["ours us an image"], reached = ours * 1e6, loop / ours
        results.append(Result(work, "plain loop", bound, reached, facts))
    return results


class _fresh:  # noqa: N801 - used as a function
    """Provides an empty folder inside a `with` block."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def __enter__(self) -> pathlib.Path:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self.folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)


WORKS = (
    "csv",
    "wide",
    "encode",
    "images",
    "memory",
    "workers",
    "verify",
    "own",
    "growth",
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(WORKS), help=f"of {','.join(WORKS)}")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--images", type=int, default=20_000)
    runs = int(os.environ.get("BENCH_RUNS", "3"))
    parser.add_argument("--runs", type=int, default=runs, help="runs per median")
    parser.add_argument("--ours", default=os.fspath(ROOT / ".venv/bin/python"))
    parser.add_argument("--peers", default=os.fspath(BENCH / ".venv/bin/python"))
    ray = os.fspath(BENCH / ".venv-ray/bin/python")
    parser.add_argument("--ray", default=ray)
    parser.add_argument("--peers-only", action="store_true", help="leave ours out")
    arguments = parser.parse_args()
    arguments.only = arguments.only.split(",")
    if unknown := set(arguments.only) - set(WORKS):
        parser.error(f"unknown work {', '.join(sorted(unknown))}: {', '.join(WORKS)}")
    return arguments


def _print_table(results: Sequence[Result]) -> None:
    header = ("work", "against", "required", "reached", "", "medians")
    rows = [header, *(result.row() for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())


def _save(results: Sequence[Result], arguments: argparse.Namespace) -> pathlib.Path:
    now = datetime.datetime.now(datetime.UTC)
    folder = BENCH / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{now:%Y%m%d-%H%M%S}.json"
    facts = {
        "time": now.isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "runs": arguments.runs,
        "results": [
            {**dataclasses.asdict(result), "passed": result.passed}
            for result in results
        ],
    }
    path.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return path


def main() -> int:
    """Runs the requested work; returns 1 if a requirement is missed."""
    arguments = _arguments()
    measure.compile_program(arguments.ours)
    bench = Bench(arguments)
    results: list[Result] = []
    for name in WORKS:
        if name in arguments.only:
            work = getattr(bench, name)
            print(f"{name}: {work.__doc__}", flush=True)
            results.extend(work())
    print()
    _print_table(results)
    print(f"\n{_save(results, arguments).relative_to(ROOT)}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
