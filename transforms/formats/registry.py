"""The table of input formats: the files that each takes, and the module of its reader.

A new format is one module in `transforms/formats/` and one entry in `FORMATS`. All
else derives from the entry: which files the format takes, which settings it knows,
whether archives of its files are read, the help of `--format`, the reference pages.
Its code is imported when a source is of that format, and not before.
"""

import dataclasses
import functools
import importlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from transforms.formats.file_names import IMAGE_SUFFIXES

if TYPE_CHECKING:
    from transforms.formats.table import TableFormat


@dataclasses.dataclass(frozen=True)
class Format:
    r"""One input format.

    Attributes:
      title: what it is called in messages.
      reader: module and class of its `TableFormat`; empty for trees of images or
        other files.
      suffixes: how the lower-case names of its files end; the usual one first.
      compressed: whether `.gz` or `.zst` may follow the suffix.
      names: a pattern of the lower-case paths of its files, for formats that a suffix
        does not identify; empty to go by `suffixes`.
      companions: a pattern of files that are read beside the inputs, and are no items
        themselves.
      below: whether companions of a file that is named are in folders below it, too.
      content_check: module and function of (files, head), whose result is empty if the
        files belong to another format in spite of their names; empty for none.
      options: the settings that its reader knows and most formats do not. A setting
        that is an option of no format concerns all sources.
      in_archives: whether each of its files is a table by itself, so that tables in
        archives and tables of labels may be of this format.
      stems: whether several files may be called train and test, and nothing more.

    Example:
      >>> parquet = Format("Parquet", suffixes=(".parquet", ".pq"))
      >>> parquet.takes("data/Train.PQ"), parquet.takes("data/train.csv")
      (True, False)
    """

    title: str
    reader: str = ""
    suffixes: tuple[str, ...] = ()
    compressed: bool = False
    names: str = ""
    companions: str = ""
    below: bool = False
    content_check: str = ""
    options: tuple[str, ...] = ()
    in_archives: bool = False
    stems: bool = False

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """What the lower-case paths of its files match."""
        if self.names or not self.suffixes:
            return re.compile(self.names)
        packed = r"(\.gz|\.zst)?" if self.compressed else ""
        return re.compile(rf"({_one_of(self.suffixes)}){packed}$")

    def takes(self, path: str) -> bool:
        """Whether a file is one of its inputs."""
        return self.pattern.search(path.lower()) is not None

    def is_companion(self, path: str) -> bool:
        """Whether a file is read beside the inputs."""
        return bool(self.companions and re.search(self.companions, path.lower()))

    def reader_class(self) -> "type[TableFormat]":
        """Imports the format's code."""
        return cast("type[TableFormat]", _imported(self.reader))

    def recognised(
        self, files: Iterable[tuple[str, int]], head: Callable[[str], bytes]
    ) -> bool:
        """Whether the content of files says that they are of this format, or need not.

        Raises:
          SourceError: they do not belong together.
        """
        if not self.content_check:
            return True
        check = cast(Callable[..., object], _imported(self.content_check))
        return bool(check(files, head))


def _imported(path: str) -> object:
    """Returns what a dotted path below `transforms.formats` names."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"transforms.formats.{module}"), name)


def _one_of(suffixes: Sequence[str]) -> str:
    """Returns a regex that matches any of a format's suffixes."""
    return "|".join(map(re.escape, suffixes))


def _options(formats: Mapping[str, Format]) -> tuple[str, ...]:
    """Returns the options of all the formats, each once."""
    return tuple(dict.fromkeys(o for fmt in formats.values() for o in fmt.options))


_IMAGE = _one_of(IMAGE_SUFFIXES)
_AUDIO = _one_of((".wav", ".flac", ".mp3", ".ogg", ".opus", ".m4a", ".aiff"))
_ARCHIVE_SUFFIXES = (
    *(".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"),
    *(".tar.bz2", ".tbz2", ".tar.xz", ".txz"),
)
# What annotations beside images share, and tables whose values have types.
_BOXES: Any = {"companions": rf"({_IMAGE})$", "options": ("bad_box", "masks")}
_TABLE: Any = {"options": ("null_values",), "in_archives": True, "stems": True}
_FILES: Mapping[str, Format] = {
    "cifar10": Format(
        "CIFAR-10",
        "columnar.class_images.Cifar10Reader",
        names=r"(^|/)(data|test)_batch[^/]*\.bin$",
        companions=r"(^|/)batches\.meta\.txt$",
        content_check="columnar.class_images.recognise_cifar",
    ),
    "cifar100": Format(
        "CIFAR-100",
        "columnar.class_images.Cifar100Reader",
        names=r"(^|/)(train|test)\.bin$",
        companions=r"(^|/)(fine|coarse)_label_names\.txt$",
        content_check="columnar.class_images.recognise_cifar",
    ),
    "idx": Format(
        "IDX",
        "columnar.class_images.IdxReader",
        names=r"images[-.]idx\d-[a-z]+(\.gz)?$",
        companions=r"labels[-.]idx\d-[a-z]+(\.gz)?$",
        content_check="columnar.class_images.recognise_idx",
    ),
    "tfrecord": Format(
        "TFRecord",
        "tfrecord_files.reader.TFRecordFiles",
        # TFDS's writer of single examples numbers shards without saying how many.
        names=r"(\.tfrecords?(-\d{5,})?|\.tfrec|\.records?|-\d{5,}-of-\d{5,})(\.gz|\.zlib)?$",
        companions=(
            r"(^|/)(manifest\.json|dataset_info\.json|features\.json|metadata\.json"
            r"|rejects(-\d{5,}-of-\d{5,})?\.(jsonl|items)|(label_map|schema)\.pbtxt"
            r"|[^/]*\.labels\.txt|index/[^/]*\.(u64|idx)"
            r"|catalogue/[^/]*-\d{5,}-of-\d{5,}\.pq)$"
        ),
        stems=True,
    ),
    "coco": Format(
        "COCO JSON",
        "detection.coco.CocoReader",
        suffixes=(".json",),
        content_check="detection.coco.recognise",
        **_BOXES,
    ),
    "labelme": Format(
        "LabelMe JSON",
        "detection.labelme.LabelmeReader",
        suffixes=(".json",),
        below=True,
        content_check="detection.labelme.recognise",
        **_BOXES,
    ),
    "voc": Format(
        "Pascal VOC XML",
        "detection.voc.VocReader",
        suffixes=(".xml",),
        companions=rf"({_IMAGE})$|(^|/)imagesets/[^/]*/[^/]*\.txt$",
        below=True,
        content_check="detection.voc.recognise",
        options=("bad_box", "first_pixel", "image_set", "masks"),
    ),
    # Labels are texts beside the images, or in folders beside theirs.
    "yolo": Format(
        "YOLO labels",
        "detection.yolo.YoloReader",
        names=rf"[^/]({_IMAGE})$",
        companions=r"[^/]\.(txt|ya?ml|names)$|(^|/)_darknet\.labels$",
        content_check="detection.yolo.recognise",
        options=("bad_box", "masks"),
    ),
    "boxes_csv": Format(
        "CSV with a row a box",
        "detection.boxes_csv.BoxesCsvReader",
        suffixes=(".csv",),
        compressed=True,
        below=True,
        content_check="detection.boxes_csv.recognise",
        **_BOXES,
    ),
    # Before images: a manifest says what they are.
    "automl": Format(
        "AutoML manifests",
        "detection.automl.AutomlReader",
        suffixes=(".csv",),
        compressed=True,
        content_check="detection.automl.recognise",
        **_BOXES,
    ),
    "images": Format("images", names=rf"[^/]({_IMAGE})$"),
    "files": Format("files as bytes", names=rf"[^/]({_AUDIO})$"),
    "csv": Format(
        "CSV",
        "csv.sample.CsvReader",
        suffixes=(".csv", ".tsv"),
        compressed=True,
        options=(
            *("delimiter", "quote", "escape", "header", "columns", "encoding", "trim"),
            *("decimal", "null_values"),
        ),
        in_archives=True,
        stems=True,
    ),
    "jsonl": Format(
        "JSON lines",
        "json_lines.reader.JsonLinesReader",
        suffixes=(".jsonl", ".ndjson"),
        compressed=True,
        **_TABLE,
    ),
    "parquet": Format(
        "Parquet",
        "columnar.parquet.ParquetReader",
        suffixes=(".parquet", ".pq"),
        **_TABLE,
    ),
    "arrow": Format(
        "Arrow IPC",
        "columnar.arrow_ipc.ArrowReader",
        suffixes=(".arrow", ".arrows", ".feather", ".ipc"),
        **_TABLE,
    ),
    "avro": Format(
        "Avro",
        "columnar.avro.AvroReader",
        suffixes=(".avro",),
        **_TABLE,
    ),
    "numpy": Format(
        "NumPy",
        "columnar.numpy_files.NumpyReader",
        suffixes=(".npz", ".npy"),
        options=("columns", "null_values"),
        stems=True,
    ),
}
# Formats whose files are tables by themselves, in folders and in archives.
TABLE_FORMATS: Mapping[str, Format] = {
    name: known for name, known in _FILES.items() if known.in_archives
}
# Names of the files that describe the images beside them, as on the Hugging Face Hub.
METADATA_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
# In the order in which a folder is tried: the first with a file of its own has it.
FORMATS: Mapping[str, Format] = {
    **_FILES,
    # What folders of images are where some hold masks of others.
    "pairs": Format("pairs of image and mask", names=_FILES["images"].names),
    "archive": Format(
        "archives",
        "archive.reader.ArchiveReader",
        suffixes=_ARCHIVE_SUFFIXES,
        options=("zip_encoding", *_options(TABLE_FORMATS)),
    ),
    # What `archive` makes of most of them by itself.
    "webdataset": Format(
        "WebDataset",
        "archive.webdataset.WebDataset",
        suffixes=_ARCHIVE_SUFFIXES,
        options=("zip_encoding",),
    ),
}
# Formats of trees, of which each file is a row.
TREES = frozenset(["images", "files", "pairs"])
# Files whose names are looked at together.
_AT_ONCE = 1 << 14
# The settings that only some formats know.
FORMAT_OPTIONS = frozenset(_options(FORMATS))


def claimed_by(
    files: Iterable[tuple[str, int]], head: Callable[[str], bytes] = lambda _: b""
) -> str:
    """Returns the first format that takes one of the files; empty for none.

    Args:
      files: paths relative to the source's root, and sizes in bytes; gone through
        several times.
      head: gives the first bytes of a file, for formats whose names say too little.

    Raises:
      SourceError: the files of a format do not belong together.
    """
    named = _named_by(files)
    return next((name for name in named if FORMATS[name].recognised(files, head)), "")


def _named_by(files: Iterable[tuple[str, int]]) -> list[str]:
    """Returns the formats that take a file by its name, in their order.

    None comes behind the first one whose files are its own by their names alone.
    """
    open_names = list(FORMATS)
    matching: set[str] = set()
    remaining = iter(files)
    # Millions of names are searched for each format: by nothing but the pattern.
    while paths := [path.lower() for path, _ in itertools.islice(remaining, _AT_ONCE)]:
        for name in open_names:
            fmt = FORMATS[name]
            if name not in matching and any(map(fmt.pattern.search, paths)):
                matching.add(name)
                if not fmt.content_check:
                    open_names = open_names[: open_names.index(name) + 1]
                    break
    return [name for name in open_names if name in matching]


def table_format(member: str) -> str:
    """Returns the format of a member of an archive, by its name; empty for no table."""
    low = member.lower()
    for name, fmt in TABLE_FORMATS.items():
        suffix = fmt.pattern.search(low)
        # A suffix alone is a hidden file.
        if suffix and low[: suffix.start()].rpartition("/")[2]:
            return name
    return ""
