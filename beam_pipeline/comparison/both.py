"""The records of two datasets, looked at in the cheapest way that tells enough."""

import dataclasses
from collections.abc import Iterator

from beam_pipeline.comparison.rows import (
    ORIGIN,
    Asked,
    Rows,
    rows_of_catalogue,
    rows_read,
)
from beam_pipeline.datasets.catalogues import catalogues_of
from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.reading.reading_plan import Found
from transforms.reading.catalogue import Catalogue

__all__ = ["Both", "load_both"]

_KEY = "_key"


@dataclasses.dataclass(frozen=True, slots=True)
class Both:
    """The records of two datasets, and how they are known.

    Attributes:
      asked: the columns.
      reads: see `Differences`.
      same: how many records are in shards that are the same in both.
    """

    one: Rows
    other: Rows
    asked: Asked
    reads: str
    same: int = 0


def load_both(
    found: tuple[Found, Found],
    datasets: list[Dataset | None],
    key: str,
    label: str,
    *,
    exact: bool,
) -> Both:
    """Returns the records of two datasets.

    Args:
      found: their files.
      datasets: what their manifests say; None for files without one.
      key, exact: see `beam_pipeline.comparison.differences.compare`.
      label: that both have; empty for none.

    Errors are those of `compare`.
    """
    catalogues = []
    if not exact:
        catalogues = [catalogues_of(each) for each in datasets if each is not None]
    if len(catalogues) == 2 and all(catalogues):
        for asked in _asked(catalogues, key, label):
            one, other = (rows_of_catalogue(each, asked) for each in catalogues)
            # Of the origin, the row is missing where that is a file of one record.
            known = (rows.identity[0] for rows in (one, other) if asked.identity)
            if key or not any(column.null_count for column in known):
                return Both(one, other, asked, "catalogues")
    key = key or _key_column(found, datasets)
    asked = Asked((key,) if key else (), label)
    without = [frozenset[str](), frozenset[str]()]
    same = 0
    if not exact and _classes(found[0], label) == _classes(found[1], label):
        without, same = _same_shards(*found)
    one, other = (
        rows_read(each, asked, without=left)
        for each, left in zip(found, without, strict=True)
    )
    return Both(one, other, asked, "records", same)


def _key_column(found: tuple[Found, Found], datasets: list[Dataset | None]) -> str:
    """Returns the feature that both datasets were made with as key; empty for none."""
    columns = {
        "" if each is None else str(each.manifest.settings.get("key_column") or "")
        for each in datasets
    }
    name = columns.pop() if len(columns) == 1 else ""
    known = [{feature.name for feature in each.features} for each in found]
    return name if all(name in names for names in known) else ""


def _asked(
    catalogues: list[dict[str, Catalogue]], key: str, label: str
) -> Iterator[Asked]:
    """Yields what can be looked at in catalogues, the best first."""
    columns = [
        set(catalogue.schema.names)
        for each in catalogues
        for catalogue in each.values()
    ]
    shared = set.intersection(*columns)
    label = label if label in shared else ""
    ways = [(key,)] if key else [(_KEY,), ORIGIN, ()]
    for identity in ways:
        if shared.issuperset(identity):
            yield Asked(identity, label)


def _classes(found: Found, label: str) -> tuple[str, ...]:
    return next(
        (tuple(f.vocabulary or ()) for f in found.features if f.name == label), ()
    )


def _same_shards(first: Found, second: Found) -> tuple[list[frozenset[str]], int]:
    """Returns the paths of shards that are stated to be the same, and their records."""
    there: dict[tuple[object, ...], list[str]] = {}
    for split, shard in second.shards:
        if shard.crc32c is not None:
            facts = (split, shard.bytes, shard.crc32c, shard.records)
            there.setdefault(facts, []).append(shard.path)
    one, other, records = set(), set(), 0
    for split, shard in first.shards:
        rivals = there.get((split, shard.bytes, shard.crc32c, shard.records))
        if rivals:
            one.add(shard.path)
            other.add(rivals.pop())
            records += shard.records or 0
    return [frozenset(one), frozenset(other)], records
