"""The exception tree: every failure that a user can meet has a type here.

    BeamTFRecordError             exit 1: the run failed, nothing was committed
     +- UsageError                exit 2: what was asked for cannot be done
     |   +- SpecError             a setting is wrong; the message names it
     |   +- SourceError           the source is missing, or the job cannot use it
     |   |   +- InputError        exit 4: it exists, but its content does not fit
     |   +- TargetError           the output cannot be written there
     |   |   +- BusyError         exit 5: another run is writing there; try later
     +- RejectLimitError          exit 3: more rejects than the job tolerates
     +- RecordCountError          exit 3: fewer or more records than the job allows
     +- DamageError               a file does not hold what its format promises
     |   +- TFRecordError         framing: carries path, record, offset and kind
     |   +- ExampleError          a payload that is not a tf.train.Example
     |       +- RecordKindError   exit 4: but a SequenceExample, or a list of Examples;
     |                             an InputError, too
     +- EncodingError             a value cannot become a tf.train.Example
     +- StorageError              a file could not be read or written
     +- WorkerError               a worker's machine or image does not fit the job
     +- ConservationError         read != written + rejected + skipped
     +- CommitError               the finished dataset could not be published
         +- RaceError             exit 5: another run has published there meanwhile

A message states what must hold, what was found, where, and what to do, in at most
1 KiB; a longer one is cut in the middle, so that its end (what to do) stays. It names a
setting by its option, --max-reject-rate, also where Python raises it.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

MAX_MESSAGE_BYTES = 1024
# Characters of a value in a message: enough to recognise it, few enough to fit.
SHOWN_CHARS = 60
# Added to the exception that stops a run after its dataset was published.
COMMITTED_NOTE = "the dataset had been committed"
# Added where Python raises an error that names an option.
_OPTIONS_NOTE = (
    "Options of the command line are keywords in Python: --max-reject-rate 0.1 is "
    "max_reject_rate=0.1, and --no-header is header=False."
)
# The minimum ratio of difflib at which a name is suggested. "verbose" and
# "overwrite" have 0.5, "version" and "verify" 0.62, "shrads" and "shards" 0.83.
_ALIKE = 0.7
# How many known names a message lists, and how many characters of each.
_NAMES = 8
_NAME_CHARS = 60


def bounded(message: str, limit: int = MAX_MESSAGE_BYTES) -> str:
    """Returns the message in at most `limit` UTF-8 bytes, cut in the middle."""
    data = message.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode("utf-8")
    mark = b" ... "
    head = (limit - len(mark)) * 2 // 3
    tail = limit - len(mark) - head
    kept = data[:head].decode("utf-8", "ignore").encode() + mark
    return (kept + data[-tail:]).decode("utf-8", "ignore")


def shortened(text: str) -> str:
    """Returns a value's text for a message, in at most `SHOWN_CHARS` characters."""
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."


def first_few(texts: Sequence[str], shown: int) -> str:
    """Returns the first texts for a message, and how many more there are."""
    more = len(texts) - shown
    return ", ".join(texts[:shown]) + (f" and {more:,} more" if more > 0 else "")


def closest(name: str, names: Iterable[str]) -> str | None:
    """Returns the known name that a misspelt one resembles, or None."""
    # Imported here, because few runs need it.
    import difflib

    folded: dict[str, str] = {}
    for candidate in names:
        folded.setdefault(candidate.casefold(), candidate)
    near = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=_ALIKE)
    return folded[near[0]] if near else None


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message: the name probably meant, or some known names."""
    names = list(names)
    near = closest(name, names)
    if near is not None:
        return f"; the nearest name is {near!r}"
    shown = first_few([repr(candidate[:_NAME_CHARS]) for candidate in names], _NAMES)
    return f"; known names are {shown}" if names else ""


class BeamTFRecordError(Exception):
    """The run failed and nothing was committed. Base of all errors here.

    Attributes:
      account: what became of the items, as plain JSON, and the path of the `rejects`;
        None if the run did not get that far.
    """

    exit_code = 1
    account: Mapping[str, Any] | None = None

    def __init__(self, message: str) -> None:
        super().__init__(bounded(message.replace("\n", " ")))


class UsageError(BeamTFRecordError):
    """What was asked for cannot be done."""

    exit_code = 2


class SpecError(UsageError):
    """A setting is unknown, malformed or contradicts another."""


class SourceError(UsageError):
    """The source is missing, or of a form that the job cannot use."""


class InputError(SourceError):
    """The source is there, but unreadable or its content does not fit."""

    exit_code = 4


def source_error(message: str, error: Exception) -> SourceError:
    """Returns the error for a path that could not be opened: missing or unreadable."""
    missing = isinstance(error, FileNotFoundError | NotADirectoryError)
    return SourceError(message) if missing else InputError(message)


@contextlib.contextmanager
def refusing(kind: type[BeamTFRecordError], what: str) -> Iterator[None]:
    """Raises an error of ours for an OSError: what must hold, and why it does not."""
    try:
        yield
    except OSError as error:
        raise kind(f"{what}: {error.strerror}.") from error


@contextlib.contextmanager
def raising_in_python() -> Iterator[None]:
    """Lets errors through without their causes, and with a note if they name an option.

    A cause stays where it may be a fault of the program, or of a user's own step.
    """
    try:
        yield
    except BeamTFRecordError as error:
        if "--" in str(error) and _OPTIONS_NOTE not in getattr(error, "__notes__", ()):
            error.add_note(_OPTIONS_NOTE)
        if type(error) in (BeamTFRecordError, ConservationError):
            raise
        raise error from None


def no_memory() -> BeamTFRecordError:
    """Returns the error of a run that the system refuses memory or a thread."""
    # Imported here, because few runs need it.
    import resource

    size, _ = resource.getrlimit(resource.RLIMIT_AS)
    limit = "" if size == resource.RLIM_INFINITY else f" is {size >> 10:,} KiB"
    return BeamTFRecordError(
        f"The run must get memory and threads; the system refuses more. Address space "
        f"(ulimit -v{limit}; each thread reserves 8 MiB or more), memory or the number "
        f"of processes (ulimit -u) is used up. Raise the limit, or use fewer --workers."
    )


class TargetError(UsageError):
    """The output exists, is inside the source or cannot be written."""


class BusyError(TargetError):
    """Another run is writing to the output; the same command may succeed later."""

    exit_code = 5


class RejectLimitError(BeamTFRecordError):
    """More items were rejected than the job tolerates."""

    exit_code = 3


class RecordCountError(BeamTFRecordError):
    """The dataset would have fewer or more records than the job allows."""

    exit_code = 3


class DamageError(BeamTFRecordError):
    """A file does not hold what its format promises."""


class TFRecordError(DamageError):
    """The framing of a TFRecord file is damaged.

    Attributes:
      path: the file as the caller named it.
      record: 0-based index of the damaged record, or of the one expected next.
      offset: byte offset of that record's header in the uncompressed stream.
      kind: one of the words in `transforms.core.tfrecord.frame.DAMAGE_KINDS`.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        record: int = -1,
        offset: int = -1,
        kind: str = "",
    ) -> None:
        super().__init__(message)
        self.path = path
        self.record = record
        self.offset = offset
        self.kind = kind


class ExampleError(DamageError):
    """A payload is not a serialised tf.train.Example."""


class RecordKindError(ExampleError, InputError):
    """A payload is a SequenceExample or an ExampleListWithContext that is not read."""


class EncodingError(BeamTFRecordError):
    """A value cannot become part of a tf.train.Example."""


class StorageError(BeamTFRecordError):
    """Storage failed permanently, with or without retries, or the disk is full."""


class WorkerError(BeamTFRecordError):
    """A worker's machine or image does not fit the job; a retry cannot help."""


class ConservationError(BeamTFRecordError):
    """The counts do not add up: items would have been lost or duplicated."""


class CommitError(BeamTFRecordError):
    """The finished dataset could not be published; the target is as it was."""


class RaceError(CommitError):
    """Another run has published at the output since this one started; run again."""

    exit_code = 5
