"""Five nights of one job, with all that goes wrong, and a reader that never fails.

    python five_days.py FOLDER_OR_URL

Each night a file arrives, and becomes a part of the dataset. Runs are killed at random
moments and tried again, as cron does. The last three days are filled in at once. A
reader looks at the dataset all the time: what it sees is whole days, each row once.
"""

import pathlib
import random
import subprocess
import sys
import tempfile
import threading

from beam_tfrecord import BeamTFRecordError, UsageError, open_dataset

ROWS = 200
PROGRAM = [sys.executable, "-m", "beam_pipeline", "convert"]
OPTIONS = [
    *("--label-column", "kind", "--splits", "train=0.8,test=0.2"),
    *("--key-column", "id", "--quiet"),
]
# Another run was first, or this one was killed: both are to be tried again.
AGAIN = (5, -9)
DRIFT = 4


def deliver(folder: pathlib.Path, day: int, kinds: str, head: str = "id,kind") -> None:
    """Writes the file of a day; its rows have the kinds in turns."""
    more = ",x" * (head.count(",") - 1)
    rows = [f"{day * ROWS + n},{kinds[n % len(kinds)]}{more}" for n in range(ROWS)]
    (folder / f"{day}.csv").write_text("\n".join([head, *rows, ""]))


def attempt(folder: pathlib.Path, output: str, day: int, *options: str) -> int:
    """Converts a day once; one attempt in three is killed. Returns the exit code."""
    part = ["--part", f"2026-11-0{day}"]
    source = str(folder / f"{day}.csv")
    run = subprocess.Popen(
        [*PROGRAM, source, output, *part, *OPTIONS, *options], stderr=subprocess.PIPE
    )
    if random.random() < 1 / 3:
        try:
            run.wait(random.uniform(0.2, 2))
        except subprocess.TimeoutExpired:
            run.kill()
    run.communicate()
    return run.returncode


def night(folder: pathlib.Path, output: str, day: int, *options: str) -> int:
    """Tries until the day is there, or its file does not fit."""
    while (code := attempt(folder, output, day, *options)) in AGAIN:
        pass
    return code


def look(
    output: str, done: threading.Event, seen: list[int], failed: list[Exception]
) -> None:
    """Reads the dataset again and again; notes how many days it had each time."""
    try:
        read(output, done, seen)
    except (AssertionError, BeamTFRecordError, OSError) as error:
        failed.append(error)


def read(output: str, done: threading.Event, seen: list[int]) -> None:
    """As `look`; raises what goes wrong."""
    while not done.is_set():
        try:
            dataset = open_dataset(output)
        except UsageError:
            # There is no part yet.
            continue
        ids = [row["id"] for split in dataset for row in dataset[split].select(["id"])]
        assert len(set(ids)) == len(ids) == ROWS * len(dataset.parts)
        seen.append(len(dataset.parts))


def main(output: str) -> None:
    """Runs the five nights."""
    done, seen = threading.Event(), [0]
    failed: list[Exception] = []
    reader = threading.Thread(target=look, args=(output, done, seen, failed))
    reader.start()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        deliver(folder, 1, "bd")
        assert night(folder, output, 1) == 0
        # A retried night changes nothing.
        assert night(folder, output, 1) == 0
        # A new class and a new column: somebody must say that they are meant.
        deliver(folder, 2, "abd", head="id,kind,extra")
        assert night(folder, output, 2) == DRIFT
        allow = ("--allow", "new-classes", "--allow", "new-columns")
        assert night(folder, output, 2, *allow) == 0
        # Three days at once.
        codes: list[int] = []
        threads = []
        for day in (3, 4, 5):
            deliver(folder, day, "bd")
            run = threading.Thread(
                target=lambda day=day: codes.append(night(folder, output, day))
            )
            threads.append(run)
        for run in threads:
            run.start()
        for run in threads:
            run.join()
        assert codes == [0, 0, 0]
    done.set()
    reader.join()
    assert not failed, failed
    assert seen == sorted(seen), "no day was lost"
    dataset = open_dataset(output)
    assert list(dataset.parts) == [f"2026-11-0{day}" for day in range(1, 6)]
    print(f"{len(dataset.parts)} days, classes {', '.join(dataset.classes['kind'])}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: five_days.py FOLDER_OR_URL")
    main(sys.argv[1])
