"""Conversions under declared features, and what came out."""

import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from tests.support.outputs import dataset
from tests.support.runs import convert

Folder = pathlib.Path
Row = dict[str, Any]


def spec_file(folder: Folder, settings: Mapping[str, Any]) -> Folder:
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(dict(settings), allow_unicode=True))
    return path


def with_spec(source: object, out: Folder, *options: object, **settings: Any) -> Folder:
    """Converts under a spec with these settings; returns the output."""
    out.parent.mkdir(parents=True, exist_ok=True)
    spec = spec_file(out.parent, settings)
    convert(source, out, "--spec", spec, "--no-shuffle", *options)
    return out


def with_features(source: object, out: Folder, **features: Any) -> Folder:
    return with_spec(source, out, features=features)


def facts(out: Folder, name: str) -> Row:
    return next(f for f in dataset(out)["features"] if f["name"] == name)


def table(path: Folder, *rows: Sequence[object]) -> Folder:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path
