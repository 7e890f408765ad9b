"""The catalogues that a dataset's manifest names."""

from beam_pipeline.datasets.dataset import Dataset
from transforms.errors import DamageError
from transforms.reading.catalogue import Catalogue


def catalogues_of(dataset: Dataset) -> dict[str, Catalogue]:
    """Returns the catalogue of each split; empty where a split has none.

    Raises:
      DamageError: a catalogue is damaged, or has other rows than the split.
      OSError: one cannot be read.
    """
    out = {}
    for split in dataset.manifest.splits:
        parts = dataset.manifest.catalogue_parts(split.name)
        if not parts:
            return {}
        catalogue = Catalogue([dataset.path(part) for part in parts])
        if len(catalogue) != split.records:
            raise DamageError(
                f"{catalogue.path} and the other parts must have a row for each of the "
                f"{split.records:,} records of {split.name!r}; found "
                f"{len(catalogue):,}. 'beam-tfrecord verify' shows all damage."
            )
        out[split.name] = catalogue
    return out
