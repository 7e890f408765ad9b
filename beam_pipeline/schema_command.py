"""The command `schema` for a source: its features as a spec to be edited."""

import json
from collections.abc import Mapping
from typing import Any

import yaml

from beam_pipeline.plan import plan_source
from beam_pipeline.sources import PlannedSource
from beam_pipeline.spec import Spec, make_spec
from transforms.core.infer import Evidence
from transforms.core.schema import Feature, Kind, Missing, Unknown
from transforms.formats.images import PRESETS

__all__ = ["show"]

_EXAMPLES = 3
# Column of the comments, where the line before them is short enough.
_COMMENT_AT = 28


def show(settings: Mapping[str, Any]) -> int:
    """Prints the spec of a source with all that was inferred."""
    # No output is looked at: what is printed is to be given one.
    spec = make_spec({"output": "OUTPUT", **settings})
    print(render(spec, plan_source(spec)[1]), end="")
    return 0


def render(spec: Spec, planned: PlannedSource) -> str:
    """Returns the text of the spec: a valid --spec file."""
    given = spec.changed_json()
    for name in ("output", "features", "feature_names"):
        given.pop(name, None)
    lines = [
        f"# {spec.source}: {planned.layout}.",
        "# Edit, and convert with: beam-tfrecord convert --spec FILE SOURCE OUTPUT",
        yaml.safe_dump(given, allow_unicode=True, sort_keys=False).rstrip(),
    ]
    names = {feature.name for feature in planned.schema.features}
    if planned.schema.of_kind(Kind.IMAGE):
        roles = {
            role: name
            for role, name in {**PRESETS[spec.preset], **spec.feature_names}.items()
            if name in names
        }
        lines.append("# What is kept of each image, and its name; empty leaves it out.")
        lines.append("feature_names:")
        lines += [f"  {role}: {_quoted(name)}" for role, name in roles.items()]
        names -= set(roles.values())
    declared = [f for f in planned.schema.features if f.name in names and not f.derived]
    if declared:
        lines.append("features:")
    for feature in declared:
        comment = _evidence(planned.evidence.get(feature.name))
        head = f"  {_quoted(feature.name)}:"
        lines.append(f"{head:<{_COMMENT_AT}}{comment}".rstrip())
        lines += [f"    {key}: {value}" for key, value in _declaration(feature).items()]
    return "\n".join(lines) + "\n"


def _declaration(feature: Feature) -> dict[str, str]:
    out = {"kind": str(feature.kind)}
    if feature.column:
        out["column"] = _quoted(feature.column)
    if feature.is_label:
        out["label"] = "true"
    if feature.shape:
        out["shape"] = json.dumps(list(feature.shape))
    for name in ("dtype", "encoding", "unit"):
        if value := getattr(feature, name):
            out[name] = value
    if feature.missing is not Missing.OMIT:
        out["missing"] = str(feature.missing)
    if feature.unknown is not Unknown.REJECT:
        out["unknown"] = str(feature.unknown)
    for key, given in (
        ("fill", feature.fill),
        ("constant", feature.constant),
        ("path", feature.pattern or None),
        ("separator", feature.separator or None),
    ):
        if given is not None:
            out[key] = _quoted(given)
    if feature.vocabulary is not None:
        out["vocabulary"] = json.dumps(list(feature.vocabulary), ensure_ascii=False)
    return out


def _quoted(value: Any) -> str:
    """Returns a scalar as YAML on one line."""
    text = yaml.safe_dump(value, allow_unicode=True, width=10**6).strip()
    return text.removesuffix("...").strip()


def _evidence(evidence: Evidence | None) -> str:
    """Returns the comment: share present, range, examples."""
    if evidence is None or not evidence.sampled:
        return ""
    parts = [f"{evidence.present:.1%} present"]
    if evidence.minimum is not None:
        parts.append(f"{evidence.minimum:g} to {evidence.maximum:g}")
    if evidence.examples:
        shown = ", ".join(map(_one_line, evidence.examples[:_EXAMPLES]))
        parts.append(f"as {shown}")
    if evidence.misfits:
        wrong = ", ".join(map(_one_line, evidence.misfit_examples[:_EXAMPLES]))
        parts.append(f"{evidence.misfits:,} do not fit, as {wrong}")
    return "# " + "; ".join(parts)


def _one_line(text: str) -> str:
    shown = text if text.isprintable() else ascii(text)[1:-1]
    return shown or '""'
