"""What was rejected: of each reason the count, an example and, where kept, pictures."""

import contextlib
import dataclasses
from collections.abc import Mapping

from beam_pipeline.datasets.dataset import Dataset
from beam_pipeline.page.thumbnails import Thumbnail, draw
from transforms import files
from transforms.core.example.decoder import parse_example
from transforms.core.model import reject_in_words
from transforms.core.tfrecord import TFRecordReader
from transforms.errors import ExampleError
from transforms.publishing.earlier_rejects import find_rejects
from transforms.work.reject_files import is_items_name

__all__ = ["Rejected", "rejected_of"]

_PICTURES = 6
# Items that are looked at for pictures.
_MOST_ITEMS = 2_000


@dataclasses.dataclass(frozen=True, slots=True)
class Rejected:
    """The rejects of one reason.

    Attributes:
      reason: its code.
      part: what of an item was rejected ("boxes"); empty for whole items.
      count: how many.
      example: one of them in words.
      pictures: of items that were kept and can be decoded.
    """

    reason: str
    part: str
    count: int
    example: str
    pictures: tuple[Thumbnail, ...]


def rejected_of(dataset: Dataset) -> list[Rejected]:
    """Returns the rejects of a dataset, the most frequent reason first.

    Raises:
      DamageError: the files of rejects are not as the manifest says.
    """
    if not any("reject" in each.file for each in dataset.manifest.files):
        return []
    counts: dict[tuple[str, str], int] = {}
    examples: dict[tuple[str, str], str] = {}
    for item in find_rejects(dataset.directory).rejections():
        key = (item["reason"], item.get("part") or "")
        counts[key] = counts.get(key, 0) + 1
        if key not in examples:
            row, line = item.get("row"), item.get("line")
            examples[key] = reject_in_words(item["source"], row, line, item["message"])
    pictures = _pictures(dataset)
    return [
        Rejected(*key, count, examples[key], tuple(pictures.get(key[0], ())))
        for key, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]


def _pictures(dataset: Dataset) -> Mapping[str, list[Thumbnail]]:
    found: dict[str, list[Thumbnail]] = {}
    left = _MOST_ITEMS
    for facts in dataset.manifest.files:
        if not is_items_name(facts.file):
            continue
        with files.opened(dataset.path(facts.file)) as file:
            for record in TFRecordReader(file, allow_empty=True):
                if not left:
                    return found
                left -= 1
                with contextlib.suppress(ExampleError, KeyError, IndexError):
                    item = parse_example(record)
                    some = found.setdefault(bytes(item["reason"][0]).decode(), [])
                    data = item.get("bytes", ())
                    if len(some) < _PICTURES and data:
                        picture = draw(bytes(data[0]))
                        some += [picture] if picture else []
    return found
