"""Values of features as short texts for the page."""

import math

from beam_pipeline.terminal.printing import printable
from beam_pipeline.terminal.words import instant_text
from transforms.core.schema import Feature, Kind

__all__ = ["number_text", "shortened", "value_text"]

_MOST_CHARACTERS = 80


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Returns a text on one line, cut to at most this many characters.

    >>> shortened("a" * 100, 5)
    'aaaa…'
    """
    # Escapes make a text longer, never shorter.
    shown = printable(text[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def number_text(number: float) -> str:
    """Returns a number with four digits or more.

    >>> number_text(1234567.0), number_text(0.123456), number_text(12345.678)
    ('1,234,567', '0.1235', '12,346')
    """
    if not math.isfinite(number):
        return str(number)
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}"
    if 1000 <= abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:.4g}"


def value_text(number: float, feature: Feature, measured: str) -> str:
    """Returns a value of a feature: a number, or an instant without its fraction."""
    if feature.kind is Kind.TIMESTAMP and not measured and abs(number) < 2**63:
        text = instant_text(int(number), feature.unit)
        if text:
            return text.partition(".")[0].removesuffix("Z").replace("T", " ")
    return number_text(number)
