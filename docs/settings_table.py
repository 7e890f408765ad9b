"""The reference of all settings, as Markdown."""

from beam_pipeline.settings.options import SECTIONS, SETTINGS, Setting
from beam_pipeline.settings.values import RUNNERS
from transforms.formats.registry import FORMATS

_HEAD = ("setting", "option", "for", "what, and [the default]")
_VALUES = {"int": "N", "float": "N", "text": "TEXT"}
# The metavar is shown instead of a longer list of choices.
_MOST_CHOICES = 6


def settings_table() -> str:
    """Returns every setting, as one Markdown table below the title of each section.

    A row has the name that a spec and `beam_pipeline.convert` take, the option of the
    command line with its values, the sources and formats that the setting is for
    ("all" where it is for all), and what it does, with the default in brackets.
    """
    last = "Without an option"
    sections: dict[str, list[Setting]] = {title: [] for title in (*SECTIONS, last)}
    for setting in SETTINGS.values():
        sections[setting.section or last].append(setting)
    parts = []
    for title, settings in sections.items():
        rows = [_HEAD, ["---"] * len(_HEAD), *map(_row, settings)]
        parts.append(f"## {title}")
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def _row(setting: Setting) -> list[str]:
    # A cell breaks between the two flags of a switch.
    flags = setting.flags.replace("/", "` / `")
    cells = [
        f"`{setting.name}`",
        f"`{flags}{_value(setting)}`" if flags else "",
        setting.sources or _formats_of(setting) or "all",
        setting.help.format(formats=", ".join(FORMATS), runners=", ".join(RUNNERS)),
    ]
    return [cell.replace("|", r"\|") for cell in cells]


def _value(setting: Setting) -> str:
    """Returns what follows the flag; empty for a switch."""
    if setting.kind == "switch":
        return ""
    if setting.choices and len(setting.choices) <= _MOST_CHOICES:
        return " " + "|".join(map(str, setting.choices))
    return f" {setting.metavar or _VALUES[setting.kind]}"


def _formats_of(setting: Setting) -> str:
    """Returns the formats that have it among their options; empty where none has."""
    return ", ".join(
        known.title for known in FORMATS.values() if setting.name in known.options
    )
