"""Records that are none of the features': the file and the number of the first."""

from collections.abc import Callable

from transforms.core.tfrecord.reader import PayloadBatch
from transforms.errors import ExampleError, RecordKindError, bounded
from transforms.reading.positions import Longs
from transforms.reading.records import Records


def first_misfit(
    error: ExampleError,
    payloads: PayloadBatch,
    records: Records,
    positions: Longs,
    decode: Callable[[bytes], object],
) -> ExampleError:
    """Returns the error of the first record that cannot be decoded.

    Args:
      error: of the records together; returned where each can be decoded by itself.
      payloads: n records.
      records: that they are among.
      positions: n positions there.
      decode: decodes one, or raises ExampleError.
    """
    for place, position in enumerate(positions.tolist()):
        try:
            decode(payloads.payload(place))
        except ExampleError as first:
            return located(first, records, position)
    return error


def located(error: ExampleError, records: Records, position: int) -> ExampleError:
    """Returns the error of one record with its file and its number there."""
    path, record = records.origin(position)
    what = str(error).removeprefix("example 0: ").rstrip(".")
    advice = (
        "Check the file with 'beam-tfrecord verify', or describe it with features=."
    )
    if isinstance(error, RecordKindError):
        # Its message says what to do.
        return RecordKindError(f"{path}: record {record:,}: {what}.")
    return ExampleError(bounded(f"{path}: record {record:,}: {what}. {advice}"))
