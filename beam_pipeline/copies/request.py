"""What is asked of a subset, and the files that say so."""

import csv
import dataclasses
import hashlib
import io
from typing import Any

from transforms import files
from transforms.errors import InputError, SpecError


@dataclasses.dataclass(frozen=True, slots=True)
class Keys:
    """Keys whose records are left out.

    Attributes:
      keys: as text.
      sha256: of the file that listed them. The keys themselves go nowhere else: they
        may be those of people who are to be forgotten.
      feature: that holds the key of each record; empty for the dataset's key column.
    """

    keys: frozenset[str]
    sha256: str
    feature: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What is asked of a subset.

    Attributes:
      split: its only split; empty for all.
      label: its only class; empty for all.
      where: the condition that its rows meet; empty for none.
      dropped: whose records are left out; None for nobody's.
      relabel: old class name -> new one.
      relabel_feature: whose classes these are; empty for the label.
    """

    split: str = ""
    label: str = ""
    where: str = ""
    dropped: Keys | None = None
    relabel: dict[str, str] = dataclasses.field(default_factory=dict)
    relabel_feature: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns what the manifest says of it: only what was asked."""
        out: dict[str, Any] = {
            name: value
            for name in ("split", "label", "where", "relabel")
            if (value := getattr(self, name))
        }
        if self.relabel_feature:
            out["relabel_feature"] = self.relabel_feature
        if self.dropped is not None:
            out["dropped_keys"] = {
                "feature": self.dropped.feature,
                "keys": len(self.dropped.keys),
                "sha256": self.dropped.sha256,
            }
        return out


def read_keys(path: str, feature: str = "") -> Keys:
    """Returns the keys of a file: one a line, empty lines left out.

    Raises:
      InputError: it holds no key, or is not UTF-8.
      OSError: it cannot be read.
    """
    data = files.read_bytes(path)
    lines = _text(data, path).split("\n")
    keys = frozenset(line.removesuffix("\r") for line in lines) - {""}
    if not keys:
        raise InputError(f"A file of keys must list one key a line; {path!r} is empty.")
    return Keys(keys, hashlib.sha256(data).hexdigest(), feature)


def read_relabelling(path: str) -> dict[str, str]:
    """Returns old class name -> new one, from a CSV file with a line for each.

    A first line `old,new` is the header.

    Raises:
      InputError: a line has another number of columns, or the file has none.
      SpecError: a class is to get two names.
      OSError: it cannot be read.
    """
    text = _text(files.read_bytes(path), path)
    out: dict[str, str] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text, newline="")), 1):
        if not row or (number == 1 and row == ["old", "new"]):
            continue
        if len(row) != 2:
            raise InputError(
                f"Each line of {path!r} must hold an old class name and a new one; "
                f"line {number:,} has {len(row):,} columns."
            )
        old, new = row
        if out.setdefault(old, new) != new:
            raise SpecError(
                f"A class gets one new name; {path!r} says that {old!r} is to be "
                f"called {out[old]!r} and {new!r}."
            )
    if not out:
        raise InputError(
            f"A file of new class names must have a line OLD,NEW for each; {path!r} "
            f"has none."
        )
    return out


def _text(data: bytes, path: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path!r} must be UTF-8; the byte at {error.start:,} is not."
        ) from error
