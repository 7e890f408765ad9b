"""Sphinx extension: reference pages that are generated from the code.

A page asks for one part of the reference with the directive `from-code`:

    ```{from-code} settings
    ```

Each function in `PARTS` returns that part as Markdown. What a part needs and does not
find in the code (the meaning of a reject reason, say) ends the build with an error, so
that no page falls behind the code.
"""

import ast
import dataclasses
import enum
import importlib
import inspect
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

__all__ = ["PARTS", "setup"]

_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Yields):$")
_ENTRY = re.compile(r"^(?P<names>[\w, ]+):(?: (?P<text>.*))?$")


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
    """Returns text as inline code; also such as holds a back quote."""
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
    from beam_pipeline.cli import cli

    yield from cli.commands.values()


def commands() -> str:
    """The commands, each with its usage, arguments and options."""
    parts = []
    for command in _commands():
        context = click.Context(command, info_name=f"beam-tfrecord {command.name}")
        usage = command.get_usage(context).removeprefix("Usage: ")
        parts += [f"## {command.name}", f"```text\n{usage}\n```"]
        parts += _help(command.help or "")
        options = _options(command, context)
        if command.name in _TAKES_A_JOB:
            options = {k: v for k, v in options.items() if k not in _job_sections()}
            parts.append("It takes all [settings](settings.md) as options.")
        for rows in options.values():
            parts.append(_table(["option", "what"], rows))
        if command.epilog:
            parts.append(_sentence(command.epilog))
    return "\n\n".join(parts)


_TAKES_A_JOB = ("convert", "plan", "schema")


def _help(text: str) -> Iterator[str]:
    """Yields the paragraphs of a help text; what is not to be wrapped as a block."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        first, _, rest = paragraph.partition("\n")
        if first.strip() == "\b":
            yield f"```text\n{textwrap.dedent(rest)}\n```"
        else:
            yield paragraph.replace("SOURCE", "`SOURCE`").replace("OUTPUT", "`OUTPUT`")


def _options(
    command: click.Command, context: click.Context
) -> dict[str, list[tuple[str, str]]]:
    """Returns the options of a command by section: (how it is written, what)."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(context):
        record = param.get_help_record(context)
        if record is None or isinstance(param, click.Argument):
            continue
        section = getattr(param, "section", "") or "Options"
        names, what = record
        if "--help" in names:
            continue
        sections.setdefault(section, []).append((_code(names), what))
    return sections


def _job_sections() -> dict[str, list[tuple[str, str]]]:
    (convert,) = (c for c in _commands() if c.name == "convert")
    options = _options(convert, click.Context(convert))
    return {title: rows for title, rows in options.items() if title != "Options"}


def settings() -> str:
    """The settings of a job, by section of the command line's help."""
    parts = []
    for title, rows in _job_sections().items():
        parts += [f"## {title}", _table(["option", "what, and the default"], rows)]
    return "\n\n".join(parts)


def feature_options() -> str:
    """The options of one feature, below `features` in a spec."""
    from beam_pipeline.settings.spec import FeatureSpec
    from transforms.core.schema import Feature

    said, declared = Docstring.of(FeatureSpec), Docstring.of(Feature)
    rows = []
    for name, field in FeatureSpec.model_fields.items():
        text = declared.entry("Attributes", _DECLARED_AS.get(name, name))
        own = said.entry("Attributes", name)
        if own and not own.startswith("see `"):
            text = own
        values = _values(field.annotation) or _OF_A_FEATURE[name]
        rows.append(
            (_code(name), values, _plain(_found(text, f"feature option {name}")))
        )
    return _table(["option", "values", "what"], rows)


_DECLARED_AS = {"label": "is_label", "path": "pattern"}
# Values of options that are not lists of words.
_OF_A_FEATURE = {
    "column": "a name",
    "label": "`true`, `false`",
    "shape": "a list of numbers and `null`",
    "dtype": "as NumPy names it",
    "fill": "a value",
    "constant": "a value",
    "path": "a regular expression",
    "separator": "a text",
    "vocabulary": "a list of names, or a file",
}


def _values(annotation: object) -> str:
    """Returns the words that an annotation allows; empty where it allows others."""
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
        raise ExtensionError(f"The code must say what this is: {what}.")
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
        raise ExtensionError(f"The docstring of Kind leaves out {sorted(missing)}.")
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
    return _table(["reason", "what it means"], rows)


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
    return _table(
        ["`--format`", "what", "suffixes, or the pattern", "its options"], rows
    )


def _flag(setting: str) -> str:
    return _code("--" + setting.replace("_", "-"))


def exit_codes() -> str:
    """The exit codes, from the command line's own list and the errors."""
    from beam_pipeline import cli
    from transforms import errors

    rows = []
    by_code: dict[int, list[str]] = {}
    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, errors.BeamTFRecordError):
            by_code.setdefault(found.exit_code, []).append(_code(name))
    for line in _doc_lines(cli):
        code, _, text = line.partition("  ")
        if code.isdigit():
            rows.append((code, _sentence(text), ", ".join(by_code.get(int(code), []))))
    return _table(["exit code", "what", "in Python"], rows)


def errors() -> str:
    """The tree of exceptions, as the module draws it."""
    module = importlib.import_module("transforms.errors")
    lines = [line for line in _doc_lines(module) if line.startswith("    ")]
    return "```text\n" + textwrap.dedent("\n".join(lines)) + "\n```"


def runners() -> str:
    """The engines, by the name that `--runner` takes."""
    from beam_pipeline.engines.table import ENGINES

    rows = [(_code("local"), "`FnApiRunner`, `DirectRunner`")]
    rows += [(_code(each.name), _code(each.beam_name)) for each in ENGINES.values()]
    return _table(["`--runner`", "Beam's name"], rows)


# Fields of the manifest and of the report.


def _fields(owner: type, skip: Sequence[str] = ()) -> str:
    """The fields of a dataclass, with what its docstring says of each."""
    docstring = Docstring.of(owner)
    rows = []
    for field in dataclasses.fields(owner):
        if field.name in skip:
            continue
        text = docstring.entry("Attributes", field.name)
        what = f"{owner.__name__}.{field.name}"
        rows.append((_code(field.name), _plain(_found(text, what))))
    return _table(["field", "what"], rows)


def manifest_dataset() -> str:
    """The part of a manifest that the digest covers."""
    from transforms.core.manifest import Manifest

    return _fields(Manifest, skip=["run"])


def manifest_account() -> str:
    """Where every item went."""
    from transforms.core.manifest import Account

    return _fields(Account)


def manifest_statistics() -> str:
    """What is known of a feature's values."""
    from transforms.core.statistics import Statistics

    return _fields(Statistics)


def report() -> str:
    """The fields of the report of a committed run."""
    from beam_pipeline.api import Report

    return _fields(Report)


# Public names.


def public_names() -> str:
    """The public names of both packages, with their signatures and docstrings."""
    parts: list[str] = []
    for package in ("beam_pipeline", "transforms"):
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            if not name.startswith("__"):
                parts += _described(name, getattr(module, name))
    return "\n\n".join(parts)


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
        rows = [(_code(names), _sentence(text)) for names, text in entries.items()]
        yield _table([title.lower(), "what"], rows)


def _signature(name: str, signature: inspect.Signature) -> str:
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    bare = signature.replace(
        parameters=parameters, return_annotation=inspect.Signature.empty
    )
    text = f"{name}{bare}"
    return (
        text
        if len(text) < 80
        else text.replace("(", "(\n    ", 1).replace(", ", ",\n    ")
    )


def _paragraphs(text: str) -> Iterator[str]:
    """Yields paragraphs of a docstring as Markdown; indented ones as code."""
    for paragraph in text.split("\n\n"):
        if paragraph.startswith(("    ", ">>>")):
            yield f"```python\n{textwrap.dedent(paragraph)}\n```"
        else:
            yield paragraph


PARTS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "feature-options": feature_options,
    "feature-kinds": feature_kinds,
    "reject-reasons": reject_reasons,
    "skip-reasons": skip_reasons,
    "formats": formats,
    "exit-codes": exit_codes,
    "errors": errors,
    "runners": runners,
    "manifest-dataset": manifest_dataset,
    "manifest-account": manifest_account,
    "manifest-statistics": manifest_statistics,
    "report": report,
    "public-names": public_names,
}


class FromCode(SphinxDirective):
    """Inserts one part of the reference."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the part, parsed as Markdown."""
        name = self.arguments[0]
        self.env.metadata[self.env.docname]["from_code"] = name
        return self.parse_text_to_nodes(PARTS[name](), allow_section_headings=True)


def _outdated(_app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """Returns the pages to read again: all that are made from the code."""
    return [name for name, said in env.metadata.items() if "from_code" in said]


# What a browser would load from another place when it opens a page.
_LOADED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|license))[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>"
    r"|(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"';]*",
    re.I,
)


def _loads_nothing(app: Sphinx, failure: Exception | None) -> None:
    """Ends the build where a page or style sheet would load from other servers."""
    if failure is not None or app.builder.format != "html":
        return
    for path in sorted(pathlib.Path(app.outdir).rglob("*")):
        if path.suffix in (".html", ".css"):
            found = _LOADED.search(path.read_text(encoding="utf-8", errors="replace"))
            if found:
                raise ExtensionError(f"{path} would load {found[0]!r} from elsewhere.")


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("from-code", FromCode)
    app.connect("env-get-outdated", _outdated)
    app.connect("build-finished", _loads_nothing)
    return {"parallel_read_safe": True}
