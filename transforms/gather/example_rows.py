"""Serialised tf.train.Examples as rows under known features."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from transforms.core.example.decoder import decode_examples
from transforms.core.schema import Feature
from transforms.errors import EncodingError
from transforms.formats.tfrecord_files.features import composed, record_types


def rows_of_examples(
    payloads: Sequence[bytes], features: Sequence[Feature]
) -> pa.RecordBatch:
    """Returns n Examples as n rows: labels by name, a feature that is absent as null.

    Args:
      payloads: n Examples, at least one.
      features: as `like=` or `features=` says them; others of the records are left out.

    Raises:
      ExampleError: a payload is no Example, or not of these features.
      EncodingError: a value is none that the feature has, as an id without a class.
    """
    read = [feature for feature in features if not feature.derived]
    types: dict[str, pa.DataType] = {}
    for feature in read:
        types |= record_types(feature)
    batch = decode_examples(payloads, schema=pa.schema(list(types.items())))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    out = {}
    for feature in read:
        found = composed(feature, columns)
        if found.bad is not None:
            place = int(np.argmax(found.bad))
            raise EncodingError(
                f"Every Example must be of the schema; {found.message}, in "
                f"{payloads[place][:80]!r}. Correct it, or leave it out."
            )
        out[feature.name] = found.column
    return pa.RecordBatch.from_pydict(out)
