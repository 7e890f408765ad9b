"""Derived files of a dataset: the catalogues that it has, indexes of its shards."""

from collections.abc import Callable

from beam_pipeline.datasets.dataset import Dataset
from transforms.core.tfrecord.compression import Compression, detect
from transforms.core.tfrecord.frame import HEADER_BYTES
from transforms.core.tfrecord.record_index import (
    index_file,
    scan_records,
    text_index,
    text_index_file,
)
from transforms.errors import DamageError
from transforms.reading.catalogue import Catalogue
from transforms.storage.files import storage


class NotIndexedError(Exception):
    """A file whose records cannot be looked up."""


def indexes_of(
    path: str, name: str, read: Callable[[int, int], bytes] | None = None
) -> tuple[dict[str, bytes], int]:
    """Returns the indexes of a file, by their names, and how many records it has.

    Args:
      path: of the file.
      name: what the indexes call it.
      read: returns its bytes from one offset to another.

    Raises:
      NotIndexedError: it is compressed, so that it can only be read in order.
      TFRecordError: it is damaged.
      OSError: it cannot be read.
    """
    size = storage(path).size_of()
    read = read or storage(path).read_range
    head = storage(path).read_range(0, min(size, HEADER_BYTES))
    kind = detect(head, path=path)
    if kind is not Compression.NONE:
        raise NotIndexedError(
            f"{path}: {kind} streams are read in order only, so they have no index"
        )
    offsets = scan_records(read, size, path=path)
    contents = {
        index_file(name): offsets.tobytes(),
        text_index_file(name): text_index(offsets),
    }
    return contents, len(offsets) - 1


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
