"""The parameters of `WriteDataset` as the spec of a job, checked before anything runs.

WriteDataset("out/x", label="species", splits="column:part", key="id", seed=7)
  -> Spec(output="out/x", label_column="species", split_column="part",
          key_column="id", seed=7)
  -> Given: the spec, and what is known of rows before they are seen

    features={"id": "int64"}   words of a spec: of these columns, others are inferred
    like="out/earlier"         the features, classes and settings of a dataset
    part="2026-11-03"          those of the parts beside this one

All of it is read at construction and travels with the pipeline, unless it is large.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline.own_pipelines.engine_workers import Held, hold
from beam_pipeline.own_pipelines.read_rows import ReadSource
from beam_pipeline.planning.like import Like, find_like
from beam_pipeline.planning.request import check_name, name_of, resolve
from beam_pipeline.planning.splits import check_part, identity_of, rule_of, sha256_of
from beam_pipeline.settings.keywords import WriteKeywords
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.removed import check_still_there
from beam_pipeline.settings.spec import Spec, make_spec
from transforms.core.files import folder_of_parts
from transforms.core.placing.splitting import Assignments, SplitRule, SplitSource
from transforms.core.schema import Feature, Kind, Unknown
from transforms.errors import (
    BeamTFRecordError,
    SpecError,
    bounded,
    closest,
    raising_in_python,
)
from transforms.publishing import target
from transforms.publishing.parts import Model
from transforms.rows.inferred import Declared
from transforms.rows.typed_rows import RowRule
from transforms.storage.paths import absolute
from transforms.work.split_tables import SplitIds, read_split_ids

_SOURCE = "rows"
_COLUMN = "column:"
# Settings that have a parameter of another name.
_PARAMETERS = {
    "label_column": "label",
    "split_column": "splits='column:NAME'",
    "key_column": "key",
    "shards": "num_shards",
}
# In the words of messages, in which shards are mostly what they are.
_RENAMED = re.compile(
    r"(?<![\w'])(label_column|split_column|key_column|shards(?=[:=]| and shard_size))"
    r"(?![\w'])"
)
_OWN = (
    *("label", "splits", "key", "duplicates", "features", "like", "num_shards"),
    *("accounts", *WriteKeywords.__annotations__),
)
# Of the sections of settings that are for the reading of sources, and for the run.
_TAKEN = ("images_root", "shared_output")
_REFUSED_SECTIONS = {
    "Source": "It writes the rows that its pipeline gives. Leave it out.",
    "Run": "Options of the pipeline say how it runs. Leave it out, or use convert.",
}
_REFUSED = {
    "source": _REFUSED_SECTIONS["Source"],
    "infer": "It infers features from all rows. Leave it out.",
    "split_lock": "Give key= and the same splits= in all runs, or split_ids=.",
    "shuffle": "Rows of a pipeline have no order of their own. Leave it out.",
    "stratify_column": (
        "Rows get their splits before they are counted. Give them in a step before, "
        "with splits='column:NAME'; or convert the dataset with stratify_column."
    ),
}


def other_settings() -> list[str]:
    """Returns the settings of `convert` that `WriteDataset` has under their names."""
    own = {"output", "splits", "features", "like", *_PARAMETERS}
    return [name for name in SETTINGS if name not in own and not _refusal(name)]


@contextlib.contextmanager
def raising_of_rows() -> Iterator[None]:
    """Lets errors through with settings by their names in `WriteDataset`."""
    try:
        with raising_in_python():
            yield
    except BeamTFRecordError as error:
        named = _RENAMED.sub(lambda found: _PARAMETERS[found[0]], str(error))
        error.args = (bounded(named), *error.args[1:])
        raise


def spec_of(
    output: str | os.PathLike[str],
    *,
    label: str | None,
    splits: Mapping[str, str | float] | str | None,
    key: str | None,
    num_shards: int | None = None,
    settings: Mapping[str, Any],
) -> Spec:
    """Returns the spec that the parameters say.

    Args:
      output, label, splits, key, num_shards: as those of `WriteDataset`.
      settings: its other parameters.

    Raises:
      SpecError: a parameter is wrong or gone, or is not for rows of a pipeline.
    """
    check_still_there(settings)
    for name in settings:
        if refusal := _refusal(name):
            raise SpecError(refusal)
    given: dict[str, Any] = {**settings, "source": _SOURCE}
    is_column = isinstance(splits, str) and splits.startswith(_COLUMN)
    given |= {
        "output": os.fspath(output) if isinstance(output, os.PathLike) else output,
        "label_column": label,
        "key_column": key,
        "shards": num_shards,
        "split_column": str(splits).removeprefix(_COLUMN) if is_column else None,
    }
    if not is_column:
        given["splits"] = splits
    for name in ("output", "label_column", "split_column", "key_column"):
        if given[name] == "":
            shown = _PARAMETERS.get(name, name)
            raise SpecError(f"{shown} must not be empty. Name one, or leave it out.")
    with raising_of_rows():
        spec = make_spec({k: v for k, v in given.items() if v is not None})
        _check_apart(spec)
        name = name_of(spec, "")
        check_name(name, spec.splits or ())
        return _as_seen_here(spec).model_copy(update={"name": name})


def _as_seen_here(spec: Spec) -> Spec:
    """Returns the spec of parameters with vocabularies read, and absolute paths."""
    names = ("images_root", "split_ids", "like")
    paths = {name: absolute(path) for name in names if (path := getattr(spec, name))}
    return resolve(spec).model_copy(update=paths)


def _refusal(name: str) -> str:
    """Returns why a setting is refused; empty for one that is taken."""
    setting = SETTINGS.get(name)
    if name in _PARAMETERS:
        return f"WriteDataset calls {name} {_PARAMETERS[name]}. Give it by that name."
    if name in _TAKEN:
        return ""
    if setting is None:
        near = closest(name, _OWN)
        meant = f" (did you mean {near!r}?)" if near else ""
        return (
            f"WriteDataset has no parameter {name!r:.80}{meant}. Leave it out, or give "
            f"the right name."
        )
    why = _REFUSED.get(name) or _REFUSED_SECTIONS.get(setting.section)
    return f"WriteDataset does not take {name}. {why}" if why else ""


def _check_apart(spec: Spec) -> None:
    """Raises SpecError where other parameters name the column of the splits, too."""
    needed = {"label": spec.label_column, "key": spec.key_column}
    for parameter, name in needed.items():
        if name and name == spec.split_column:
            raise SpecError(
                f"The column that names the split is not stored, and cannot be the "
                f"{parameter}, too; found {name!r:.80} for both. Add a copy of it to "
                f"the rows under another name."
            )


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
        labels = (f for f in self.like.model.features if f.kind is Kind.LABEL)
        closed = (f for f in labels if not f.derived and f.unknown is not Unknown.OOV)
        return tuple((label, frozenset(self.names(label.name))) for label in closed)


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
        return identity_of(self.spec, by_content=not self.spec.key_column)

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
        for name, said in spec.features.items():
            labels |= {said.column or name} if said.label else set()
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
    unique = bool(spec.key_column) and duplicates == "refuse"
    given = Given(spec, earlier, None, declared, unique)
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
