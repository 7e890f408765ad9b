"""What all views of a split share: its records, features and catalogue."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from transforms.core.schema import Feature
from transforms.reading.catalogue import CatalogueRows
from transforms.reading.records import Records
from transforms.reading.rows import Looks


@dataclasses.dataclass(slots=True, eq=False)
class Split:
    """What all views of a split share.

    Attributes:
      records: of the split.
      features: of the dataset, by name.
      looks: how values are given.
      again: how another process opens the same split: a function and its arguments.
      path: of the dataset, for people.
      name: of the split; empty where there are none.
      catalogue: of the split; None for none.
    """

    records: Records
    features: Mapping[str, Feature]
    looks: Looks
    again: tuple[Callable[..., "Split"], tuple[Any, ...]]
    path: str
    name: str
    catalogue: CatalogueRows | None = None

    def __reduce__(self) -> tuple[Callable[..., "Split"], tuple[Any, ...]]:
        return self.again
