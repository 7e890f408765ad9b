"""Evidence for a feature's kind, worded for `plan` and `schema`."""

import re
from collections.abc import Sequence

from beam_pipeline.terminal.printing import printable
from beam_pipeline.terminal.words import instant_text, share_text
from transforms.core.infer.evidence import Evidence
from transforms.core.schema import Feature, Kind

MOST_EXAMPLES = 3
_EXAMPLE_CHARS = 32


def present_text(evidence: Evidence) -> str:
    """Returns the share of cells with a value: "100 %", "99.4 %", "0 %"."""
    return share_text(evidence.sampled - evidence.missing, evidence.sampled)


def extent_text(evidence: Evidence, feature: Feature) -> str:
    """Returns the smallest and the largest value; empty where there is none."""
    if evidence.minimum is None or evidence.maximum is None:
        return ""
    ends = evidence.minimum, evidence.maximum
    least, most = (_number(number, feature) for number in ends)
    return least if least == most else f"{least} to {most}"


def _number(value: int | float, feature: Feature) -> str:
    """Returns a value for people: an instant, an integer with commas, a short float."""
    if feature.kind is Kind.TIMESTAMP:
        # Empty for the one number that is no instant.
        instant = instant_text(int(value), feature.unit) or str(value)
        return re.sub(r"\.0+Z$", "Z", instant)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def examples_text(texts: Sequence[str]) -> str:
    """Returns the first few values, each on one line and cut with "..."."""
    return ", ".join(map(_one_line, texts[:MOST_EXAMPLES]))


def _one_line(text: str) -> str:
    shown = printable(text)
    if len(shown) > _EXAMPLE_CHARS:
        shown = shown[: _EXAMPLE_CHARS - 3] + "..."
    return shown or "''"
