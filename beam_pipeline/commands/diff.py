"""The command `diff`: what differs between two datasets, record by record."""

import json

from beam_pipeline.comparison.differences import KINDS, Differences, Example, compare
from beam_pipeline.terminal.printing import print_prose, print_text, printable
from beam_pipeline.terminal.words import count_text
from transforms.storage.paths import plain

_HOW = {
    "catalogues": "by the catalogues",
    "records": "by the records",
    "digests": "by the digests, which are the same",
}


def run(
    first: str,
    second: str,
    *,
    key: str = "",
    exact: bool = False,
    limit: int = 5,
    as_json: bool = False,
) -> int:
    """Prints what differs; returns 0 where nothing does, else 1.

    Args:
      first, second: paths of datasets.
      key, exact, limit: see `compare`.
      as_json: print JSON.

    Errors are those of `compare`.
    """
    first, second = plain(first), plain(second)
    found = compare(first, second, key=key, exact=exact, limit=limit)
    if as_json:
        print_text(json.dumps(found.to_json(), indent=1))
    else:
        _print(first, second, found)
    return 0 if found.is_equal else 1


def _print(first: str, second: str, found: Differences) -> None:
    known = ", ".join(map(repr, found.known_by)) or "their content"
    print_prose(
        f"{printable(first)}: {count_text(found.records[0], 'record')}; "
        f"{printable(second)}: {count_text(found.records[1], 'record')}; compared "
        f"{_HOW[found.reads]}"
        + (f", known by {printable(known)}" if found.reads != "digests" else "")
    )
    rows = [
        ("equal", found.equal, ""),
        *((k, found.counts[k], KINDS[k]) for k in KINDS),
    ]
    width = max(len(f"{count:,}") for _, count, _ in rows)
    for kind, count, meaning in rows:
        print_text(f"{kind:<10}  {f'{count:,}':>{width}}  {meaning}".rstrip())
    for name, how in found.features.items():
        print_prose(f"feature {printable(repr(name))}: {how}")
    for kind, examples in found.examples.items():
        for each in examples:
            print_text(f"{kind:<10}  {printable(_text(each))}")


def _text(example: Example) -> str:
    """Returns an example as one line."""
    parts = [example.key] if example.key else []
    places = [place for place in (example.first, example.second) if place]
    parts.append(" -> ".join(dict.fromkeys(places)))
    classes = [each for each in (example.first_class, example.second_class) if each]
    if classes:
        parts.append(" -> ".join(dict.fromkeys(classes)))
    return "; ".join(parts)
