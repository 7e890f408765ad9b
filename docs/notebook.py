"""Sphinx extension: the directive `notebook`, which shows a Jupyter notebook as a page.

    ```{notebook} ../../examples/tutorials/images-to-keras.ipynb
    ```

Text is Markdown as on any page, code is highlighted, and what a cell has printed
follows it. `make test-tutorials` runs the notebooks and compares what they print.
"""

import json
import pathlib

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

__all__ = ["markdown_of", "setup"]


def markdown_of(path: pathlib.Path) -> str:
    """Returns the cells of a notebook and what they have printed, as Markdown."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        printed = "".join("".join(each["text"]) for each in cell["outputs"])
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    return "\n\n".join(parts)


class Notebook(SphinxDirective):
    """Inserts a notebook, whose path is relative to the page."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Returns the nodes of the notebook."""
        _, path = self.env.relfn2path(self.arguments[0])
        self.env.note_dependency(path)
        text = markdown_of(pathlib.Path(path))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the directive."""
    app.add_directive("notebook", Notebook)
    return {"parallel_read_safe": True}
