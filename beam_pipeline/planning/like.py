"""A job that is like an earlier dataset: its features, classes, splits, and drift.

`like` names a dataset. `part` takes what the parts beside it share, where there are
any. Drift is all in which a source differs; `allow` accepts some of it, and the rest is
one error.
"""

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from beam_pipeline.planning.image_columns import Columns
from beam_pipeline.settings.spec import Spec
from transforms.core.arrays import one_array, values_and_rows
from transforms.core.files import folder_of_parts, part_name
from transforms.core.manifest import MANIFEST_NAME, PARTS_NAME
from transforms.core.rows.column import Misfit
from transforms.core.rows.conform import conform
from transforms.core.schema import Feature, Kind, Missing, Schema, Unknown
from transforms.errors import (
    DamageError,
    InputError,
    SpecError,
    TargetError,
    bounded,
    first_few,
)
from transforms.publishing import target
from transforms.publishing.parts import Model, newest_part, read_model
from transforms.storage.files import storage

SHARED = (
    *("splits", "split_column", "key_column", "group_column", "stratify_column"),
    *("seed", "compression", "drop", "null_values"),
)
"""Settings that are taken from the earlier dataset."""
_SPLITTING = frozenset(SHARED[:5])
# Settings in which parts may differ.
_OF_ONE_PART = frozenset(["drop", "null_values"])
NEW_COLUMNS, NEW_CLASSES = "new-columns", "new-classes"
_SHOWN_CLASSES = 5
# What a feature's kind is, without what else is asked of its values.
_OF_KIND = (
    *("name", "kind", "column", "shape", "dtype", "encoding", "unit", "inline"),
    *("pattern", "separator", "inexact_integers"),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Like:
    """What a job takes from an earlier dataset.

    Attributes:
      model: what that settles.
      name: of the dataset or the folder of parts, for messages.
      is_of_parts: whether it is what parts share.
      split_names: of one dataset.
    """

    model: Model
    name: str
    is_of_parts: bool
    split_names: tuple[str, ...] = ()

    @property
    def label(self) -> str | None:
        """The column to predict; None for none."""
        labels = (f.source_column for f in self.model.features if f.is_label)
        return next(labels, None)

    def applied(self, spec: Spec) -> Spec:
        """Returns the job with the settings of the earlier dataset.

        What the job says itself comes first.

        Raises:
          SpecError: it says another label, or another class of unknown names, or is a
            part and says something else than the others.
        """
        given = spec.model_fields_set
        label = self.label
        if spec.label_column not in (None, label):
            raise SpecError(
                f"The label must be that of {self.name!r}, which is {label!r:.80}; "
                f"found {spec.label_column!r:.80}. Leave it out, or choose another "
                f"output."
            )
        unknown = {f.unknown.value for f in self.model.features if f.kind is Kind.LABEL}
        if spec.unknown_label not in ("reject", *unknown):
            raise SpecError(
                f"unknown_label must be that of {self.name!r}; found "
                f"{spec.unknown_label!r}. Leave it out, or choose another output."
            )
        if self.is_of_parts:
            for name in SHARED:
                before = self.model.settings.get(name, Spec.model_fields[name].default)
                now = getattr(spec, name)
                if name in given and name not in _OF_ONE_PART and now != before:
                    raise SpecError(
                        f"Parts of a dataset must agree in {name}; those in "
                        f"{self.name!r} have {before!r:.80}, and this one "
                        f"{now!r:.80}. Leave it out, or choose another output."
                    )
        update = {k: v for k, v in self.model.settings.items() if k not in given}
        if given & {*_SPLITTING, "split_ids"} and not self.is_of_parts:
            update = {k: v for k, v in update.items() if k not in _SPLITTING}
        if spec.vocabulary is None:
            # Without classes of its own, a label has both from the earlier one.
            update["unknown_label"] = "reject"
        return spec.model_copy(update=update)


def find_like(spec: Spec) -> Like | None:
    """Returns what a job takes from an earlier dataset; None for nothing.

    Raises:
      SpecError: `like` names no dataset.
      TargetError: a part cannot be there, or is not called one.
      DamageError: what parts share cannot be read, or is older than the newest part.
    """
    if spec.part:
        folder = folder_of_parts(spec.output)
        # Before what parts share: a new class is there before the part that has it.
        newest = newest_part(folder, but=spec.output)
        shared = read_model(folder)
        if storage(os.path.join(folder, MANIFEST_NAME)).exists():
            raise TargetError(
                f"Parts must be in a folder of their own; {folder!r} is a dataset. "
                f"Choose another output."
            )
        if shared is not None:
            if newest is not None:
                # Of an older file, ids of classes would be given again.
                shared.check_part(*newest)
            # Whatever the first part was like, later ones are like that part.
            return Like(shared, folder, is_of_parts=True)
        if newest is not None:
            raise TargetError(
                f"Parts must have the {PARTS_NAME} that they share, or ids of classes "
                f"would differ; {folder!r} has parts and lacks it. Restore it, or "
                f"choose another output."
            )
    elif part_name(spec.output) and read_model(folder_of_parts(spec.output)):
        raise TargetError(
            f"A part of {folder_of_parts(spec.output)!r} must be written as one, for "
            f"it is like the others. Name that folder, with --part "
            f"{part_name(spec.output)}."
        )
    if not spec.like:
        if spec.allow and not spec.part:
            raise SpecError("allow needs like or part; leave it out.")
        return None
    shared = read_model(spec.like)
    splits: tuple[str, ...] = ()
    if shared is None:
        try:
            manifest = target.read_manifest(spec.like)
            shared = Model.of(manifest, SHARED)
            splits = tuple(split.name for split in manifest.splits)
        except (OSError, DamageError) as error:
            reason = getattr(error, "strerror", None) or error
            raise SpecError(
                f"like must name a dataset; {spec.like!r} has no manifest that can be "
                f"read: {reason}. Correct the path, or leave it out."
            ) from error
    return Like(shared, spec.like, is_of_parts=False, split_names=splits)


def settle_schema(
    like: Like | None,
    schema: Schema,
    columns: Columns,
    spec: Spec,
    *,
    classes: Mapping[str, Mapping[str, str]] | None = None,
    numbered: bool = True,
) -> Schema:
    """Returns the schema of a job that is like an earlier dataset.

    Args:
      like: the earlier one; None for none, which changes nothing.
      schema: what the job has without it.
      columns: of the sample, raw; empty where the source is a folder of images.
      spec: of the job.
      classes: label -> names in the source, all that are new among them -> where one
        is first, in words; None where they are not known.
      numbered: whether the columns are of the first rows of the source.

    Raises:
      InputError: the source has drifted; all of it is in the message.
    """
    if like is None:
        return schema
    mine = {feature.name: feature for feature in schema.features}
    of_column = {f.source_column: f for f in schema.features if not f.derived}
    out: list[Feature] = []
    taken, drift = set(), []
    for old in like.model.features:
        now = mine.get(old.name) or of_column.get(old.source_column)
        if now is None:
            if old.name not in like.model.optional:
                drift.append(f"column {old.source_column!r} is gone")
            continue
        taken.add(now.name)
        if now.name in spec.features or old.derived or old.constant is not None:
            settled = dataclasses.replace(now, vocabulary=None, unknown=old.unknown)
            if settled.in_words() != old.in_words():
                words = f"is {settled.in_words()}, and was {old.in_words()}"
                drift.append(f"{old.name!r} {words}")
            old = settled
        elif now.kind is not old.kind or now.shape != old.shape:
            drift += _kind_drift(old, now, columns, numbered=numbered)
        if old.kind is Kind.LABEL and not old.derived:
            names = tuple(like.model.classes.get(old.name, ()))
            new: Iterable[str] = _new_in(_earlier_column(columns, old), old, names)
            if classes and old.name in classes:
                known = frozenset(names)
                firsts = classes[old.name].items()
                new = (f"{n!r:.60}{where}" for n, where in firsts if n not in known)
            may_grow = NEW_CLASSES in spec.allow
            old, faults = _with_classes(
                *(old, now.vocabulary, names, new), may_grow=may_grow
            )
            drift += faults
        out.append(old)
    for feature in schema.features:
        if feature.name not in taken and NEW_COLUMNS not in spec.allow:
            drift.append(f"column {feature.source_column!r} is new")
        elif feature.name not in taken:
            # The records that are there lack it.
            out.append(feature if feature.name in spec.features else _as_new(feature))
    if drift:
        raise InputError(
            bounded(
                f"The source must be like {like.name!r}; it differs: "
                f"{'; '.join(drift)}. Correct the source, or convert it into another "
                f"output; --allow {NEW_COLUMNS} and --allow {NEW_CLASSES} accept what "
                f"is new, but never another kind."
            )
        )
    return Schema(tuple(out))


def _kind_drift(
    old: Feature, now: Feature, columns: Columns, *, numbered: bool
) -> Iterator[str]:
    """Yields that a kind changed, with a row and value that do not fit."""
    column = _earlier_column(columns, old)
    if column is None:
        yield f"{old.name!r} is {now.kind}, and was {old.kind}"
        return
    _, misfits = _as_earlier(column, old)
    if misfits:
        row = int(np.flatnonzero(misfits[0].bad)[0])
        where = f"row {row + 1:,} of the sample holds" if numbered else "as"
        yield (
            f"{old.name!r} was {old.kind} and looks like {now.kind}: {where} "
            f"{str(misfits[0].raw[row].as_py())!r:.40}"
        )


def _with_classes(
    old: Feature,
    given: tuple[str, ...] | None,
    names: tuple[str, ...],
    new: Iterable[str],
    *,
    may_grow: bool,
) -> tuple[Feature, list[str]]:
    """Returns a label with its classes, and its drift.

    Args:
      old: the label.
      given: the vocabulary that the job gives.
      names: the earlier classes.
      new: other classes of the source, in words.
      may_grow: whether others may follow the earlier ones.
    """
    drift = []
    if given is not None and names[: len(given)] != given:
        if given[: len(names)] != names:
            drift.append(
                f"the vocabulary of {old.name!r} does not begin with its "
                f"{len(names):,} classes"
            )
        new = map(repr, given[len(names) :])
        settled = dataclasses.replace(old, vocabulary=given)
    else:
        unknown = old.unknown
        if unknown is Unknown.OOV:
            new = ()
        elif may_grow:
            unknown = Unknown.APPEND
        settled = dataclasses.replace(old, vocabulary=names, unknown=unknown)
    if not may_grow and (shown := [*new]):
        what = first_few(shown, _SHOWN_CLASSES)
        drift.append(f"{old.name!r} has new classes: {what}")
    return settled, drift


def _new_in(
    column: pa.Array | None, feature: Feature, names: Sequence[str]
) -> Iterator[str]:
    """Yields class names that are new, each with the first row that has it."""
    if column is None:
        return
    values, rows = values_and_rows(_as_earlier(column, feature)[0])
    table = pa.table({"name": values, "row": rows})
    firsts = table.group_by("name").aggregate([("row", "min")]).sort_by("row_min")
    earlier = frozenset((*names, None))
    for row in firsts.to_pylist():
        if row["name"] not in earlier:
            yield f"{row['name']!r:.60} in row {row['row_min'] + 1:,}"


def _earlier_column(columns: Columns, feature: Feature) -> pa.Array | None:
    """Returns the sampled column of an earlier feature; None where it is gone."""
    column = columns.get(feature.source_column)
    return None if column is None else one_array(column)


def _as_earlier(
    column: pa.Array, feature: Feature
) -> tuple[pa.Array, Sequence[Misfit]]:
    """Returns a column as the kind that it was earlier, and what does not fit that."""
    bare = Feature(
        **{name: getattr(feature, name) for name in _OF_KIND}, missing=Missing.OMIT
    )
    columns = {feature.source_column: column}
    rows, misfits = conform(columns, Schema((bare,)), len(column), "")
    return rows.column(0), misfits


def _as_new(feature: Feature) -> Feature:
    """Returns a feature that is new: optional in records, unless it is an image."""
    if feature.missing is Missing.REJECT and feature.kind is not Kind.IMAGE:
        return dataclasses.replace(feature, missing=Missing.OMIT)
    return feature


def new_features(like: Like | None, schema: Schema) -> list[str]:
    """Returns the features that are new beside an earlier dataset."""
    if like is None:
        return []
    before = like.model.by_name
    return [f.name for f in schema.stored if f.name not in before]


def drift_notes(like: Like | None, schema: Schema) -> list[str]:
    """Returns what a person should know of new features."""
    new = new_features(like, schema)
    return [f"feature {name!r} is new: earlier records lack it" for name in new]
