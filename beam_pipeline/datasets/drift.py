"""Differences between the features of several files.

For files that no manifest names, and whose writers may have changed their minds.
"""

import dataclasses
from collections.abc import Sequence

from beam_pipeline.datasets.file_summary import FileSummary, Variant

__all__ = ["Form", "forms"]


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """One form of a feature.

    Attributes:
      name: of the feature.
      text: its type, its number of values where that is not one, "absent".
      files: in how many files it has this form.
      first: index of the first of those.
      record: 0-based index of the first record there that has it.
    """

    name: str
    text: str
    files: int
    first: int
    record: int


def forms(summaries: Sequence[FileSummary]) -> list[Form]:
    """Returns all forms of all features, by name and form."""
    found: dict[tuple[str, str], Form] = {}
    names = {variant.name for each in summaries for variant in each.variants}
    for number, summary in enumerate(summaries):
        seen = [(v.name, _text(v, summary), v.first_record) for v in summary.variants]
        absent = names - {variant.name for variant in summary.variants}
        seen += [(name, "absent", 0) for name in absent]
        for name, text, record in seen:
            before = found.get((name, text)) or Form(name, text, 0, number, record)
            after = dataclasses.replace(before, files=before.files + 1)
            found[name, text] = after
    return [found[key] for key in sorted(found)]


def _text(variant: Variant, summary: FileSummary) -> str:
    """Returns a variant as text: type, values in a record, whether always present."""
    parts = [variant.type]
    if variant.fewest != variant.most:
        parts.append("any number each")
    elif variant.most != 1:
        parts.append(f"{variant.most:,} each")
    if variant.statistics.present < summary.records:
        parts.append("not in every record")
    return ", ".join(parts)
