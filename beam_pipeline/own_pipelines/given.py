"""What is known of the rows of a pipeline before they are seen.

    features={"id": "int64"}   words of a spec: of these columns, others are inferred
    like="out/earlier"         the features, classes and settings of a dataset
    part="2026-11-03"          those of the parts beside this one
    rows of a named tuple      the types of these columns

All of it is read at construction and travels with the pipeline, unless it is large.
"""

import contextlib
import dataclasses
import datetime
import decimal
import functools
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_pipeline.own_pipelines.engine_workers import Held, hold
from beam_pipeline.own_pipelines.read_rows import ReadSource
from beam_pipeline.planning.like import Like, find_like
from beam_pipeline.planning.splits import check_part, identity_of, rule_of
from beam_pipeline.settings.spec import Spec
from transforms.core.files import folder_of_parts
from transforms.core.infer.columns import infer_typed
from transforms.core.placing.splitting import Assignments, SplitRule, SplitSource
from transforms.core.schema import Feature, Kind, Unknown
from transforms.errors import SpecError
from transforms.publishing import target
from transforms.publishing.parts import Model
from transforms.rows.inferred import Declared
from transforms.rows.tables import RowRule
from transforms.storage.files import storage
from transforms.storage.paths import absolute
from transforms.work.split_tables import SplitIds, read_split_ids

# The Arrow types of classes and of what derives from them, the nearest class first.
_TYPES: Mapping[type, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 9),
    np.bool_: pa.bool_(),
    np.integer: pa.int64(),
    np.floating: pa.float64(),
}


@dataclasses.dataclass(frozen=True)
class Earlier:
    """An earlier dataset that rows are to be like, or the parts beside theirs.

    Attributes:
      like: what is taken from it.
      own: label -> the class names of the part that is there already. While its rows
        have no other class it keeps this list, however long that of other parts is:
        the same rows give the same dataset again.
    """

    like: Like
    own: Mapping[str, tuple[str, ...]]

    def names(self, label: str) -> tuple[str, ...]:
        """Returns the class names that rows have unless they say otherwise."""
        return self.own.get(label, self.like.model.classes.get(label, ()))

    @functools.cached_property
    def labels(self) -> tuple[tuple[Feature, frozenset[str]], ...]:
        """The labels whose classes are known, and the names of these."""
        return tuple(
            (feature, frozenset(self.names(feature.name)))
            for feature in self.like.model.features
            if feature.kind is Kind.LABEL
            and not feature.derived
            and feature.unknown is not Unknown.OOV
        )


def _find_earlier(spec: Spec) -> tuple[Earlier, str]:
    """Returns the dataset that `like` or `part` names, and its digest for workers."""
    like = find_like(spec)
    assert like is not None, "the spec names an earlier dataset"
    own: Mapping[str, tuple[str, ...]] = {}
    if spec.part:
        with contextlib.suppress(FileNotFoundError):
            own = Model.of(target.read_manifest(spec.output), ()).classes
    text = like.model.to_bytes() + json.dumps(own).encode()
    return Earlier(like, own), hashlib.sha256(text).hexdigest()


@dataclasses.dataclass(frozen=True)
class Given:
    """What is known of rows, wherever they are.

    Attributes:
      spec: of the job.
      earlier: what `like` and `part` name.
      ids: the table that gives the split of each key.
      declared: columns of which something is said.
      unique: whether no two rows may have one key.
      source: that the rows were read from, where that is known.
    """

    spec: Spec
    earlier: Held[Earlier] | None
    ids: Held[SplitIds] | None
    declared: Mapping[str, Declared]
    unique: bool
    source: ReadSource | None = None

    @property
    def root(self) -> str:
        """The folder that paths of images are relative to; empty for none."""
        return self.spec.images_root or (self.source.root if self.source else "")

    @property
    def split_rule(self) -> SplitRule:
        """How rows fall into splits."""
        if self.ids is not None:
            return SplitRule(SplitSource.TABLE, self.ids.get().assignments.names)
        if self.spec.split_column:
            return SplitRule(SplitSource.COLUMN)
        return rule_of(self.spec)

    @property
    def identity(self) -> str:
        """What the units of splits are hashes of; see `Assignments`."""
        by_content = not self.spec.key_column
        return identity_of(self.spec, SplitRule(by_content=by_content))

    def table(self) -> Assignments | None:
        """Returns the splits of keys."""
        return None if self.ids is None else self.ids.get().assignments

    def labels(self) -> tuple[tuple[Feature, frozenset[str]], ...]:
        """Returns the labels whose classes an earlier dataset knows."""
        return () if self.earlier is None else self.earlier.get().labels

    def row_rule(self) -> RowRule:
        """Returns what rows are known by, and how they fall into splits."""
        spec, source = self.spec, self.source
        kinds = {name: said.kind for name, said in self.declared.items()}
        # Text that is to be predicted is a class.
        labels = {name for name, kind in kinds.items() if kind is Kind.LABEL}
        labels |= {spec.label_column} if spec.label_column else set()
        labels |= {
            said.column or name for name, said in spec.features.items() if said.label
        }
        images = {name for name, kind in kinds.items() if kind is Kind.IMAGE}
        texts: frozenset[str] = frozenset()
        if source is not None:
            labels |= {feature.name for feature in source.schema.of_kind(Kind.LABEL)}
            images |= {feature.name for feature in source.schema.of_kind(Kind.IMAGE)}
            texts = frozenset(source.schema.names) - images
        whole = (Kind.INT64, Kind.LABEL)
        return RowRule(
            split=self.split_rule,
            split_column=spec.split_column or "",
            key_column=spec.key_column or "",
            group_column=spec.group_column or "",
            images=frozenset(images),
            texts=texts,
            images_root=self.root,
            integers=frozenset(n for n, kind in kinds.items() if kind in whole),
            scalars=frozenset(self.declared.keys() - {*spec.drop} | labels),
            table=self.table if self.ids is not None else None,
            labels=self.labels if self.labels() else None,
        )


def given_of(spec: Spec, *, duplicates: str) -> Given:
    """Reads what the parameters of `WriteDataset` name.

    Args:
      spec: of the job.
      duplicates: "keep" where rows may have one key.

    Raises:
      UsageError: something of it cannot be used; its type says what is wrong.
    """
    here = spec.model_copy(update={"output": absolute(spec.output)})
    earlier = None
    if find_like(here) is not None:
        path = here.like or folder_of_parts(here.output)
        earlier = hold(path, functools.partial(_find_earlier, here))
    declared = _declared_in(spec)
    if earlier is not None:
        like = earlier.get().like
        _check_splits(like, spec)
        spec = like.applied(spec)
        declared |= _declared_by(like.model.features)
    check_part(spec, by_content=not spec.key_column)
    given = Given(
        spec,
        earlier,
        None,
        declared,
        unique=bool(spec.key_column) and duplicates == "refuse",
    )
    if spec.split_ids:
        make = functools.partial(_read_ids, spec.split_ids, given.identity)
        given = dataclasses.replace(given, ids=hold(spec.split_ids, make))
    return given


def _read_ids(path: str, identity: str) -> tuple[SplitIds, str]:
    """Returns a table of ids, and its sha256, which workers compare."""
    digest = sha256_of(path)
    return read_split_ids(path, identity=identity), digest


def _check_splits(like: Like, spec: Spec) -> None:
    """Raises SpecError where an earlier dataset gives splits that fit no other rows."""
    if spec.model_fields_set & {"splits", "split_column", "split_ids"}:
        return
    settings = like.model.settings
    by_rule = settings.get("splits") or settings.get("split_column")
    if settings.get("stratify_column") or not (
        by_rule or like.split_names in ((), ("train",))
    ):
        raise SpecError(
            f"like takes splits that shares or a column decide; those of "
            f"{like.name!r:.200} go by its source, a table of ids or its classes. Give "
            f"splits= or split_ids=, too."
        )


def _declared_by(features: Sequence[Feature]) -> dict[str, Declared]:
    """Returns what the features of an earlier dataset give: kinds of columns.

    Whole floats are integers there, as in files.
    """
    out: dict[str, Declared] = {}
    for feature in features:
        if feature.derived or feature.constant is not None:
            continue
        for name in {feature.source_column, feature.name}:
            earlier = out.get(name, Declared(feature.kind))
            single = earlier.kind is feature.kind and not feature.separator
            kind = feature.kind if single else None
            out[name] = Declared(kind, takes_floats=True)
    return out


def _declared_in(spec: Spec) -> dict[str, Declared]:
    """Returns what the spec of rows gives: kinds of columns."""
    out: dict[str, Declared] = {}
    for name, said in spec.features.items():
        kind = Kind(said.kind) if said.kind is not None else None
        if kind is None and said.vocabulary is not None:
            kind = Kind.LABEL
        if kind is None or said.constant is not None or said.path is not None:
            continue
        column = said.column or name
        earlier = out.get(column)
        # Text with a separator is a list of its parts.
        single = earlier is None and not said.separator
        out[column] = Declared(kind if single else None)
    for column in spec.image_columns or ():
        out.setdefault(column, Declared(Kind.IMAGE))
    for column in spec.drop:
        out.setdefault(column, Declared())
    return out


def types_of_rows(kind: Any) -> dict[str, Declared]:
    """Returns what is given of columns by the element type of rows.

    Types that it leaves open, `Any` or a union, are inferred.
    """
    if isinstance(kind, type):
        kind = RowTypeConstraint.from_user_type(kind)
    if not isinstance(kind, RowTypeConstraint):
        return {}
    out: dict[str, Declared] = {}
    for name, hint in kind._fields:
        out |= _types_of_hint(name, hint)
    return out


def _types_of_hint(name: str, hint: Any) -> dict[str, Declared]:
    """Returns what is given by the hint of a column's type, or those of its fields."""
    hint = convert_to_beam_type(hint)
    inner = types_of_rows(_without_none(hint))
    if inner:
        return {f"{name}/{key}": said for key, said in inner.items()}
    kind = _arrow_type(hint)
    if kind is None:
        return {}
    feature, _ = infer_typed({name: pa.nulls(0, kind)})[name]
    # What bytes and texts are, images or paths of them, their values say.
    is_open = feature.kind in (Kind.BYTES, Kind.TEXT, Kind.TIMESTAMP)
    return {name: Declared(None if is_open else feature.kind, kind)}


def _without_none(hint: Any) -> Any:
    """Returns T of a hint T | None; None for a union of several types."""
    if not isinstance(hint, typehints.UnionConstraint):
        return hint
    rest = [member for member in hint.union_types if member is not type(None)]
    return rest[0] if len(rest) == 1 else None


def _arrow_type(hint: Any) -> pa.DataType | None:
    """Returns the Arrow type that is given by a hint; None where it is left open."""
    hint = _without_none(hint)
    if isinstance(hint, type):
        kinds = (kind for base, kind in _TYPES.items() if issubclass(hint, base))
        return next(kinds, None)
    items: Collection[Any] = ()
    if isinstance(hint, typehints.TupleConstraint):
        items = {*hint.tuple_types}
    elif isinstance(hint, typehints.SequenceTypeConstraint) and not isinstance(
        hint, typehints.SetTypeConstraint | typehints.FrozenSetTypeConstraint
    ):
        items = [hint.inner_type]
    inner = [_arrow_type(item) for item in items]
    return pa.list_(inner[0]) if len(inner) == 1 and inner[0] is not None else None


def sha256_of(path: str) -> str:
    """Returns the digest of a file's bytes; empty where there is no file."""
    try:
        return hashlib.sha256(storage(path).read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""
