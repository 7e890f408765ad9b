"""The parts of the docs that are made from the code, as Markdown.

Each function in `PARTS` returns one part. A part that misses something in the code,
such as the meaning of a reject reason, raises an error. In a page, a part stands
between two comments:

    <!-- from the code: reject-reasons -->
    <!-- end -->

    python docs/code_parts.py    writes all parts into the pages

A test compares the pages with the code, so none can be out of date.
"""

import ast
import dataclasses
import datetime
import decimal
import enum
import importlib
import inspect
import json
import pathlib
import re
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import click

__all__ = ["PARTS", "PART_IN_PAGE", "with_parts"]

ROOT = pathlib.Path(__file__).resolve().parent.parent

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Settings):$")
_ENTRY = re.compile(r"^(?P<names>\w[\w, ]*):(?: (?P<text>.*))?$")


@dataclasses.dataclass(frozen=True)
class Docstring:
    """A docstring in the style of this project.

    Attributes:
      text: the paragraphs before the first section.
      sections: by title, the entries of a section: name -> text.
    """

    text: str
    sections: dict[str, dict[str, str]]

    @classmethod
    def of(cls, documented: object) -> "Docstring":
        """Parses the docstring of a class, function or module."""
        title = ""
        text: list[str] = []
        sections: dict[str, list[str]] = {}
        for line in (inspect.getdoc(documented) or "").splitlines():
            if found := _SECTION.match(line):
                title = found[1]
                sections[title] = []
            else:
                (sections[title] if title else text).append(line)
        return cls(
            "\n".join(text).strip(),
            {name: dict(_entries(lines)) for name, lines in sections.items()},
        )

    def entry(self, section: str, name: str) -> str:
        """Returns what a section says of a name; several names may share an entry."""
        for names, text in self.sections.get(section, {}).items():
            if name in re.split(r"\s*,\s*", names):
                return text
        return ""


def _entries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields (names, text) of a section; further lines of an entry are indented."""
    name = ""
    text: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        found = _ENTRY.match(line)
        if found:
            if name:
                yield name, _joined(text)
            name, text = found["names"], [found["text"] or ""]
        elif line.startswith(" ") or not line:
            text.append(line.strip())
        elif name.endswith(",") or not name or "," in name or not text:
            name = f"{name} {line}".strip()
        else:
            text.append(line)
    if name:
        yield name, _joined(text)


def _joined(lines: Iterable[str]) -> str:
    return " ".join(line for line in lines if line).strip()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |"
        for line in lines
    )


def _code(text: str) -> str:
    """Returns text as inline code; the text may hold back quotes."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def _attribute_docstrings(owner: type) -> dict[str, str]:
    """Returns the texts below the attributes of a class: name -> text."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    found, name = {}, ""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if name and isinstance(node.value.value, str):
                found[name] = inspect.cleandoc(node.value.value)
            name = ""
    return found


# Commands and settings.


def _commands() -> Iterator[click.Command]:
    from beam_pipeline.commands.group import cli

    yield from (each for each in cli.commands.values() if not each.hidden)


def commands() -> str:
    """The commands, each with its usage, arguments and options."""
    parts = []
    for command in _commands():
        context = click.Context(command, info_name=f"beam-tfrecord {command.name}")
        usage = command.get_usage(context).removeprefix("Usage: ")
        parts += [f"## {command.name}", f"```text\n{usage}\n```"]
        parts += _help(command.help or "")
        if _takes_settings(command):
            parts.append("It takes the [settings](settings.md) as options.")
        if rows := list(_options(command, context)):
            parts.append(_table(["option", "description"], rows))
        if command.epilog:
            parts.append(_sentence(command.epilog))
    return "\n\n".join(parts)


def _help(text: str) -> Iterator[str]:
    """Yields the paragraphs of a help text; unwrapped ones as code blocks."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "\b":
            yield f"```text\n{textwrap.dedent(rest)}\n```"
        else:
            yield paragraph.replace("SOURCE", "`SOURCE`").replace("OUTPUT", "`OUTPUT`")


def _takes_settings(command: click.Command) -> bool:
    """Whether a command has the options of a job, and not only some of their names."""
    return "seed" in {param.name for param in command.params}


def _options(
    command: click.Command, context: click.Context
) -> Iterator[tuple[str, str]]:
    """Yields the options that are not settings: (spelling, description)."""
    from beam_pipeline.settings.options import SETTINGS

    settings = SETTINGS if _takes_settings(command) else ()
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is None or isinstance(param, click.Argument):
            continue
        names, what = record
        if param.name not in settings and "--help" not in names:
            yield _code(names), what


def settings() -> str:
    """Every setting, by section of the command line's help."""
    from settings_table import settings_table

    return settings_table()


def free_settings() -> str:
    """The settings that may change between a run and the one that continues it."""
    from beam_pipeline.settings.options import SETTINGS

    free = [_code(each.name) for each in SETTINGS.values() if not each.decides_bytes]
    return ", ".join(free) + "."


def feature_options() -> str:
    """The options of one feature, below `features` in a spec."""
    from beam_pipeline.settings.spec import FeatureSpec

    said = Docstring.of(FeatureSpec)
    rows = []
    for name, field in FeatureSpec.model_fields.items():
        text = _found(said.entry("Attributes", name), f"feature option {name}")
        values = _values(field.annotation) or _OF_A_FEATURE[name]
        rows.append((_code(name), values, _sentence(text)))
    return _table(["option", "values", "description"], rows)


# Values of options that are not lists of words.
_OF_A_FEATURE = {
    "column": "a name",
    "label": "`true`, `false`",
    "mask": "`true`, `false`",
    "shape": "a list of numbers and `null`",
    "dtype": "as NumPy names it",
    "fill": "a value",
    "constant": "a value",
    "path": "a regular expression",
    "separator": "a text",
    "vocabulary": "a list of names, or a file",
    "min": "a number or a date",
    "max": "a number or a date",
    "allowed": "a list of numbers or texts",
    "pattern": "an RE2 expression",
}


def _values(annotation: object) -> str:
    """Returns the words that an annotation allows; "" if it allows other values."""
    if typing.get_origin(annotation) is typing.Literal:
        return ", ".join(_code(str(value)) for value in typing.get_args(annotation))
    if isinstance(annotation, types.UnionType) or (
        typing.get_origin(annotation) is typing.Union
    ):
        inner = [_values(each) for each in typing.get_args(annotation)]
        return ", ".join(filter(None, inner))
    return ""


def _found(text: str, what: str) -> str:
    if not text:
        raise ValueError(f"The code must say what this is: {what}.")
    return text


def _plain(text: str) -> str:
    """Returns a docstring's sentence for readers who do not know the code."""
    text = re.sub(r"; see `[^`]+`(?=[.;]|$)", "", text)
    return _sentence(re.sub(r"`?\b(Missing|Unknown)\.([A-Z]+)`?", _policy, text))


def _policy(found: re.Match[str]) -> str:
    return f"`{found[1].lower()}: {found[2].lower()}`"


# Kinds, reasons, formats, exit codes.


def feature_kinds() -> str:
    """The kinds of features, as the enum's own table draws them."""
    from transforms.core.schema import Kind

    lines = [line for line in _doc_lines(Kind) if line.startswith("|")]
    rows: list[list[str]] = []
    for line in lines[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0]:
            rows.append([_code(cells[0]), *cells[1:]])
        else:
            rows[-1] = [
                f"{a} {b}".strip() for a, b in zip(rows[-1], cells, strict=True)
            ]
    missing = {f"`{kind}`" for kind in Kind} - {row[0] for row in rows}
    if missing:
        raise ValueError(f"The docstring of Kind leaves out {sorted(missing)}.")
    return _table(["kind", "in rows, between stages", "in records"], rows)


def _doc_lines(documented: object) -> list[str]:
    return (inspect.getdoc(documented) or "").splitlines()


def reject_reasons() -> str:
    """Why an item is rejected."""
    from transforms.core.reasons import Reason

    return _members(Reason)


def skip_reasons() -> str:
    """Why an item is left out on purpose."""
    from transforms.core.reasons import Skipped

    return _members(Skipped)


def _members(reasons: type[enum.StrEnum]) -> str:
    texts = _attribute_docstrings(reasons)
    rows = [
        (
            _code(each.value),
            _joined(_found(texts.get(each.name, ""), each.value).split()),
        )
        for each in reasons
    ]
    return _table(["reason", "meaning"], rows)


def formats() -> str:
    """The input formats."""
    from transforms.formats.registry import FORMATS

    rows = []
    for name, each in FORMATS.items():
        files = _code(each.pattern.pattern)
        if each.suffixes:
            files = ", ".join(map(_code, each.suffixes))
            files += "; also `.gz`, `.zst`" if each.compressed else ""
        elif not each.names:
            files = "only with `--format` or its option"
        options = ", ".join(_flag(option) for option in each.options)
        rows.append((_code(name), each.title, files, options))
    return _table(["`--format`", "source", "suffixes or pattern", "options"], rows)


def _flag(setting: str) -> str:
    return _code("--" + setting.replace("_", "-"))


def exit_codes() -> str:
    """The exit codes, from the command line's own list and the errors."""
    import transforms
    from beam_pipeline import cli
    from transforms import errors

    rows = []
    by_code: dict[int, list[str]] = {}
    for name in transforms.__all__:
        found = getattr(errors, name, None)
        if isinstance(found, type) and issubclass(found, errors.BeamTFRecordError):
            by_code.setdefault(found.exit_code, []).append(_code(name))
    for line in _doc_lines(cli):
        code, _, text = line.partition("  ")
        if code.isdigit():
            rows.append((code, _sentence(text), ", ".join(by_code.get(int(code), []))))
    return _table(["exit code", "meaning", "in Python"], rows)


def errors() -> str:
    """The tree of exceptions, as the module draws it."""
    module = importlib.import_module("transforms.errors")
    lines = [line for line in _doc_lines(module) if line.startswith("    ")]
    return "```text\n" + textwrap.dedent("\n".join(lines)) + "\n```"


def runners() -> str:
    """The engines, by the name that `--runner` takes."""
    from beam_pipeline.settings.values import RUNNERS

    rows = [
        (_code(ours), ", ".join(map(_code, beams))) for ours, beams in RUNNERS.items()
    ]
    return _table(["`--runner`", "Beam's name"], rows)


def opens_in() -> str:
    """The libraries that open a dataset, as `make test-readers` found them."""
    path = ROOT / "tests" / "opens_in" / "result.json"
    rows = [
        (
            line["reader"],
            ", ".join(f"{name} {v}" for name, v in line["versions"].items()),
            line["missing"],
        )
        for line in json.loads(path.read_text(encoding="utf-8"))
    ]
    return _table(["Reader", "Versions", "A missing value is"], rows)


# Fields of the manifest and of the report.


def _fields(owner: type, skip: Sequence[str] = ()) -> str:
    """The public fields of a dataclass, with what its docstring says of each."""
    docstring = Docstring.of(owner)
    rows = []
    for field in dataclasses.fields(owner):
        if field.name in skip or field.name.startswith("_"):
            continue
        text = docstring.entry("Attributes", field.name)
        what = f"{owner.__name__}.{field.name}"
        rows.append((_code(field.name), _plain(_found(text, what))))
    return _table(["field", "meaning"], rows)


def manifest_dataset() -> str:
    """The part of a manifest that the digest covers."""
    from transforms.core.manifest import Manifest

    return _fields(Manifest, skip=["run"])


def manifest_account() -> str:
    """Where every item went."""
    from transforms.core.manifest import Account

    return _fields(Account)


def report() -> str:
    """The fields of the report of a committed run."""
    from beam_pipeline.commands.report import Report

    return _fields(Report)


# Public names.


def public_names() -> str:
    """The public names, with their signatures and docstrings."""
    import beam_tfrecord

    parts: list[str] = []
    for name in beam_tfrecord.__all__:
        if not name.startswith("__"):
            parts += _described(name, getattr(beam_tfrecord, name))
    return "\n\n".join(parts)


# The first heading of the table for a section of a docstring.
_COLUMN = {"Args": "argument", "Attributes": "attribute", "Raises": "raises"}
_COLUMN |= {"Returns": "returns", "Yields": "yields"}


def _described(name: str, found: object) -> Iterator[str]:
    yield f"## {name}"
    try:
        signature = _signature(
            name, inspect.signature(typing.cast(Callable[..., object], found))
        )
    except (TypeError, ValueError):
        signature = name
    yield f"```python\n{signature}\n```"
    docstring = Docstring.of(found)
    yield from _paragraphs(docstring.text)
    for title, entries in docstring.sections.items():
        if title == "Settings":
            yield "All [settings](settings.md) are keywords as well."
            continue
        rows = [(_code(names), _sentence(text)) for names, text in entries.items()]
        yield _table([_COLUMN[title], "meaning"], rows)


def _signature(name: str, signature: inspect.Signature) -> str:
    from beam_pipeline.settings.options import SETTINGS

    takes_all = set(SETTINGS) <= signature.parameters.keys()
    parameters = [
        p.replace(annotation=p.empty)
        for p in signature.parameters.values()
        if p.name in ("source", "output") or not (takes_all and p.name in SETTINGS)
    ]
    if takes_all:
        parameters.append(inspect.Parameter("settings", inspect.Parameter.VAR_KEYWORD))
    bare = signature.replace(
        parameters=parameters, return_annotation=inspect.Signature.empty
    )
    # An address in the repr of a default differs from build to build.
    text = re.sub(r"=<[^,]*>(?=[,)])", "=...", f"{name}{bare}").replace("'", '"')
    return (
        text
        if len(text) < 80
        else text.replace("(", "(\n    ", 1).replace(", ", ",\n    ")
    )


def _paragraphs(text: str, language: str = "python") -> Iterator[str]:
    """Yields paragraphs of a docstring as Markdown; indented lines as code."""
    for paragraph in re.split(r"\n\n(?!    )", text):
        lines = paragraph.splitlines()
        if any(line.lstrip().startswith("- ") for line in lines):
            # A list: its further lines are indented, and no code.
            yield paragraph
            continue
        drawn = [line.startswith(("    ", ">>>")) or not line for line in lines]
        first = drawn.index(True) if True in drawn else len(lines)
        if first:
            yield "\n".join(lines[:first])
        if code := textwrap.dedent("\n".join(lines[first:])).strip("\n"):
            yield f"```{language}\n{code}\n```"


# Internals.


def layers() -> str:
    """The folders, their contents and the imports that the layering test allows."""
    path = ROOT / "tests" / "repository" / "test_layers.py"
    tables = {
        target.id: ast.literal_eval(node.value)
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict)
        for target in node.targets
        if isinstance(target, ast.Name) and target.id in ("LIBRARY", "PROGRAM")
    }
    parts = []
    for title, package in (("LIBRARY", "transforms"), ("PROGRAM", "beam_pipeline")):
        parts += [f"## {package}", _layer_table(package, tables[title])]
    return "\n\n".join(parts)


def _layer_table(package: str, table: dict[str, str]) -> str:
    rows = []
    for module, allowed in table.items():
        if module == package:
            continue
        says = _doc_lines(importlib.import_module(module))
        name = module.removeprefix(f"{package}.").replace(".", "/")
        imports = ", ".join(map(_code, allowed.split()))
        rows.append((_code(name), _found("".join(says[:1]), module), imports))
    return _table(["folder", "contents", "may import"], rows)


# The modules that draw a byte layout in their docstrings.
_DRAWN = {
    "A TFRecord file": "transforms.core.tfrecord.frame",
    "A gzip file of TFRecords": "transforms.core.tfrecord.compression",
    "An entry of an Example": "transforms.core.example.record_parts",
    "An Example": "transforms.core.example.encoder",
    "Names of shards": "transforms.core.files",
    "Placement": "transforms.core.placing.hashes",
    "A segment": "transforms.core.segment",
    "A log of rejects": "transforms.work.rejects",
    "The manifest": "transforms.core.manifest",
}


def drawings() -> str:
    """The byte layouts, as the modules draw them."""
    parts = []
    for title, name in _DRAWN.items():
        parts += [f"### {title}", f"From `{name}`:"]
        parts += _paragraphs(Docstring.of(importlib.import_module(name)).text, "text")
    return "\n\n".join(parts)


# Cells as a source may have them, by the types that decide on their rules.
_CELLS: dict[str, tuple[str, Sequence[object]]] = {
    "text": (
        "string",
        (
            "7",
            " 7 ",
            "7.0",
            "1.5e3",
            "007",
            "1,5",
            "1e39",
            "16777217",
            "NA",
            " NA",
            "",
            " true",
            "nan",
            "abc",
            "2024-05-01",
            "2024-05-01 13:30:00.5+02:00",
        ),
    ),
    "bool": ("bool", (True,)),
    "integer": ("int64", (7, 2**24 + 1)),
    "uint64": ("uint64", (2**63,)),
    "float64": ("double", (7.0, 7.5, 1e39, 2.0**24 + 1, float("nan"))),
    "decimal with a fraction": ("decimal1", (decimal.Decimal("7.5"),)),
    "decimal without one": ("decimal0", (decimal.Decimal(2**24 + 1),)),
    "date": ("date32", (datetime.date(2024, 5, 1),)),
    "timestamp in ms": (
        "timestamp",
        (datetime.datetime(2024, 5, 1, 13, 30, 0, 5000),),
    ),
    "time": ("time32", (datetime.time(13, 30),)),
    "duration in s": ("duration", (datetime.timedelta(seconds=90),)),
    "bytes": ("binary", (b"abc", b"\xff")),
    "missing": ("null", (None,)),
}
_CELL_KINDS = ("int64", "float", "bool", "text", "label", "timestamp", "bytes")


def cell_rules() -> str:
    """What becomes of single cells, as the conversion itself decides it."""
    import pyarrow as pa

    from transforms.core.rows.conform import cast
    from transforms.core.schema import Feature, InexactIntegers, Kind

    types = {"date32": pa.date32(), "time32": pa.time32("s")}
    types |= {"timestamp": pa.timestamp("ms"), "duration": pa.duration("s")}
    types |= {f"decimal{n}": pa.decimal128(20, n) for n in (0, 1)}
    rows = []
    for name, (kind, values) in _CELLS.items():
        for value in values:
            cell = pa.array([value], types.get(kind) or pa.type_for_alias(kind))
            shown = "null" if value is None else str(value)
            line = [name, _code(json.dumps(value) if name == "text" else shown)]
            for each in map(Kind, _CELL_KINDS):
                policy = InexactIntegers.REJECT if each is Kind.FLOAT else None
                feature = Feature(
                    "", each, inexact_integers=policy or InexactIntegers.ROUND
                )
                found = cast(cell, feature)
                if found.bad is not None:
                    line.append(f"*{found.reason_at(0)}*")
                elif found.values.null_count:
                    line.append("missing")
                else:
                    line.append(_code(repr(found.values[0].as_py())))
            rows.append(line)
    return _table(["input", "value", *map(_code, _CELL_KINDS)], rows)


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "free-settings": free_settings,
    "feature-options": feature_options,
    "feature-kinds": feature_kinds,
    "cell-rules": cell_rules,
    "reject-reasons": reject_reasons,
    "skip-reasons": skip_reasons,
    "formats": formats,
    "exit-codes": exit_codes,
    "errors": errors,
    "runners": runners,
    "opens-in": opens_in,
    "manifest-dataset": manifest_dataset,
    "manifest-account": manifest_account,
    "report": report,
    "public-names": public_names,
    "layers": layers,
    "drawings": drawings,
}

# A part in a page: its name, and the text between the two comments.
PART_IN_PAGE = re.compile(
    r"(<!-- from the code: (?P<name>[a-z-]+) -->\n)(?P<text>.*?)(<!-- end -->)", re.S
)


def with_parts(page: str) -> str:
    """Returns the text of a page with its parts as the code says them now."""
    return PART_IN_PAGE.sub(
        lambda part: f"{part[1]}\n{PARTS[part['name']]()}\n\n{part[4]}", page
    )


def main() -> None:
    """Writes the parts into all pages."""
    sys.path.insert(0, str(ROOT))
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        if (written := with_parts(page)) != page:
            path.write_text(written, encoding="utf-8")
            sys.stdout.write(f"Wrote {path.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
