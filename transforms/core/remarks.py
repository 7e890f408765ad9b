"""What a run found that is no fault and that a person should know, in sentences."""

from collections.abc import Iterable, Sequence

from transforms.core.model import ReadFacts
from transforms.core.schema import Feature
from transforms.errors import bounded, first_few

__all__ = ["padding_remarks", "underflow_remarks"]

_SHOWN = 10
_SHOWN_CHARS = 60


def padding_remarks(features: Sequence[Feature]) -> list[str]:
    """Returns which columns of the source have a name with white space at its ends."""
    columns = dict.fromkeys(
        feature.source_column
        for feature in features
        if feature.constant is None and not feature.derived
    )
    padded = [name for name in columns if name != name.strip()]
    if not padded:
        return []
    shown = first_few([repr(name[:_SHOWN_CHARS]) for name in padded], _SHOWN)
    what = (
        "1 column name begins or ends"
        if len(padded) == 1
        else (f"{len(padded):,} column names begin or end")
    )
    return [bounded(f"{what} with a space: {shown}; of CSV --trim removes it")]


def underflow_remarks(facts: Iterable[ReadFacts]) -> list[str]:
    """Returns how many values of each column became 0, and the first of them."""
    counts: dict[str, int] = {}
    first: dict[str, tuple[str, int, str]] = {}
    for each in facts:
        for column, (count, shown) in each.underflows.items():
            counts[column] = counts.get(column, 0) + count
            place = each.origin, each.start, shown
            first[column] = min(first.get(column, place), place)
    return [
        bounded(
            f"{count:,} {'value' if count == 1 else 'values'} of {column!r} became 0, "
            f"being nearer to it than float32 can be: {first[column][2]}"
        )
        for column, count in sorted(counts.items())
    ]
