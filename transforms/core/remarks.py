"""What a run found that is no fault and that a person should know, in sentences."""

from collections.abc import Iterable, Sequence

from transforms.core.model import ReadFacts, Rounding
from transforms.core.schema import Feature
from transforms.errors import bounded, first_few

__all__ = ["padding_remarks", "rounding_remarks"]

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


def rounding_remarks(facts: Iterable[ReadFacts]) -> list[str]:
    """Returns how many values of each column float32 holds badly, and the first."""
    found: dict[str, list[Rounding]] = {}
    for each in sorted(facts, key=lambda fact: (fact.origin, fact.start)):
        for column, rounding in each.roundings.items():
            found.setdefault(column, []).append(rounding)
    out = []
    for column, roundings in sorted(found.items()):
        if zeros := sum(each.zeros for each in roundings):
            first = next(each.first_zero for each in roundings if each.zeros)
            out.append(
                f"{_values(zeros)} of {column!r} became 0, being nearer to it than "
                f"float32 can be: {first}"
            )
        if large := sum(each.large for each in roundings):
            first = next(each.first_large for each in roundings if each.large)
            error = max(each.error for each in roundings)
            out.append(
                f"{_values(large)} of {column!r} of 2^24 and more changed in float32, "
                f"by {error:,.6g} at most: {first}"
            )
    return [bounded(text) for text in out]


def _values(count: int) -> str:
    return f"{count:,} {'value' if count == 1 else 'values'}"
