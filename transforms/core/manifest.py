"""The manifest: the committed facts of a dataset, to and from `manifest.json`.

    {"format": "beam-tfrecord/1",
     "dataset": {...},   a function of input and spec alone; has a digest
     "run": {...},       paths, times, versions, workers: differs from run to run
     "derived": [...]}   files for readers that can be made again at any time

A directory without `manifest.json` is not a dataset. The manifest names every other
file of the directory with its size and CRC32C. Derived files may be in the folders
`index/` and `catalogue/` below it; all others are in the directory itself. An object
store cannot exchange one directory for another: there, a dataset that replaced another
has its files in a folder of their own below it, which `run` names; see
`publishing.bucket`.
"""

import dataclasses
import hashlib
import io
import json
import math
import operator
import os
import re
from collections.abc import Mapping
from typing import Any, Self

from transforms.core.files import is_data_folder
from transforms.core.schema import Feature, Kind
from transforms.core.statistics import Statistics
from transforms.errors import DamageError, bounded

FORMAT = "beam-tfrecord/1"
MANIFEST_NAME = "manifest.json"
PARTS_NAME = "parts.json"
"""What the parts of a dataset share; see `transforms.publishing.parts`."""
REJECTS_NAME = "rejects.jsonl"
DERIVED_FOLDERS = ("catalogue", "index")
"""The folders below that of a dataset that may hold derived files."""
_SPLIT = ("name", "records", "bytes", "classes")
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
# Other kinds are numbers: one that no record holds.
_ABSENT: Mapping[Kind, Any] = {
    **{Kind.FLOAT: math.nan, Kind.BOOL: False, Kind.TEXT: ""},
    **{Kind.BYTES: b"", Kind.IMAGE: b"", Kind.TENSOR: None, Kind.BOX: None},
}


@dataclasses.dataclass(frozen=True, slots=True)
class FileFacts:
    """A file of the dataset that is not a shard: name, bytes, CRC32C.

    >>> FileFacts("features.json", 812, 0xBEEF).to_json()
    {'file': 'features.json', 'bytes': 812, 'crc32c': '0000beef'}
    """

    file: str
    bytes: int
    crc32c: int

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON, the checksum as 8 hex digits."""
        return {**dataclasses.asdict(self), "crc32c": f"{self.crc32c:08x}"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return cls(**{**data, "crc32c": int(data["crc32c"], 16)})


@dataclasses.dataclass(frozen=True, slots=True)
class DerivedFile(FileFacts):
    """The manifest's facts of a file that repeats what shards and manifest say.

    It can be made again at any time, by another version in other bytes. So the digest
    of the dataset does not cover it.

        >>> DerivedFile("schema.pbtxt", 755, 0xBEEF, "beam-tfrecord", "0.3.0").maker
        'beam-tfrecord'

    Attributes:
      maker, version: what has written it, which decides its bytes.
    """

    maker: str
    version: str


@dataclasses.dataclass(frozen=True, slots=True)
class ShardFacts(FileFacts):
    """A shard: also its records and the sum of their lengths, uncompressed.

    >>> shard = ShardFacts("rows-train.tfrecord-00000-of-00001", 180, 0, 5, 100)
    >>> shard.to_json()["records"]
    5
    """

    records: int
    payload_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class SplitFacts:
    """A split: its shards in order and, by label feature, records by class name.

    For lists of labels, `classes` states how often each name occurs.

        >>> name = "rows-train.tfrecord-00000-of-00001"
        >>> shard = ShardFacts(name, 180, 0, records=5, payload_bytes=100)
        >>> SplitFacts("train", (shard,)).records
        5
    """

    name: str
    shards: tuple[ShardFacts, ...]
    classes: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)

    @property
    def records(self) -> int:
        """Records of the split."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """Bytes of the split on disk."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def payload_bytes(self) -> int:
        """The sum of the records' lengths, uncompressed and unframed."""
        return sum(shard.payload_bytes for shard in self.shards)


@dataclasses.dataclass(frozen=True, slots=True)
class FeatureFacts:
    """A feature as it is in the records, over all splits.

        >>> statistics = Statistics(5, minimum=1, maximum=9)
        >>> FeatureFacts(Feature("id", Kind.INT64), statistics).to_json()
        {'name': 'id', 'kind': 'int64', 'present': 5, 'min': 1, 'max': 9}

    Attributes:
      feature: its declaration.
      statistics: present records, range of values (of lengths for bytes and text).
      classes: for class labels the names, in the order of their ids.
      always_present: whether every record holds it; None in manifests that do not
        state it: there, compare `statistics.present` with the number of records.
    """

    feature: Feature
    statistics: Statistics
    classes: tuple[str, ...] = ()
    always_present: bool | None = None

    @property
    def number_below(self) -> int:
        """A number that no record holds: -1, or below the smallest; 0 if all are."""
        is_whole = self.feature.kind in (Kind.INT64, Kind.TIMESTAMP)
        smallest = min(int(self.statistics.minimum or 0), 0) if is_whole else 0
        return smallest - 1 if smallest > -(2**63) else 0

    @property
    def absent(self) -> Any:
        """A value for records without it, if possible for no other; None of lists."""
        if self.feature.is_list:
            return None
        return _ABSENT.get(self.feature.kind, self.number_below)

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON."""
        out = self.feature.to_json() | self.statistics.to_json()
        if self.always_present is not None:
            out["always_present"] = self.always_present
        return out | ({"classes": self.classes} if self.classes else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; infinities come back as floats."""
        data = dict(data)
        statistics = Statistics.pop_json(data)
        classes = tuple(data.pop("classes", ()))
        always = data.pop("always_present", None)
        return cls(Feature.from_json(data), statistics, classes, always)


@dataclasses.dataclass(frozen=True, slots=True)
class Account:
    """Where every item of the source went; `balance` is 0 when nothing is lost.

        >>> Account(read=10, written=7, rejected={"not_an_integer": 2}).balance
        1
        >>> Account(read=10, written=7, dropped_by_steps=3).balance
        0

    Attributes:
      read: items of the source.
      written: items that became records.
      rejected: items that did not, by reason.
      skipped: items that were left out on purpose, by reason.
      parts: of what items consist of, by what they are ("boxes"): how many were
        "read", "written", "rejected" on their own, and "gone" with rejected items.
      dropped_by_steps, added_by_steps: how many rows users' own steps took away or
        added in all; one of them is 0.
    """

    read: int
    written: int
    rejected: Mapping[str, int] = dataclasses.field(default_factory=dict)
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    parts: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    dropped_by_steps: int = 0
    added_by_steps: int = 0

    @property
    def balance(self) -> int:
        """Returns read + added - written - rejected - skipped - dropped."""
        gone = sum(self.rejected.values()) + sum(self.skipped.values())
        rest = self.read - self.dropped_by_steps + self.added_by_steps
        return rest - self.written - gone

    @property
    def by_steps(self) -> dict[str, int]:
        """Rows that a pipeline's own steps have dropped or added."""
        names = ("dropped_by_steps", "added_by_steps")
        return {name: getattr(self, name) for name in names}

    @property
    def part_balances(self) -> dict[str, int]:
        """By part: read - written - rejected - gone."""
        signs = {"read": 1, "written": -1, "rejected": -1, "gone": -1}
        return {
            name: sum(sign * counts.get(word, 0) for word, sign in signs.items())
            for name, counts in self.parts.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Returns plain JSON, without parts and steps where there are none."""
        out = dataclasses.asdict(self)
        for name in ("parts", *self.by_steps):
            if not out[name]:
                # A manifest from before there were any keeps its digest.
                del out[name]
        return out


@dataclasses.dataclass(frozen=True, slots=True)
class Manifest:
    """The committed facts of one dataset.

        >>> shard = ShardFacts("rows-train.tfrecord-00000-of-00001", 180, 0, 5, 100)
        >>> split = SplitFacts("train", (shard,))
        >>> account = Account(read=5, written=5)
        >>> facts = Manifest("rows", "none", (), (split,), (), account, {}, {})
        >>> facts.file_names
        ('rows-train.tfrecord-00000-of-00001', 'manifest.json')
        >>> Manifest.from_bytes(facts.to_bytes()) == facts
        True

    Attributes:
      name: name of the dataset; the prefix of its shards.
      compression: of the shards: "none", "gzip" or "zlib".
      features: the features, in the source's order.
      splits: the splits, in order.
      files: sidecars and rejects; all files but shards and the manifest itself.
      account: where every item of the source went.
      inputs: number of files, their bytes, and the sha256 of the sorted list of paths
        and sizes: {"files": n, "bytes": n, "sha256": ...}.
      settings: the settings that decide bytes. {"rows_known_by": {"content": [...]}}
        names the columns whose content decided the splits.
      image_notes: number of images by `ImageNote`.
      run: facts that differ from run to run; its "spec" is a valid --spec.
      derived: files for readers that the digest does not cover.
    """

    name: str
    compression: str
    features: tuple[FeatureFacts, ...]
    splits: tuple[SplitFacts, ...]
    files: tuple[FileFacts, ...]
    account: Account
    inputs: Mapping[str, Any]
    settings: Mapping[str, Any]
    image_notes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    run: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    derived: tuple[DerivedFile, ...] = ()
    _digest: str = dataclasses.field(default="", init=False, repr=False, compare=False)

    @property
    def records(self) -> int:
        """Records of all splits."""
        return sum(split.records for split in self.splits)

    @property
    def file_names(self) -> tuple[str, ...]:
        """Every file of the directory, the manifest included."""
        shards = [shard.file for split in self.splits for shard in split.shards]
        return (*shards, *(facts.file for facts in self.beside), MANIFEST_NAME)

    @property
    def beside(self) -> tuple[FileFacts, ...]:
        """Every file beside the shards and the manifest."""
        return (*self.files, *self.derived)

    def catalogue_parts(self, split: str) -> tuple[str, ...]:
        """The files of a split's catalogue, in order; none where there is none."""
        of_split = re.compile(rf"catalogue/{re.escape(split)}-\d{{5,}}-of-\d{{5,}}\.pq")
        names = [facts.file for facts in self.derived if of_split.fullmatch(facts.file)]
        return tuple(sorted(names, key=lambda name: (len(name), name)))

    @property
    def folder(self) -> str:
        """The folder below the directory that holds the files; usually empty."""
        return str(self.run.get("folder", ""))

    @property
    def root_names(self) -> tuple[str, ...]:
        """The files in the directory itself, beside the manifest."""
        if self.folder:
            return tuple(map(str, self.run.get("pointers", ())))
        return self.file_names[:-1]

    @property
    def replaced_names(self) -> tuple[str, ...]:
        """Files of the dataset before it in the directory itself, which are to go."""
        return tuple(map(str, self.run.get("replaced", ())))

    def path(self, directory: str, name: str) -> str:
        """Returns the path of a file that the manifest names."""
        return os.path.join(directory, self.folder, name)

    def dataset_json(self) -> dict[str, Any]:
        """Returns the dataset part, which input and spec alone decide."""
        facts = operator.attrgetter(*_SPLIT)
        return {
            "name": self.name,
            "compression": self.compression,
            "features": [feature.to_json() for feature in self.features],
            "splits": [
                dict(zip(_SPLIT, facts(split), strict=True))
                | {"shards": [shard.to_json() for shard in split.shards]}
                for split in self.splits
            ],
            "files": [facts.to_json() for facts in self.files],
            "account": self.account.to_json(),
            "inputs": dict(self.inputs),
            "settings": dict(self.settings),
            # A manifest from before there were notes keeps its digest.
            **({"image_notes": dict(self.image_notes)} if self.image_notes else {}),
        }

    @property
    def digest(self) -> str:
        """sha256 of the canonical JSON of the dataset part."""
        # Kept: 10,000 features take 0.05 s.
        if not self._digest:
            object.__setattr__(self, "_digest", _digest(self.dataset_json()))
        return self._digest

    def to_bytes(self) -> bytes:
        """Returns the content of `manifest.json`."""
        dataset, run = self.dataset_json() | {"digest": self.digest}, dict(self.run)
        data: dict[str, Any] = {"format": FORMAT, "dataset": dataset, "run": run}
        if self.derived:
            data["derived"] = [facts.to_json() for facts in self.derived]
        out = io.BytesIO()
        # Piece by piece: `json.dumps` keeps a text for each of a million class names.
        for piece in json.JSONEncoder(indent=1, ensure_ascii=False).iterencode(data):
            # Paths that are not UTF-8 have lone surrogates, which JSON can escape.
            out.write(piece.encode("utf-8", "backslashreplace"))
        out.write(b"\n")
        return out.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, path: str = MANIFEST_NAME) -> Self:
        """Inverse of `to_bytes`; also checks the digest.

        Raises:
          DamageError: the text is no manifest of this format, or was changed.
        """
        try:
            outer = json.loads(data)
            if outer["format"] != FORMAT:
                raise DamageError(
                    f"{path} must have the format {FORMAT!r}; found "
                    f"{outer['format']!r}. Read it with the version that wrote it."
                )
            inner = outer["dataset"]
            stated = str(inner["digest"])
            digest = _digest({k: v for k, v in inner.items() if k != "digest"})
            manifest = cls._from_json(outer)
        except _MALFORMED as error:
            said = f"it has no {error}" if isinstance(error, KeyError) else ""
            said = bounded(str(error)) if isinstance(error, ValueError) else said
            raise DamageError(
                f"{path} is damaged, or is no manifest of this tool: "
                f"{said or 'its values have other types'}. The dataset counts as "
                f"uncommitted: move it away, and convert it again."
            ) from error
        if digest != stated:
            raise DamageError(
                f"{path} was changed after it was written: its dataset part has the "
                f"digest {digest[:16]}, but states {stated[:16]}."
            )
        return manifest

    @classmethod
    def _from_json(cls, outer: Mapping[str, Any]) -> Self:
        inner = outer["dataset"]
        shards = [map(ShardFacts.from_json, it["shards"]) for it in inner["splits"]]
        splits = zip(inner["splits"], map(tuple, shards), strict=True)
        manifest = cls(
            name=inner["name"],
            compression=inner["compression"],
            features=tuple(map(FeatureFacts.from_json, inner["features"])),
            splits=tuple(
                SplitFacts(it["name"], own, it["classes"]) for it, own in splits
            ),
            files=tuple(map(FileFacts.from_json, inner["files"])),
            account=Account(**inner["account"]),
            inputs=dict(inner["inputs"]),
            settings=dict(inner["settings"]),
            image_notes=dict(inner.get("image_notes", {})),
            run=dict(outer["run"]),
            derived=tuple(map(DerivedFile.from_json, outer.get("derived", ()))),
        )
        gone = manifest.replaced_names
        below = {*gone, *(facts.file for facts in manifest.derived)}
        for name in {*manifest.file_names, *manifest.root_names, *gone}:
            # Files are opened and removed by these names, so none may leave the folder.
            folder, _, last = name.rpartition("/")
            if folder and (folder not in DERIVED_FOLDERS or name not in below):
                last = ""
            if last in ("", ".", "..", *DERIVED_FOLDERS) or "\0" in last:
                raise ValueError(f"{name!r} is not the name of a file")
        if manifest.folder and not is_data_folder(manifest.folder):
            raise ValueError(f"{manifest.folder!r} is not the name of its folder")
        return manifest


def _digest(dataset: Mapping[str, Any]) -> str:
    """Returns the SHA-256, in hex, of a `dataset` part as JSON with sorted keys."""
    digest = hashlib.sha256()
    encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
    for piece in encoder.iterencode(dataset):
        digest.update(piece.encode())
    return digest.hexdigest()
