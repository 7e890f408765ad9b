"""The command `spec`: the inferred features of a source, as a spec to edit."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from beam_pipeline.planning.evidence import near_in_words
from beam_pipeline.planning.feature_checks import contract_settings
from beam_pipeline.planning.features import class_names
from beam_pipeline.planning.image_columns import role_names, stored_roles
from beam_pipeline.planning.inputs import PlannedInputs
from beam_pipeline.planning.plan import plan_source
from beam_pipeline.settings.spec import Spec, make_spec
from beam_pipeline.terminal import (
    MOST_EXAMPLES,
    count_text,
    examples_text,
    present_text,
    print_text,
    printable,
    range_text,
)
from transforms.core.infer.evidence import Evidence
from transforms.core.schema import Feature, Kind, Missing
from transforms.formats import images
from transforms.formats.registry import TREES

_WIDTH = 88
# Settings that are named as the attributes of `Feature`.
_STATED = (
    "dtype encoding unit mask missing unknown inexact_integers fill constant".split()
)
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
    print_text(render(spec, planned, is_tree=inputs.format in TREES), end="")
    return 0


def render(spec: Spec, planned: PlannedInputs, *, is_tree: bool) -> str:
    """Returns the text of the spec: a valid --spec file, with comments.

    Args:
      spec: the job as it was given.
      planned: its source.
      is_tree: whether the source is a folder of images.
    """
    lines = [*_heading_comments(spec, planned), ""]
    for name, value in spec.changed_json().items():
        if name not in ("output", "features"):
            lines += _yaml(name, value)
    stored = planned.schema.stored
    inferred = _of_images(spec, planned, is_tree=is_tree)
    if names := [f.name for f in stored if f.derived or f.name in inferred]:
        what = "file" if planned.schema.of_kind(Kind.FILE) else "image"
        shown = printable(", ".join(names))
        # Names of boxes' images are those of the TF Object Detection API.
        how = "" if planned.images_settled else "; feature_names renames them"
        lines += ["", f"# Stored of each {what}: {shown}{how}."]
    listed = [f for f in stored if not f.derived and f.name not in inferred]
    if listed:
        lines += ["", "features:"]
    for feature in listed:
        # A long name is a line of its own, with a question mark before it.
        *before, last = _yaml(feature.name, None, "  ")
        head = last.removesuffix(" null")
        comment = _comment(planned.evidence.get(feature.name), feature)
        lines += [*before, f"{head}  {comment}".rstrip()]
        for name, value in _declaration(feature, spec).items():
            lines += _yaml(name, value, "    ")
    return "\n".join(lines) + "\n"


def _of_images(spec: Spec, planned: PlannedInputs, *, is_tree: bool) -> set[str]:
    """Returns the features that are stored of each image, or file, without a word."""
    stored = planned.schema.stored
    if is_tree:
        tree = "files" if planned.schema.of_kind(Kind.FILE) else ""
        roles = stored_roles(spec, tree, labelled=not spec.labels)
        return {*roles.values()} - spec.features.keys()
    images_stored = [feature for feature in stored if feature.kind is Kind.IMAGE]
    is_named = spec.preset != "default" or bool(spec.feature_names)
    if planned.images_settled and not is_named:
        return set()
    roles = role_names(spec)
    columns = {feature.source_column for feature in images_stored}
    names = {f.name for f in images_stored if f.missing is Missing.REJECT}
    files = {
        f.name for f in stored if f.kind is Kind.TEXT and f.source_column in columns
    }
    return (names & {roles["image"]}) | (files & {roles["filename"]} - columns)


def _heading_comments(spec: Spec, planned: PlannedInputs) -> Iterator[str]:
    """Yields the comments above a spec: source, rows looked at, its use, notes."""
    rows = max((e.sampled for e in planned.evidence.values()), default=0)
    looked = f" Looked at {count_text(rows, 'row')}." if rows else ""
    yield f"# {printable(spec.source)}: {printable(planned.layout)}.{looked}"
    yield "# Edit this file; what is removed from it is inferred again. Then:"
    source = shlex.quote(spec.source)
    yield f"#   beam-tfrecord convert {printable(source)} OUTPUT --spec FILE"
    for note in planned.notes:
        yield f"# Note: {printable(note)}"


def _declaration(feature: Feature, spec: Spec) -> dict[str, Any]:
    """Returns the settings of a feature."""
    stated = feature.to_json()
    out: dict[str, Any] = {"kind": str(feature.kind), "column": stated.get("column")}
    said = spec.features.get(feature.name)
    if feature.is_label or (said is not None and said.label is False):
        out["label"] = feature.is_label
    out |= {name: stated.get(name) for name in _STATED}
    if feature.kind is Kind.IMAGE:
        # What is not said is OMIT, but of images.
        out["missing"] = str(feature.missing)
    out |= {"path": stated.get("pattern"), "separator": stated.get("separator")}
    if feature.has_contract:
        out |= contract_settings(feature)
    out["shape"] = stated.get("shape")
    out["vocabulary"] = _stated_vocabulary(feature, spec)
    return {name: value for name, value in out.items() if value is not None}


def _stated_vocabulary(feature: Feature, spec: Spec) -> str | list[str] | None:
    """Returns classes for the features of a spec, as names or a file; else None."""
    given = feature.vocabulary
    if given is None:
        return None
    said = spec.features.get(feature.name)
    path = said.vocabulary if said is not None else None
    if isinstance(path, str):
        return path
    background = (images.BACKGROUND,) if spec.preset == "imagenet" else ()
    own = class_names(spec.vocabulary or ())
    if own and path is None and given in (own, (*background, *own)):
        # It is among the settings.
        return None
    return [*given]


class _Dumper(yaml.SafeDumper):
    """Writes lists on as few lines as they need, and escapes in texts as YAML has them.

    What is not printable is escaped once more when it is printed; only between double
    quotes does that give the same text back.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Writes what is there twice, twice."""
        return True


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Returns a text for YAML; in double quotes where it holds what does not print."""
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list_node(dumper: _Dumper, items: Sequence[Any]) -> yaml.SequenceNode:
    """Returns a list for YAML, on one line."""
    tag = "tag:yaml.org,2002:seq"
    return dumper.represent_sequence(tag, items, flow_style=True)


_Dumper.add_representer(str, _text_node)
_Dumper.add_representer(list, _list_node)


def _yaml(name: str, value: Any, indent: str = "") -> list[str]:
    """Returns the lines of a setting."""
    # Only lists are broken: a text that is one line stays one.
    width = _WIDTH - len(indent) if isinstance(value, list) else float("inf")
    text: str = yaml.dump(
        {name: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width
    )
    return [f"{indent}{line}" for line in text.rstrip("\n").split("\n")]


def _comment(evidence: Evidence | None, feature: Feature) -> str:
    """Returns the comment: share present, range, examples."""
    if feature.constant is not None:
        return "# the same in every record"
    if evidence is None or not evidence.sampled:
        return ""
    parts = [f"{present_text(evidence)} present"]
    constant = evidence.minimum is not None and evidence.minimum == evidence.maximum
    if extent := range_text(evidence.minimum, evidence.maximum, feature):
        parts.append(f"all {extent}" if constant else extent)
    single = constant or (bool(extent) and feature.kind is Kind.TIMESTAMP)
    if evidence.distinct is not None:
        classes = count_text(evidence.distinct, "class", "classes")
        more = ", ..." if evidence.distinct > MOST_EXAMPLES else ""
        parts.append(f"{classes}: {examples_text(evidence.examples)}{more}")
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
        share, others = near_in_words(evidence.near)
        yield f"{share}, the others hold {printable(others)}"
    elif feature.kind is Kind.TEXT and evidence.examples:
        if all(re.search(_DATE, text.strip()) for text in evidence.examples):
            yield "or kind: timestamp, if these are dates"
        elif evidence.few > 1:
            yield f"{evidence.few} distinct: or kind: label"
