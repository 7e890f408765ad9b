"""Helpers of the fuzz tests: damage from a seed, a time limit, and a full read.

A damaged input may give rows, rejections or one typed error, within two seconds, and
loses no row silently. The file of a case stays in its folder, even if the process
crashes; `tests/support/corpus/` holds inputs that once failed.
"""

import contextlib
import dataclasses
import functools
import pathlib
import pickle
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_pipeline.planning.inputs import PlannedInputs
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import make_spec
from transforms.core.model import Batch
from transforms.errors import MAX_MESSAGE_BYTES, BeamTFRecordError
from transforms.formats.source import Source
from transforms.storage import paths

CORPUS = pathlib.Path(__file__).parent / "corpus"
# Processor time: a busy machine is not the reader's fault.
LONGEST_SECONDS = 2.0
# Wall time: a reader that waits for ever uses no processor time.
LONGEST_WAIT = 60.0
OUTCOMES = ("error", "rejected", "clean")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of reading a source: its rows and their account, or the error.

    Attributes:
      rows: of all blocks, as Python values with their number in their origin.
      read, rejected, skipped: items.
      error: the message, where it could not be read.
    """

    rows: Sequence[Any] = ()
    read: int = 0
    rejected: int = 0
    skipped: int = 0
    error: str = ""

    @property
    def kind(self) -> str:
        """One of `OUTCOMES`: "rejected" is for some items."""
        if self.error:
            return "error"
        return "rejected" if self.rejected else "clean"


@contextlib.contextmanager
def at_most(seconds: float = LONGEST_SECONDS) -> Iterator[None]:
    """Fails if the body takes longer; stops Python code, checks C code afterwards."""

    def stop(number: int, *_: object) -> None:
        limit = seconds if number == signal.SIGPROF else LONGEST_WAIT
        raise AssertionError(f"still busy after {limit} seconds")

    clocks = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {number: signal.signal(number, stop) for number in clocks}
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT)
    try:
        yield
    finally:
        for number, clock in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


def mutated(data: bytes, rng: random.Random, tokens: Sequence[bytes] = ()) -> bytes:
    """Returns the bytes after one to five changes of any kind.

    Bits flip, runs are replaced, cut out, doubled, moved or zeroed, numbers become
    extreme, the end is lost, and `tokens` (what means something in the format) come in.
    """
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not out:
            break
        place = rng.randrange(len(out))
        size = rng.choice((1, 1, 2, 4, 8, 30, 512))
        match rng.randrange(9 if tokens else 8):
            case 0:
                out[place] ^= 1 << rng.randrange(8)
            case 1:
                out[place : place + size] = rng.randbytes(min(size, 8))
            case 2:
                del out[place : place + size]
            case 3:
                out[place:place] = out[place : place + size]
            case 4:
                width = rng.choice((1, 2, 4, 8))
                extreme = rng.choice((0, 1, 1 << 7, (1 << 8) - 1))
                low = rng.choice((b"\0", b"\xff", bytes([extreme])))
                out[place : place + width] = low * (width - 1) + bytes([extreme])
            case 5:
                del out[rng.randrange(len(out)) :]
            case 6:
                other = rng.randrange(len(out))
                out[place:place] = out[other : other + size]
            case 7:
                out[place : place + size] = bytes(min(size, len(out) - place))
            case _:
                token = rng.choice(tokens)
                out[place : place + rng.choice((0, 0, 1, len(token)))] = token
    return bytes(out)


@dataclasses.dataclass(frozen=True)
class Subject:
    """A good file, and how it is read.

    Attributes:
      name: of the file; formats are known by it.
      data: its bytes.
      settings: of the spec.
      beside: files in its folder that are read with it.
      source: what is named as the source, where it is not the file itself.
    """

    name: str
    data: bytes
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    beside: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    source: str = ""

    def write(self, folder: pathlib.Path, data: bytes) -> pathlib.Path:
        """Writes the file with other bytes; returns what to name as the source."""
        if not folder.exists():
            folder.mkdir(parents=True)
            for name, content in {**self.beside, self.name: data}.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(content)
        (folder / self.name).write_bytes(data)
        return folder / (self.source or self.name)


def planned_source(path: pathlib.Path, **settings: Any) -> PlannedInputs:
    """Plans a source as a run does; nothing is written."""
    spec = make_spec({"source": str(path), "output": "/nonexistent/out", **settings})
    return plan_source(spec)[1]


def read_planned(planned: PlannedInputs, path: pathlib.Path) -> Outcome:
    """Reads all blocks of a planned source, as a run does; checks the account.

    Where the source is one file, it may have become another one since planning.
    """
    table = planned.listing.table()
    if path.is_file() and table.num_rows == 1 and "stamp" in table.column_names:
        status = path.stat()
        stamp = paths.stamp(status.st_size, status.st_mtime_ns)
        for name, value in (("size", status.st_size), ("stamp", stamp)):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array([value], pa.int64()))
    listing = f"{path}.listing"
    with (
        pa.OSFile(listing, "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    source: Source = pickle.loads(pickle.dumps(planned.make(listing)))
    rows: list[Any] = []
    seen: Counter[tuple[str, int]] = Counter()
    rejected = skipped = 0
    for number in source.inputs():
        for block in source.blocks(number):
            for reading in source.read(block):
                batch = reading.batch
                refused = [r for r in reading.rejections if not r.part]
                left_out = sum(reading.skipped.values())
                for rejection in reading.rejections:
                    assert len(rejection.message.encode()) <= MAX_MESSAGE_BYTES
                found = _rows_of(batch)
                rows += found
                rejected += len(refused)
                skipped += left_out
                seen.update((origin, row) for origin, row, _ in found)
                seen.update((r.source, (r.row or 1) - 1) for r in refused)
                if not source.many_origins:
                    # Skipped items may be rows, or members beside the table.
                    items = len(found) + len(refused)
                    assert batch.block.rows in (items, items + left_out)
    assert not seen or max(seen.values()) == 1, seen.most_common(3)
    if not skipped and not source.many_origins:
        # Every row up to the last one is there.
        for origin in {origin for origin, _ in seen}:
            numbers = sorted(row for found, row in seen if found == origin)
            assert numbers == list(range(len(numbers)))
    read = len(rows) + rejected + skipped
    assert planned.expected_rows in (None, read)
    return Outcome(rows, read, rejected, skipped)


def _rows_of(batch: Batch) -> list[tuple[str, int, dict[str, Any]]]:
    """Returns (origin, number, values) of each row, and reads every value."""
    count = batch.rows.num_rows
    batch.rows.validate(full=True)
    origins = (
        [batch.block.origin] * count
        if batch.origins is None
        else batch.origins.to_pylist()
    )
    numbers = batch.numbers.tolist()
    return list(zip(origins, numbers, batch.rows.to_pylist(), strict=True))


@contextlib.contextmanager
def nothing_unraised() -> Iterator[None]:
    """Fails where an exception is printed because nothing can catch it."""
    found: list[object] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda unraised: found.append(unraised.exc_value)
    try:
        yield
    finally:
        sys.unraisablehook = before
    assert not found, found


def outcome_of(read: Callable[[], Outcome]) -> Outcome:
    """Returns the outcome of `read`, maybe a typed error, within the time limit."""
    started = time.process_time()
    with at_most(), nothing_unraised():
        try:
            found = read()
        except BeamTFRecordError as error:
            message = str(error)
            assert 0 < len(message.encode()) <= MAX_MESSAGE_BYTES
            found = Outcome(error=message)
    assert time.process_time() - started <= LONGEST_SECONDS
    return found


def fuzzed(
    folder: pathlib.Path,
    subjects: Sequence[Subject],
    cases: range,
    *,
    change: Callable[[bytes, random.Random], bytes] = mutated,
    planned_before: bool = True,
) -> Counter[str]:
    """Reads damaged files of one kind; returns how often each kind of outcome came.

    Args:
      folder: where the file of the current case is.
      subjects: used in turn.
      cases: their numbers; each by itself decides the damage.
      change: damages a file.
      planned_before: whether three of four are read under the plan of the good file,
        which goes deeper: damage then meets known columns.
    """
    outcomes: Counter[str] = Counter()
    plans: dict[int, PlannedInputs] = {}
    for number, subject in enumerate(subjects):
        path = subject.write(folder / str(number), subject.data)
        if planned_before:
            plans[number] = planned_source(path, **subject.settings)
    for case in cases:
        turn, number = divmod(case, len(subjects))
        subject = subjects[number]
        rng = random.Random(f"{subject.name} {case}")
        path = subject.write(folder / str(number), change(subject.data, rng))

        known = plans.get(number) if turn % 4 else None
        read = functools.partial(_read_anew, path, subject.settings, known)
        try:
            outcome = outcome_of(read)
        except BaseException as error:
            error.add_note(f"case {case}: subject {number}, turn {turn}: {path}")
            raise
        outcomes[outcome.kind] += 1
    return outcomes


def _read_anew(
    path: pathlib.Path, settings: Mapping[str, Any], known: PlannedInputs | None
) -> Outcome:
    return read_planned(known or planned_source(path, **settings), path)


def corpus(kind: str) -> list[pathlib.Path]:
    """Returns the inputs of a kind that once failed, sorted by name."""
    return sorted(path for path in (CORPUS / kind).rglob("*") if path.is_file())


def replayed(path: pathlib.Path, folder: pathlib.Path) -> Outcome:
    """Reads a file of the corpus as a source of its own, in an empty folder."""
    copy = folder / path.name
    copy.write_bytes(path.read_bytes())
    return outcome_of(lambda: read_planned(planned_source(copy), copy))
