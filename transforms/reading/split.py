"""What all views of a split share: its records, features and catalogue."""

from collections.abc import Callable, Sequence
from typing import Any

from transforms.core.schema import Feature
from transforms.reading.catalogue import CatalogueRows
from transforms.reading.records import Records
from transforms.reading.rows import Looks


class Split:
    """What all views of a split share.

    Args:
      records: of the split.
      features: of the dataset.
      looks: how values are given.
      again: how another process opens the same split: a function and its arguments.
      title: of the split, for people.
      catalogue: of the split; None for none.
    """

    def __init__(
        self,
        records: Records,
        features: Sequence[Feature],
        looks: Looks,
        again: tuple[Callable[..., "Split"], tuple[Any, ...]],
        title: str,
        catalogue: CatalogueRows | None = None,
    ) -> None:
        self.records = records
        self.catalogue = catalogue
        self.features = {feature.name: feature for feature in features}
        self.looks = looks
        self.title = title
        self._again = again

    def __reduce__(self) -> tuple[Callable[..., "Split"], tuple[Any, ...]]:
        return self._again
