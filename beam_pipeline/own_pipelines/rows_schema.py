"""The schema of the rows of a pipeline, by what their columns hold and what is said."""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from beam_pipeline.own_pipelines.given import Earlier, Given
from beam_pipeline.own_pipelines.read_rows import ReadSource, with_source_features
from beam_pipeline.planning.features import declare, override, with_vocabularies
from beam_pipeline.planning.like import settle_schema
from beam_pipeline.settings.spec import Spec
from transforms.core.schema import Feature, Kind, Schema
from transforms.errors import SpecError
from transforms.publishing.parts import Model
from transforms.rows.inferred import InferredColumn
from transforms.rows.tally import SpooledBundle
from transforms.storage.files import sizes_of


def schema_of(
    inferred: Mapping[str, InferredColumn], counted: SpooledBundle, given: Given
) -> Schema:
    """Returns the schema of the rows; errors as `plan_rows`."""
    spec, source = given.spec, given.source
    samples = {name: column.sample for name, column in inferred.items()}
    features = [column.feature for column in inferred.values()]
    if source is not None:
        types = {name: column.types for name, column in inferred.items()}
        features = with_source_features(
            features, types, source, label=spec.label_column
        )
    image_files = _image_files(inferred, given.root, source)
    if given.earlier is None:
        schema = declare(features, samples, spec, image_files=image_files)
    else:
        columns = {f.source_column: f for f in features if not f.derived}
        like = _LikeEarlier(given.earlier.get(), spec, columns, samples)
        schema = like.schema(inferred, counted.tally.new_classes, image_files)
    _check_paths(schema, inferred, given.root)
    if inferred and spec.images_root and not schema.of_kind(Kind.IMAGE):
        raise SpecError(
            "images_root is for paths of images; no column of these rows holds them. "
            "Leave it out, or say kind: image of their columns in features=."
        )
    return schema


@dataclasses.dataclass(frozen=True)
class _LikeEarlier:
    """The columns of rows beside an earlier dataset.

    Rows may have the names of its features, or of the columns that these were made of.

    Attributes:
      earlier: what is known of it.
      spec: of the job.
      columns: column -> the feature that its values would be without it.
      samples: of the columns.
    """

    earlier: Earlier
    spec: Spec
    columns: Mapping[str, Feature]
    samples: Mapping[str, pa.Array]

    def schema(
        self,
        inferred: Mapping[str, InferredColumn],
        new_classes: Mapping[str, frozenset[str]],
        image_files: Collection[str],
    ) -> Schema:
        """Returns the schema of the rows.

        Raises:
          InputError: they are not like it; all of the drift is in the message.
        """
        shared = self.earlier.like.model
        model = dataclasses.replace(
            shared,
            features=tuple(map(_of_values, shared.features)),
            classes={
                label: names if new_classes.get(label) else self.earlier.names(label)
                for label, names in shared.classes.items()
            },
        )
        # What no column is of, whatever its name.
        made = [f for f in model.features if f.derived or f.constant is not None]
        of_column = {
            old.name: column
            for old in model.features
            if old not in made and (column := self._column(old)) is not None
        }
        now = [self._now(model.by_name[n], column) for n, column in of_column.items()]
        made = [f for f in made if not f.derived or _image_of(f, model) in of_column]
        beside = {*of_column.values(), *(f.name for f in made)}
        now += self._new([n for n in self.columns if n not in beside], image_files)
        values = {name: column.values for name, column in inferred.items()}
        settled = settle_schema(
            dataclasses.replace(self.earlier.like, model=model),
            Schema((*with_vocabularies(now, self.spec), *made)),
            values
            | {model.by_name[n].source_column: values[c] for n, c in of_column.items()},
            self.spec,
            classes={
                label: sorted(new_classes.get(label, ())) for label in model.classes
            },
            numbered=False,
        )
        return Schema(
            tuple(
                self._as_in_rows(feature, of_column.get(feature.name))
                for feature in settled.features
            )
        )

    def _column(self, old: Feature) -> str | None:
        """Returns the column of the rows that an earlier feature is of."""
        names = (old.name, old.source_column)
        there = (n for n in names if n in self.columns and n not in self.spec.drop)
        return next(there, None)

    def _now(self, old: Feature, column: str) -> Feature:
        """Returns what a column would be under the name of the earlier feature."""
        feature = self.columns[column]
        own = "" if column == old.name else column
        if old.kind is Kind.IMAGE and feature.kind in (Kind.TEXT, Kind.BYTES):
            # A path, or the content of a file.
            feature = old
        elif old.kind is Kind.LABEL and feature.kind is Kind.TEXT:
            feature = dataclasses.replace(feature, kind=old.kind, is_label=old.is_label)
        feature = dataclasses.replace(feature, name=old.name, column=own)
        said = self.spec.features.get(old.name)
        if said is None:
            return feature
        (feature,) = override([feature], {old.name: said}, self.samples)
        return feature

    def _new(
        self, columns: Collection[str], image_files: Collection[str]
    ) -> Sequence[Feature]:
        """Returns the features of columns that the earlier dataset lacks."""
        by_name = self.earlier.like.model.by_name
        columns = [name for name in columns if name not in self.spec.drop]
        said = {n: f for n, f in self.spec.features.items() if n not in by_name}
        if not columns and not said:
            return ()
        images = [n for n in self.spec.image_columns or () if n in columns]
        rest = {"features": said, "drop": [], "image_columns": images or None}
        spec = self.spec.model_copy(
            update={**rest, "vocabulary": None, "unknown_label": "reject"}
        )
        return declare(
            [self.columns[name] for name in columns],
            {name: self.samples[name] for name in columns},
            spec,
            image_files=[name for name in image_files if name in columns],
        ).features

    def _as_in_rows(self, feature: Feature, column: str | None) -> Feature:
        if column is None:
            return feature
        own = "" if column == feature.name else column
        feature = dataclasses.replace(feature, column=own)
        if feature.kind is not Kind.IMAGE:
            return feature
        kind = self.samples[column].type
        while pa.types.is_list(kind):
            kind = kind.value_type
        inline = not (pa.types.is_string(kind) or pa.types.is_null(kind))
        return dataclasses.replace(feature, inline=inline)


def _of_values(feature: Feature) -> Feature:
    """Returns a feature that was read off a path, or as a file, as one of values."""
    kind = Kind.BYTES if feature.kind is Kind.FILE else feature.kind
    return dataclasses.replace(feature, pattern="", kind=kind)


def _image_of(derived: Feature, model: Model) -> str:
    """Returns the image that a feature is derived from; empty for none."""
    images = (f.name for f in model.features if f.kind is Kind.IMAGE)
    return derived.derived_from or next(images, "")


def _image_files(
    inferred: Mapping[str, InferredColumn], root: str, source: ReadSource | None
) -> set[str]:
    """Returns the columns whose paths are of images below a folder, by one of each."""
    read = () if source is None else source.schema.names
    places = {
        name: os.path.join(root, column.path)
        for name, column in inferred.items()
        if root and column.path and name not in read
    }
    there = sizes_of(places.values())
    return {name for name, path in places.items() if path in there}


def _check_paths(
    schema: Schema, inferred: Mapping[str, InferredColumn], root: str
) -> None:
    """Raises SpecError where images are at paths that only a folder makes complete."""
    for feature in schema.of_kind(Kind.IMAGE):
        column = inferred.get(feature.source_column)
        if feature.inline or root or column is None or not column.relative:
            continue
        raise SpecError(
            f"Paths of images must be absolute, or relative to images_root=; "
            f"{column.relative:,} in {feature.source_column!r} are relative. Workers "
            f"run in folders of their own: name the folder of the images."
        )
