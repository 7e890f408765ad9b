"""The catalogues that a dataset's manifest names."""

import re

from beam_pipeline.datasets.dataset import Dataset
from transforms.errors import DamageError
from transforms.reading.catalogue import Catalogue

__all__ = ["catalogues_of"]

_PART = re.compile(r"catalogue/(?P<split>.+)-[0-9]{5,}-of-[0-9]{5,}\.pq")


def catalogues_of(dataset: Dataset) -> dict[str, Catalogue]:
    """Returns the catalogue of each split; empty where a split has none.

    Raises:
      DamageError: a catalogue is damaged, or has other rows than the split.
      OSError: one cannot be read.
    """
    parts: dict[str, list[str]] = {}
    for name in sorted(each.file for each in dataset.manifest.beside):
        if match := _PART.fullmatch(name):
            parts.setdefault(match["split"], []).append(dataset.path(name))
    out = {}
    for split in dataset.manifest.splits:
        if split.name not in parts:
            return {}
        catalogue = Catalogue(parts[split.name])
        if len(catalogue) != split.records:
            raise DamageError(
                f"{catalogue.path} and the other parts must have a row for each of the "
                f"{split.records:,} records of {split.name!r}; found "
                f"{len(catalogue):,}. 'beam-tfrecord verify' shows all damage."
            )
        out[split.name] = catalogue
    return out
