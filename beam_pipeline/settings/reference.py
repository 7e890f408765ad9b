"""The reference of all settings, as Markdown."""

import re

from beam_pipeline.engines.table import RUNNERS
from beam_pipeline.settings.options import SETTINGS, Setting
from transforms.formats.registry import FORMATS

__all__ = ["settings_table"]

_HEAD = ("setting", "option", "values", "default", "for", "what")
_DEFAULT = re.compile(r" ?\[(.*)\](?=\.$)")
_KINDS = {
    "switch": "true, false",
    "int": "whole number",
    "float": "number",
    "joined": "list of texts",
    "list": "list of texts",
    "pairs": "mapping",
    "text": "text",
}


def settings_table() -> str:
    """Returns every setting, as one Markdown table below the title of each section.

    A row has the name that a spec and `beam_pipeline.convert` take, the option of the
    command line, the values, the default, the sources and formats that the setting is
    for (nothing where it is for all), and what it does.
    """
    sections: dict[str, list[Setting]] = {}
    for setting in SETTINGS.values():
        section = setting.section or "Without an option"
        sections.setdefault(section, []).append(setting)
    parts = []
    for title, settings in sections.items():
        rows = [_HEAD, ["---"] * len(_HEAD), *map(_row, settings)]
        parts.append(f"## {title}")
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def _row(setting: Setting) -> list[str]:
    text = setting.help.format(formats=", ".join(FORMATS), runners=", ".join(RUNNERS))
    default = _DEFAULT.search(text)
    values = ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.metavar and setting.kind != "choice":
        values = f"`{setting.metavar}`"
    cells = [
        f"`{setting.name}`",
        f"`{setting.flags}`" if setting.flags else "",
        values or _KINDS[setting.kind],
        default[1] if default else _plain_default(setting),
        setting.sources or _formats_of(setting),
        _DEFAULT.sub("", text),
    ]
    return [cell.replace("|", r"\|") for cell in cells]


def _plain_default(setting: Setting) -> str:
    if setting.default is ...:
        return "must be given"
    if isinstance(setting.default, bool):
        return str(setting.default).lower()
    return f"`{setting.default}`" if setting.default else ""


def _formats_of(setting: Setting) -> str:
    """Returns the formats that have it among their options; empty where none has."""
    return ", ".join(
        known.title for known in FORMATS.values() if setting.name in known.options
    )
