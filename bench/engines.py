"""Measures the cost of each engine: one job run locally, on Flink, Spark and Prism.

    make bench-engines
    make bench-engines BENCH_ARGS="--engines local,prism --rows 1000000 --images 2000"

Times are medians of whole processes from import to exit, run in turn. Every engine's
dataset must have the digest of the local one. `scripts/cluster flink up` and
`scripts/cluster spark up` start the clusters; an engine that does not run is reported
and left out. The time for a job of one row is the overhead of an engine.
"""

import argparse
import datetime
import json
import pathlib
import platform
import shutil
import statistics
import sys

import data
import measure

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
PROGRAM = (str(ROOT / ".venv" / "bin" / "python"), "-m", "beam_pipeline", "convert")
ENGINES = ("local", "flink", "spark", "prism")


def _run(engine: str, source: pathlib.Path, output: pathlib.Path) -> tuple[float, str]:
    """Returns the seconds of one conversion, and the digest of what it wrote."""
    shutil.rmtree(output, ignore_errors=True)
    command = (*PROGRAM, str(source), str(output), "--quiet", "--runner", engine)
    try:
        seconds = measure.run(command).seconds
        manifest = json.loads((output / "manifest.json").read_bytes())
    finally:
        shutil.rmtree(output, ignore_errors=True)
    facts = json.dumps(manifest["dataset"], sort_keys=True)
    return seconds, facts


def _one_row(folder: pathlib.Path) -> pathlib.Path:
    path = folder / "one-row.csv"
    path.write_text("number,name\n1,one\n")
    return path


def _measured(
    engines: list[str], source: pathlib.Path, output: pathlib.Path, runs: int
) -> dict[str, float]:
    """Returns the median seconds of each engine; all must write the same."""
    seconds: dict[str, list[float]] = {engine: [] for engine in engines}
    written = set()
    for _ in range(runs):
        for engine in engines:
            took, facts = _run(engine, source, output)
            seconds[engine].append(took)
            written.add(facts)
    if len(written) > 1:
        raise SystemExit(f"error: the engines' datasets of {source} differ")
    return {engine: statistics.median(each) for engine, each in seconds.items()}


def _running(
    engines: list[str], source: pathlib.Path, output: pathlib.Path
) -> list[str]:
    """Returns the engines that can run a job of one row; prints why others cannot."""
    found = []
    for engine in engines:
        try:
            _run(engine, source, output)
        except measure.ProcessFailedError as error:
            print(f"{engine}: left out: {error}", file=sys.stderr)
        else:
            found.append(engine)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What each engine costs.")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


def main() -> int:
    """Prints seconds, rates and what each engine adds to the local run."""
    given = _arguments()
    folder = data.data_folder()
    output = folder / "engines-output"
    small = _one_row(folder)
    engines = _running(given.engines.split(","), small, output)
    works = {
        "1 row": (small, 1),
        f"{given.rows:,} rows": (data.csv_of(given.rows), given.rows),
        f"{given.images:,} images": (data.images_of(given.images), given.images),
    }
    results = {}
    print(f"{'work':<18}{'engine':<8}{'seconds':>9}{'a second':>13}{'to local':>10}")
    for work, (source, items) in works.items():
        found = _measured(engines, source, output, given.runs)
        results[work] = found
        for engine, seconds in found.items():
            ratio = seconds / found["local"] if "local" in found else float("nan")
            rate = items / seconds
            print(f"{work:<18}{engine:<8}{seconds:>9.2f}{rate:>13,.0f}{ratio:>9.2f}x")
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    path = BENCH / "results" / f"engines-{stamp}.json"
    path.parent.mkdir(exist_ok=True)
    facts = {"machine": platform.machine(), "runs": given.runs, "seconds": results}
    path.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"saved {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
