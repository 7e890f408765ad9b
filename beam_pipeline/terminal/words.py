"""Numbers, sizes, instants, kinds and evidence for kinds as words for people."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from beam_pipeline.terminal.printing import printable, text_width
from transforms.core.schema import Feature, Kind

if TYPE_CHECKING:  # it loads Arrow, and most commands print no evidence
    from transforms.core.infer.evidence import Evidence

MOST_EXAMPLES = 3
_MOST_CHARACTERS = 80
_EXAMPLE_CHARS = 32
# A float beyond has no fraction, and its last digits mean little.
_MOST_EXACT = 1e15


def size_text(size: int) -> str:
    """Returns a number of bytes for people: "21 B", "4.1 kB", "150 MB"."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            break
        value /= 1000
    digits = 0 if unit == "B" or value >= 99.95 else 1
    return f"{value:,.{digits}f} {unit}"


def count_text(count: int, singular: str, plural: str = "") -> str:
    """Returns "1 shard" or "1,024 shards"."""
    word = singular if count == 1 else plural or f"{singular}s"
    return f"{count:,} {word}"


def counts_text(counts: Mapping[str, int]) -> str:
    """Returns "not_image 3, too_large 1,024"."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def share_text(count: int, whole: int) -> str:
    """Returns a share as "66.7 %"; "100 %" and "0 %" only where that is exact.

    >>> share_text(1, 10_000), share_text(9_999, 10_000)
    ('< 0.1 %', '> 99.9 %')
    """
    if count == whole:
        return "100 %"
    if count == 0:
        return "0 %"
    text = f"{100 * count / whole:.1f} %"
    return {"0.0 %": "< 0.1 %", "100.0 %": "> 99.9 %"}.get(text, text)


def instant_text(value: int, unit: str) -> str:
    """Returns "2024-05-01T12:00:00Z" for a number of units since 1970 in UTC.

    Empty for what is no instant: the smallest int64, which NumPy keeps for that.
    """
    # Imported here: few commands show instants, and NumPy loads slowly.
    import numpy as np

    instant = np.int64(value).astype(f"datetime64[{unit or 's'}]")
    return "" if np.isnat(instant) else f"{instant}Z"


def kind_text(feature: Feature) -> str:
    """Returns "text[any]", "tensor uint8[28, 28]", "label, to predict"."""
    text = str(feature.kind)
    if feature.kind is Kind.TENSOR:
        text += f" {feature.dtype}"
    text += shape_text(feature.shape)
    if feature.kind is Kind.TIMESTAMP:
        text += f" in {feature.unit or 's'}"
    return f"{text}, to predict" if feature.is_label else text


def shape_text(shape: Sequence[int | None]) -> str:
    """Returns "[any, 4]": sizes that differ are "any"; nothing for one value."""
    sizes = ", ".join("any" if n is None else f"{n}" for n in shape)
    return f"[{sizes}]" if shape else ""


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """Returns a text on one line, cut to at most this many columns of a terminal.

    >>> shortened("a" * 100, 5)
    'aaaa…'
    """
    # Escapes make a text longer, never shorter.
    shown = printable(text[: most + 1])
    if text_width(shown) <= most:
        return shown
    while text_width(shown) >= most:
        shown = shown[:-1]
    return f"{shown}…"


def value_text(value: float, feature: Feature | None = None) -> str:
    """Returns a value for people: an instant, a whole number with commas, a float.

    >>> value_text(1234567.0), value_text(0.12345678), value_text(1e30)
    ('1,234,567', '0.123457', '1e+30')
    """
    if feature and feature.kind is Kind.TIMESTAMP and abs(value) < 2**63:
        return re.sub(r"\.0+Z$", "Z", instant_text(int(value), feature.unit))
    if isinstance(value, int) or (value.is_integer() and abs(value) < _MOST_EXACT):
        return f"{int(value):,}"
    return f"{value:.6g}"


def present_text(evidence: "Evidence") -> str:
    """Returns the share of cells with a value: "100 %", "99.4 %", "0 %"."""
    return share_text(evidence.sampled - evidence.missing, evidence.sampled)


def range_text(
    low: float | None, high: float | None, feature: Feature | None = None
) -> str:
    """Returns "LOW to HIGH", one of them where both are the same; empty for none."""
    if low is None or high is None:
        return ""
    least, most = value_text(low, feature), value_text(high, feature)
    return least if least == most else f"{least} to {most}"


def examples_text(texts: Sequence[str]) -> str:
    """Returns the first few values, each on one line and cut with "..."."""
    return ", ".join(map(_one_line, texts[:MOST_EXAMPLES]))


def _one_line(text: str) -> str:
    shown = printable(text)
    if len(shown) > _EXAMPLE_CHARS:
        shown = shown[: _EXAMPLE_CHARS - 3] + "..."
    return shown or "''"
