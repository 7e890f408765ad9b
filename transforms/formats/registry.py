"""The input formats: which files each of them takes, and where its code lies.

A new format is one module in `transforms/formats/` and one line in `FORMATS`. Its code
is imported when a source is of that format, and not before.
"""

import dataclasses
import importlib
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from transforms.formats.image_suffixes import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from transforms.formats.table import TableReader

__all__ = ["FORMATS", "Format", "claimed_by"]

_PACKED = r"(\.gz|\.zst)?"


@dataclasses.dataclass(frozen=True)
class Format:
    """One input format.

    Attributes:
      title: what it is called in messages.
      files: a pattern of the lower-case paths of files that are its inputs.
      reader: module and class of its `TableReader`; empty for trees of images.
      companions: a pattern of files that are read beside the inputs, and are no items
        themselves.
      looks_closer: module with `recognise(files, head)`, which returns None for files
        that are of other formats in spite of their names; empty for none.
    """

    title: str
    files: str
    reader: str = ""
    companions: str = ""
    looks_closer: str = ""

    def takes(self, path: str) -> bool:
        """Whether a file is one of its inputs."""
        return re.search(self.files, path.lower()) is not None

    def goes_with(self, path: str) -> bool:
        """Whether a file is read beside the inputs."""
        return bool(self.companions) and (
            re.search(self.companions, path.lower()) is not None
        )

    def reader_class(self) -> "type[TableReader]":
        """Imports the format's code."""
        module, _, name = self.reader.rpartition(".")
        return cast("type[TableReader]", getattr(_module(module), name))

    def recogniser(self) -> Callable[..., object] | None:
        """Returns what looks closer at the files of the format, if it has such."""
        if not self.looks_closer:
            return None
        return cast(Callable[..., object], _module(self.looks_closer).recognise)


def _module(name: str) -> types.ModuleType:
    return importlib.import_module(f"transforms.formats.{name}")


_IMAGE = "|".join(map(re.escape, IMAGE_SUFFIXES))
_ARCHIVE = r"\.(zip|tar|tar\.(gz|zst|bz2|xz)|tgz|tzst|tbz2|txz)$"
# In the order in which a folder is tried: the first with a file of its own has it.
FORMATS: Mapping[str, Format] = {
    "cifar10": Format(
        "CIFAR-10",
        r"(^|/)(data|test)_batch[^/]*\.bin$",
        "binary.cifar.Cifar10Reader",
        companions=r"(^|/)batches\.meta\.txt$",
        looks_closer="binary.cifar",
    ),
    "cifar100": Format(
        "CIFAR-100",
        r"(^|/)(train|test)\.bin$",
        "binary.cifar.Cifar100Reader",
        companions=r"(^|/)(fine|coarse)_label_names\.txt$",
        looks_closer="binary.cifar",
    ),
    "idx": Format(
        "IDX",
        r"images[-.]idx\d-[a-z]+(\.gz)?$",
        "binary.idx.IdxReader",
        companions=r"labels[-.]idx\d-[a-z]+(\.gz)?$",
        looks_closer="binary.idx",
    ),
    "tfrecord": Format(
        "TFRecord",
        # TFDS's writer of single examples numbers shards without saying how many.
        r"(\.tfrecords?(-\d{5,})?|\.tfrec|-\d{5,}-of-\d{5,})(\.gz|\.zlib)?$",
        "tfrecord_files.reader.TFRecordFiles",
        companions=(
            r"(^|/)(manifest\.json|dataset_info\.json|features\.json|metadata\.json"
            r"|rejects(-\d{5,}-of-\d{5,})?\.(jsonl|items)|label_map\.pbtxt"
            r"|[^/]*\.labels\.txt)$"
        ),
    ),
    "coco": Format(
        "COCO JSON",
        r"(^|/)(?!captions_|person_keypoints_|stuff_|panoptic_|image_info_)[^/]*\.json$",
        "detection.coco.CocoReader",
        companions=rf"({_IMAGE})$",
        looks_closer="detection.coco",
    ),
    "voc": Format(
        "Pascal VOC XML",
        r"\.xml$",
        "detection.voc.VocReader",
        companions=rf"({_IMAGE})$|(^|/)imagesets/main/[^/]*\.txt$",
        looks_closer="detection.voc",
    ),
    # Before images: a manifest says what they are.
    "automl": Format(
        "AutoML manifests",
        rf"\.csv{_PACKED}$",
        "automl.reader.AutomlReader",
        companions=rf"({_IMAGE})$",
        looks_closer="automl.recognition",
    ),
    "images": Format("images", rf"[^/]({_IMAGE})$"),
    "csv": Format("CSV", rf"\.(csv|tsv){_PACKED}$", "csv.reader.CsvReader"),
    "jsonl": Format(
        "JSON lines",
        rf"\.(jsonl|ndjson){_PACKED}$",
        "json_lines.reader.JsonLinesReader",
    ),
    "parquet": Format("Parquet", r"\.(parquet|pq)$", "columnar.parquet.ParquetReader"),
    "arrow": Format(
        "Arrow IPC", r"\.(arrow|arrows|feather|ipc)$", "columnar.arrow_ipc.ArrowReader"
    ),
    "numpy": Format("NumPy", r"\.np[yz]$", "columnar.numpy_files.NumpyReader"),
    "archive": Format("archives", _ARCHIVE, "archive.reader.ArchiveReader"),
    # What `archive` makes of most of them by itself.
    "webdataset": Format("WebDataset", _ARCHIVE, "archive.webdataset.WebDataset"),
    # Only where a layout is given: nothing in the files says what they are.
    "fixed": Format(
        "fixed-length records", r"", "binary.fixed_length.FixedLengthReader"
    ),
}
_ONLY_WHEN_SAID = frozenset(["fixed"])


def claimed_by(
    files: Sequence[tuple[str, int]], head: Callable[[str], bytes] = lambda _: b""
) -> str:
    """Returns the first format that takes one of the files; empty for none.

    Args:
      files: paths relative to the source's root, and sizes in bytes.
      head: gives the first bytes of a file, for formats whose names say too little.

    Raises:
      SourceError: the files of a format do not belong together.
    """
    # Millions of names are searched for each format: by nothing but the pattern.
    paths = [path.lower() for path, _ in files]
    for name, known in FORMATS.items():
        if name in _ONLY_WHEN_SAID or not any(
            map(re.compile(known.files).search, paths)
        ):
            continue
        recognise = known.recogniser()
        if recognise is None or recognise(files, head) is not None:
            return name
    return ""
