"""The command `schema`: the inferred features of a source, as a spec to edit."""

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from beam_pipeline.planning.evidence import evidence_of, near_in_words
from beam_pipeline.planning.features import declare
from beam_pipeline.planning.image_columns import role_names
from beam_pipeline.planning.inputs import PlannedSource
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import Spec, make_spec
from beam_pipeline.terminal.printing import print_text, printable, text_width
from beam_pipeline.terminal.words import (
    MOST_EXAMPLES,
    examples_text,
    extent_text,
    present_text,
)
from transforms.core.infer.evidence import Evidence
from transforms.core.schema import Feature, InexactIntegers, Kind, Missing, Unknown
from transforms.formats import images

_WIDTH = 88
# Roles that the folders of an image tree fill, unless a table has the labels.
_LABEL_ROLES = frozenset(["label", "text", "synset"])
# The first column of comments: as the longest name needs, within these.
_LEAST_INDENT, _MOST_INDENT = 20, 40
# Dates and times in whole seconds, the default unit of a timestamp.
_DATE = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"([ Tt][0-9]{2}:[0-9]{2}(:[0-9]{2})?([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)?)?$"
)


def show(settings: Mapping[str, Any]) -> int:
    """Prints the spec of a source with all that was inferred."""
    # A spec needs an output, and none is looked at here.
    spec = make_spec({"output": "OUTPUT", **settings})
    inputs, planned = plan_source(spec)
    print_text(render(spec, planned, is_tree=inputs.format == "images"), end="")
    return 0


def render(spec: Spec, planned: PlannedSource, *, is_tree: bool) -> str:
    """Returns the text of the spec: a valid --spec file, with comments.

    Args:
      spec: the job as it was given.
      planned: its source.
      is_tree: whether the source is a folder of images.
    """
    stored = planned.schema.stored
    if is_tree:
        planned = _with_evidence(planned)
    roles = _roles(spec, planned, is_tree=is_tree)
    of_roles = set(roles.values())
    lines = [*_heading(spec, planned), "", *_settings(spec)]
    if roles:
        lines += ["", f"# Of {_images(stored)}; a name of '' leaves it out."]
        lines.append("feature_names:")
        heads = [f"  {role}: {_scalar(name)}" for role, name in roles.items()]
        comments = [_role_comment(name, planned) for name in roles.values()]
        lines += _commented(heads, comments)
    usual = _usual(spec) if is_tree else {}
    listed = [
        feature
        for feature in stored
        if not _is_settled(feature, of_roles, usual, is_tree=is_tree)
    ]
    if listed:
        lines += ["", *_derived_note(stored, of_roles), "features:"]
    heads = [f"  {_scalar(feature.name)}:" for feature in listed]
    comments = [_comment(planned.evidence.get(f.name), f) for f in listed]
    for feature, line in zip(listed, _commented(heads, comments), strict=True):
        lines.append(line)
        lines += _declaration(feature, spec, planned.given_classes)
    return "\n".join(lines) + "\n"


def _with_evidence(planned: PlannedSource) -> PlannedSource:
    """Returns a tree of images with what its listing says of its features."""
    table = planned.listing.table()
    columns = {"label": table["label"], "filename": table["origin"]}
    origins = table["origin"].combine_chunks()
    found = {
        feature.name: evidence_of(feature, columns, origins)
        for feature in planned.schema.stored
        if feature.name not in planned.evidence
        and (feature.pattern or feature.source_column in columns)
        and not feature.derived
    }
    return dataclasses.replace(planned, evidence={**found, **planned.evidence})


def _images(stored: Sequence[Feature]) -> str:
    """Returns the image features as the subject of a comment."""
    found = [f for f in stored if f.kind is Kind.IMAGE]
    names = [printable(f.name) for f in found]
    if len(names) == 1 and not found[0].is_list:
        return "each image"
    return f"each of {', '.join(names)}, as {names[0]}/height"


def _heading(spec: Spec, planned: PlannedSource) -> Iterator[str]:
    rows = max((e.sampled for e in planned.evidence.values()), default=0)
    plural = "" if rows == 1 else "s"
    looked = f" Looked at {rows:,} row{plural}." if rows else ""
    yield f"# {printable(spec.source)}: {printable(planned.layout)}.{looked}"
    yield "# Edit this file; what is removed from it is inferred again. Then:"
    source = shlex.quote(spec.source)
    yield f"#   beam-tfrecord convert {printable(source)} OUTPUT --spec FILE"
    for note in planned.notes:
        yield f"# Note: {printable(note)}"


def _settings(spec: Spec) -> list[str]:
    given = spec.changed_json()
    for name in ("output", "features", "feature_names"):
        given.pop(name, None)
    lines = []
    for name, value in given.items():
        if isinstance(value, str | int | float):
            lines.append(f"{name}: {_scalar(value)}")
        elif isinstance(value, list):
            lines += _list(f"{name}: ", value)
        else:
            lines += yaml.safe_dump({name: value}, sort_keys=False).splitlines()
    return lines


def _roles(spec: Spec, planned: PlannedSource, *, is_tree: bool) -> dict[str, str]:
    """Returns role -> name of what is stored of images; "" for what is left out."""
    stored = planned.schema.stored
    found = [feature for feature in stored if feature.kind is Kind.IMAGE]
    named = spec.preset != "default" or bool(spec.feature_names)
    if not found or (planned.images_settled and not named):
        return {}
    single = len(found) == 1 and not found[0].is_list
    names = role_names(spec)
    known = {f.derived: f.name for f in stored if f.derived}
    columns = {feature.source_column for feature in found}
    out = {}
    for role, name in names.items():
        if role == "image":
            out[role] = found[0].name if single else name
        elif role in known:
            out[role] = known[role] if single else name
        elif is_tree and any(f.name == name for f in stored):
            if role not in _LABEL_ROLES or not spec.labels:
                out[role] = name
        elif role == "filename" and any(
            f.kind is Kind.TEXT and f.source_column in columns and not f.pattern
            for f in stored
        ):
            out[role] = name
        elif not name:
            out[role] = ""
    if not single and names["image"]:
        out["image"] = names["image"]
    return out


def _usual(spec: Spec) -> dict[str, Feature]:
    """Returns what a tree of images has where no feature is declared."""
    names = {role: name for role, name in role_names(spec).items() if name}
    if spec.labels:
        names = {k: v for k, v in names.items() if k not in _LABEL_ROLES}
        return {f.name: f for f in images.image_schema(names).features}
    bare = spec.model_copy(update={"features": {}})
    columns = {"label": pa.nulls(0, pa.string())}
    features = images.image_schema(names).features
    schema = declare(features, columns, bare, is_tree=True)
    return {feature.name: feature for feature in schema.features}


def _is_settled(
    feature: Feature,
    of_roles: set[str],
    usual: Mapping[str, Feature],
    *,
    is_tree: bool,
) -> bool:
    """Whether `feature_names` says all there is to say of a feature."""
    if feature.derived:
        return True
    if is_tree and feature.name in usual:
        return feature == usual[feature.name]
    if not of_roles:
        return False
    if feature.kind is Kind.IMAGE:
        # Of several, each is declared: its name is not that of the role.
        alone = feature.missing is Missing.REJECT and feature.name in of_roles
        return is_tree or alone
    return feature.name in of_roles and feature.source_column != feature.name


def _derived_note(stored: Sequence[Feature], of_roles: set[str]) -> list[str]:
    names = [f.name for f in stored if f.derived and f.name not in of_roles]
    if not names or of_roles:
        return []
    return [f"# Read off each image: {', '.join(map(printable, names))}."]


def _role_comment(name: str, planned: PlannedSource) -> str:
    if not name:
        return "# left out"
    feature = next((f for f in planned.schema.features if f.name == name), None)
    if feature is None:
        return ""
    if feature.derived:
        return "# read off each image"
    if feature.kind is Kind.LABEL and (classes := planned.classes.get(name)):
        return f"# {_classes(len(classes), classes)}"
    return _comment(planned.evidence.get(name), feature)


def _classes(count: int, names: Sequence[str]) -> str:
    what = "class" if count == 1 else "classes"
    more = ", ..." if count > MOST_EXAMPLES else ""
    return f"{count:,} {what}: {examples_text(names)}{more}"


def _commented(heads: Sequence[str], comments: Sequence[str]) -> Iterator[str]:
    """Yields the lines with their comments below one another."""
    longest = max(map(text_width, heads), default=0)
    indent = min(max(longest + 2, _LEAST_INDENT), _MOST_INDENT)
    for head, comment in zip(heads, comments, strict=True):
        gap = " " * max(indent - text_width(head), 2)
        yield f"{head}{gap}{comment}".rstrip()


def _declaration(feature: Feature, spec: Spec, own: tuple[str, ...]) -> list[str]:
    """Returns the lines of a feature's settings."""
    out: dict[str, Any] = {"kind": str(feature.kind)}
    if feature.column:
        out["column"] = feature.column
    said = spec.features.get(feature.name)
    if feature.is_label or (said is not None and said.label is False):
        out["label"] = feature.is_label
    for name in ("dtype", "encoding", "unit", "mask"):
        out[name] = getattr(feature, name) or None
    # What is not said is OMIT, but of images.
    if feature.missing is not Missing.OMIT or feature.kind is Kind.IMAGE:
        out["missing"] = str(feature.missing)
    if feature.unknown is not Unknown.REJECT:
        out["unknown"] = str(feature.unknown)
    if feature.inexact_integers is not InexactIntegers.ROUND:
        out["inexact_integers"] = str(feature.inexact_integers)
    out |= {
        "fill": feature.fill,
        "constant": feature.constant,
        "path": feature.pattern or None,
        "separator": feature.separator or None,
    }
    lines = [f"    {k}: {_scalar(v)}" for k, v in out.items() if v is not None]
    if feature.shape:
        shown = ", ".join("null" if n is None else str(n) for n in feature.shape)
        lines.append(f"    shape: [{shown}]")
    return lines + _vocabulary(feature, spec, own)


def _vocabulary(feature: Feature, spec: Spec, own: tuple[str, ...]) -> list[str]:
    given = feature.vocabulary
    if given is None:
        return []
    said = spec.features.get(feature.name)
    path = said.vocabulary if said is not None else None
    if isinstance(path, str):
        return [f"    vocabulary: {_scalar(path)}"]
    background = (images.BACKGROUND,) if spec.preset == "imagenet" else ()
    if spec.vocabulary and path is None and given in (own, (*background, *own)):
        # It is among the settings.
        return []
    return _list("    vocabulary: ", given)


def _list(head: str, values: Sequence[Any]) -> list[str]:
    """Returns a list as YAML, on as many lines as it needs."""
    indent = " " * (len(head) - len(head.lstrip()) + 2)
    lines = [f"{head}["]
    for number, value in enumerate(values):
        text = _scalar(value, in_list=True) + ("," if number + 1 < len(values) else "]")
        gap = "" if lines[-1].endswith("[") or lines[-1] == indent else " "
        if text_width(lines[-1] + gap + text) > _WIDTH and number:
            lines.append(indent + text)
        else:
            lines[-1] += gap + text
    if not values:
        lines[-1] += "]"
    return lines


def _scalar(value: Any, *, in_list: bool = False) -> str:
    """Returns a scalar as YAML on one line."""
    plain = not isinstance(value, str) or (value.isprintable() and not in_list)
    style = None if plain else '"'
    text: str = yaml.safe_dump(
        value, allow_unicode=True, width=float("inf"), default_style=style
    )
    return text.strip().removesuffix("\n...").strip()


def _comment(evidence: Evidence | None, feature: Feature) -> str:
    """Returns the comment: share present, range, examples."""
    if feature.constant is not None:
        return "# the same in every record"
    if evidence is None or not evidence.sampled:
        return ""
    parts = [f"{present_text(evidence)} present"]
    constant = evidence.minimum is not None and evidence.minimum == evidence.maximum
    if extent := extent_text(evidence, feature):
        parts.append(f"all {extent}" if constant else extent)
    single = constant or (bool(extent) and feature.kind is Kind.TIMESTAMP)
    if evidence.distinct is not None:
        parts.append(_classes(evidence.distinct, evidence.examples))
    elif evidence.examples and not single:
        parts.append(f"as {examples_text(evidence.examples)}")
    if evidence.misfits:
        wrong = examples_text(evidence.misfit_examples)
        parts.append(f"{evidence.misfits:,} DO NOT FIT, as {wrong}")
        numbered = any(re.search(r"\d", text) for text in evidence.misfit_examples)
        if not numbered and not feature.is_list:
            parts.append("if that means missing, say --null-values")
    parts += _hints(evidence, feature)
    return "# " + "; ".join(parts)


def _hints(evidence: Evidence, feature: Feature) -> Iterator[str]:
    """Yields what else the column might be, or nearly is."""
    if evidence.remark:
        yield evidence.remark
    if feature.kind not in (Kind.TEXT, Kind.LABEL):
        return
    if evidence.near is not None:
        share, held = near_in_words(evidence.near)
        yield f"{share}, the others hold {printable(held)}"
    elif feature.kind is Kind.TEXT and evidence.examples:
        if all(re.search(_DATE, text.strip()) for text in evidence.examples):
            yield "or kind: timestamp, if these are dates"
        elif evidence.few > 1:
            yield f"{evidence.few} distinct: or kind: label"
