"""Datasets that are parts of one: `FOLDER/part=NAME/`, and what they share.

`FOLDER/parts.json` is the one file that parts share: their features, the longest lists
of classes, and the settings that decide keys and splits. It is changed before the part
that needs it appears, and never loses a class: the list of each part is a prefix of the
longest one, so that a class has one id in all parts.
"""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from transforms.core.files import PART_PREFIX, folder_of_parts
from transforms.core.manifest import MANIFEST_NAME, PARTS_NAME, Manifest
from transforms.core.schema import Feature, Kind, Schema, Unknown
from transforms.errors import BusyError, DamageError, RaceError
from transforms.publishing.published import bytes_or_none, manifest_or_none
from transforms.storage.files import storage
from transforms.storage.folders import exclusive_lock
from transforms.storage.paths import is_remote
from transforms.storage.retry import OvertakenError

FORMAT = "beam-tfrecord-parts/1"
_LOCK = ".parts.beam-tfrecord"
# How often a part is announced again where others are at that moment.
_ATTEMPTS, _PAUSE_SECONDS = 50, 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Model:
    """What a dataset settles for those that are to be like it.

        >>> kind = Feature("kind", Kind.LABEL)
        >>> before = Model((kind,), {"kind": ("cat", "dog")}, {})
        >>> before.joined(Model((kind,), {"kind": ("cat",)}, {}), "out").classes
        {'kind': ('cat', 'dog')}

    Attributes:
      features: with the columns that they are of, and without the names of classes.
      classes: label -> its class names in the order of their ids.
      settings: of the job, by their names in a spec.
      optional: features that some parts lack.
    """

    features: tuple[Feature, ...]
    classes: Mapping[str, tuple[str, ...]]
    settings: Mapping[str, Any]
    optional: frozenset[str] = frozenset()

    @property
    def by_name(self) -> dict[str, Feature]:
        """The features by their names."""
        return {feature.name: feature for feature in self.features}

    @classmethod
    def of(cls, manifest: Manifest, names: Sequence[str]) -> Self:
        """Returns what a dataset settles.

        Args:
          manifest: of the dataset.
          names: of the settings to be kept.
        """
        stated = manifest.settings.get("schema")
        schema = (
            Schema.from_json(list(stated))
            if stated
            else Schema(tuple(facts.feature for facts in manifest.features))
        )
        classes = {
            facts.feature.name: facts.classes[:-1]
            if facts.feature.unknown is Unknown.OOV
            else facts.classes
            for facts in manifest.features
            if facts.feature.kind is Kind.LABEL
        }
        spec = manifest.run.get("spec")
        given = spec if isinstance(spec, Mapping) else {}
        settings = {name: given[name] for name in names if name in given}
        return cls(tuple(map(_unnamed, schema.features)), classes, settings)

    def joined(self, part: "Model", folder: str) -> "Model":
        """Returns what parts share once a part is one of them.

        Args:
          part: what that one settles.
          folder: of the parts, for messages.

        Raises:
          RaceError: another part was announced meanwhile that this one contradicts.
        """
        features = self.by_name
        for feature in part.features:
            before = features.get(feature.name, feature)
            if before.in_words() != feature.in_words():
                raise _race_error(
                    folder, f"{feature.name!r} is {before.in_words()} now"
                )
        classes = dict(self.classes)
        for name, names in part.classes.items():
            longest = self.classes.get(name, ())
            short, long = sorted((names, longest), key=len)
            if long[: len(short)] != short:
                raise _race_error(folder, f"{name!r} has other classes now")
            classes[name] = long
        new = [f for f in part.features if f.name not in features]
        lacking = {f.name for f in self.features} - {f.name for f in part.features}
        if gone := sorted(lacking - self.optional):
            raise _race_error(folder, f"{gone[0]!r} is a feature now")
        optional = self.optional | {feature.name for feature in new}
        return dataclasses.replace(
            self, features=(*self.features, *new), classes=classes, optional=optional
        )

    def check_part(self, directory: str, manifest: Manifest) -> None:
        """Checks that a part has the features of all, and a prefix of their classes.

        Args:
          directory: of the part.
          manifest: of the part.

        Raises:
          DamageError: what parts share is older than the part, or that is of others.
        """
        by_name = self.by_name
        for facts in manifest.features:
            name, kind = facts.feature.name, facts.feature.kind
            mine = by_name.get(name)
            names = facts.classes
            if facts.feature.unknown is Unknown.OOV:
                names = names[:-1]
            if (
                mine is None
                or (mine.kind is not kind and mine.kind is not Kind.FILE)
                or mine.shape != facts.feature.shape
                or self.classes.get(name, ())[: len(names)] != names
            ):
                shared = os.path.join(folder_of_parts(directory), PARTS_NAME)
                raise DamageError(
                    f"{shared}: it must have the features of all parts, and their "
                    f"classes in the same order; {name!r} of {directory!r} is another. "
                    f"Restore the {PARTS_NAME} of when this part was written; or, if "
                    f"the part came from elsewhere, move it away, and write it again "
                    f"with 'convert --part'."
                )

    def to_bytes(self) -> bytes:
        """Returns the content of `parts.json`."""
        data = {
            "format": FORMAT,
            "features": [feature.to_json() for feature in self.features],
            "classes": self.classes,
            "settings": self.settings,
            "optional": sorted(self.optional),
        }
        return json.dumps(data, indent=1, ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Self:
        """Inverse of `to_bytes`; raises DamageError, which names the path."""
        try:
            content = json.loads(data)
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            return cls(
                tuple(map(Feature.from_json, content["features"])),
                {name: tuple(names) for name, names in content["classes"].items()},
                content["settings"],
                frozenset(content["optional"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamageError(
                f"{path}: not the {PARTS_NAME} of this program: {error}. Restore it, "
                f"or convert the parts again into another folder."
            ) from error


def _unnamed(feature: Feature) -> Feature:
    """Returns a feature without the names of its classes, and what was done to them."""
    unknown = feature.unknown
    if unknown is Unknown.APPEND:
        unknown = Unknown.REJECT
    return dataclasses.replace(feature, vocabulary=None, unknown=unknown)


def _race_error(folder: str, what: str) -> RaceError:
    """Returns the error of a run whose other parts changed after it had started."""
    return RaceError(
        f"The parts of {folder!r} must be as they were when the run started; {what}, "
        f"by another run. Nothing was committed; run again."
    )


def read_model(folder: str) -> Model | None:
    """Returns what the parts in a folder share; None where there is none yet.

    Raises:
      DamageError: the file that says so is damaged.
    """
    path = os.path.join(folder, PARTS_NAME)
    data = bytes_or_none(path)
    return None if data is None else Model.from_bytes(data, path)


def newest_part(folder: str, *, but: str) -> tuple[str, Manifest] | None:
    """Returns the last part by its name, and its manifest; None where there is none.

    Args:
      folder: of the parts.
      but: folder of a part that is not looked at.
    """
    if not storage(folder).is_folder():
        return None
    names = (name.rstrip("/") for name in storage(folder).names_in())
    for name in sorted(names, reverse=True):
        path = os.path.join(folder, name)
        if name.startswith(PART_PREFIX) and path != but.rstrip("/"):
            manifest = manifest_or_none(path)
            if manifest is not None:
                return path, manifest
    return None


def part_names(folder: str) -> list[str]:
    """Returns the names of the parts in a folder, in their order."""
    names = [name.rstrip("/") for name in storage(folder).names_in()]
    return [
        name.removeprefix(PART_PREFIX)
        for name in sorted(names)
        if name.startswith(PART_PREFIX)
        and storage(os.path.join(folder, name, MANIFEST_NAME)).exists()
    ]


def announce(folder: str, part: Model, *, attempts: str) -> None:
    """Adds what a part settles to what all share, before the part appears.

    Args:
      folder: of the parts.
      part: what that one settles.
      attempts: see `StoredPath.create`.

    Raises:
      RaceError: another part was announced meanwhile that this one contradicts.
    """
    path = os.path.join(folder, PARTS_NAME)
    for _ in range(_ATTEMPTS):
        # Another run holds the lock, or was first in the bucket: both take a moment.
        with contextlib.suppress(BusyError, OvertakenError), _held(folder):
            version = storage(path).look().version
            before = read_model(folder)
            after = part if before is None else before.joined(part, folder)
            if after != before:
                storage(path).put_if(after.to_bytes(), version, attempts=attempts)
            return
        time.sleep(_PAUSE_SECONDS)
    raise _race_error(folder, "they are being changed all the time")


@contextlib.contextmanager
def _held(folder: str) -> Iterator[None]:
    """Holds a lock on a disk; in a bucket the store decides who is first."""
    if is_remote(folder):
        yield
        return
    lock = os.path.join(folder, _LOCK)
    with exclusive_lock(lock):
        yield
        storage(lock).remove_file(below=folder)
