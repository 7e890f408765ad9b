"""Infer a feature for each raw column: texts by their cells, others by their type."""

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from transforms.core.infer.evidence import Found, Inference, inference
from transforms.core.infer.texts import infer_texts
from transforms.errors import SpecError, nearest


def infer_columns(
    columns: Mapping[str, pa.Array | pa.ChunkedArray],
    *,
    label_column: str | None = None,
) -> Inference:
    """Returns a feature for each raw column, in the mapping's order.

    Args:
      columns: name to n values.
      label_column: the column to predict. It becomes a label if it is text, and keeps
        its kind otherwise.

    Raises:
      SpecError: there is no column of the label's name.
      InputError: no feature can hold a column's type; names column and type.
    """
    if label_column is not None and label_column not in columns:
        raise SpecError(
            f"the label must be a column of the source; there is no {label_column!r}"
            f"{nearest(label_column, columns)}"
        )
    rows = len(next(iter(columns.values()), ()))
    return infer_batches([columns], label_column=label_column, rows=rows)


def infer_batches(
    batches: Iterable[Mapping[str, pa.Array | pa.ChunkedArray]],
    *,
    label_column: str | None = None,
    rows: int | None = None,
) -> Inference:
    """Returns a feature for each raw column, from all rows of all batches.

    Memory: one batch. The type of a column is that of the first batch that has it.

    Args:
      batches: name to values; see `infer_columns`.
      label_column: likewise.
      rows: the number of rows of all batches, if known.
    """
    typed: dict[str, Found] = {}
    order: dict[str, None] = {}

    def texts() -> Iterator[dict[str, pa.Array | pa.ChunkedArray]]:
        for batch in batches:
            order.update(dict.fromkeys(batch))
            others = {k: v for k, v in batch.items() if not pa.types.is_string(v.type)}
            if others:
                _gather(others, typed)
            yield {name: batch[name] for name in batch if name not in others}

    found = infer_texts(texts(), rows=rows)
    found = typed | found
    return inference({name: found[name] for name in order}, label_column)


def _gather(
    columns: Mapping[str, pa.Array | pa.ChunkedArray], found: dict[str, Found]
) -> None:
    """Adds the evidence of a batch of typed columns."""
    # Imported here because tables of text, the most frequent ones, start without it.
    from transforms.core.infer.typed import infer_typed

    for name, (feature, evidence) in infer_typed(columns).items():
        if name in found:
            feature, before = found[name]
            evidence = before.merge(evidence)
        found[name] = (feature, evidence)
