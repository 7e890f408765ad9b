"""A condition over typed rows of a source, before they become records.

Class ids are settled when all rows are read, so a label is compared by its class names.
What is read off an image, such as its height, is known later still.
"""

import collections
import dataclasses

import numpy as np
import pyarrow as pa

from transforms.core.model import Reading
from transforms.core.reasons import Skipped
from transforms.core.rows.record_columns import count_parts
from transforms.core.schema import Kind, Schema
from transforms.errors import SpecError
from transforms.reading.condition import Condition, parse_condition


@dataclasses.dataclass(frozen=True, slots=True)
class RowFilter:
    """Moves rows for which a condition does not hold to what a reading has skipped.

    Attributes:
      condition: over columns of the rows; rows for which it is unknown are skipped.
      schema: of the rows.
    """

    condition: Condition
    schema: Schema

    def __call__(self, reading: Reading) -> Reading:
        """Returns the reading with the rows for which the condition holds."""
        rows = reading.batch.rows
        keep = self.condition.certain(rows)
        left_out = int(np.count_nonzero(~keep))
        if not left_out:
            return reading
        gone = collections.Counter(reading.parts_gone)
        gone.update(count_parts(rows.filter(pa.array(~keep)), self.schema.features))
        return dataclasses.replace(
            reading,
            batch=reading.batch.filter(keep),
            skipped={**reading.skipped, str(Skipped.FILTERED): left_out},
            parts_gone=dict(gone),
        )


def row_filter(text: str, schema: Schema) -> RowFilter:
    """Returns the filter that a condition states.

    >>> from transforms.core.schema import Feature
    >>> schema = Schema((Feature("kind", Kind.LABEL),))
    >>> row_filter("kind == 'dog'", schema).condition.columns
    ('kind',)

    Args:
      text: the condition; see `condition`.
      schema: of the rows.

    Raises:
      SpecError: the text is no condition over the columns of these rows.
    """
    features = [
        dataclasses.replace(stored, kind=Kind.TEXT, vocabulary=None)
        if stored.kind is Kind.LABEL
        else stored
        for stored in schema.stored
    ]
    condition = parse_condition(text, features, {})
    for feature in schema.stored:
        if feature.derived and feature.name in condition.columns:
            raise SpecError(
                f"where must be over columns of the source; {feature.name!r} is read "
                f"off each image, after rows are chosen. Convert all of them, and take "
                f"a part: beam-tfrecord subset --where."
            )
    return RowFilter(condition, schema)
