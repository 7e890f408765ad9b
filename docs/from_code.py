"""Sphinx extension: the directive `from-code`, and a check for external resources.

    ```{from-code} settings
    ```

inserts one part of the reference; `code_parts` has them all.
"""

import pathlib
import re

from code_parts import PARTS
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

__all__ = ["setup"]


class FromCode(SphinxDirective):
    """Inserts one part of the reference."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the part, parsed as Markdown."""
        name = self.arguments[0]
        self.env.metadata[self.env.docname]["from_code"] = name
        return self.parse_text_to_nodes(PARTS[name](), allow_section_headings=True)


def _outdated(_app: Sphinx, env: BuildEnvironment, *_: set[str]) -> list[str]:
    """Returns the pages to read again: those with parts generated from the code."""
    return [name for name, said in env.metadata.items() if "from_code" in said]


# References that make a browser load from another server.
_LOADED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>"
    r"|<link\b(?![^>]*rel=[\"']?(?:canonical|license))[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>"
    r"|(?:@import|url\()\s*[\"']?(?:https?:)?//[^)\"';]*",
    re.I,
)


def _loads_nothing(app: Sphinx, failure: Exception | None) -> None:
    """Fails the build if a page or style sheet would load from another server."""
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
