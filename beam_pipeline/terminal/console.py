"""A rich console that raises on a broken pipe and prints text as it is."""

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment
from rich.text import Text

from beam_pipeline.terminal.lines import broken
from beam_pipeline.terminal.printing import STDOUT, printable
from transforms.storage.retry import naming

__all__ = ["Console"]


class Console(rich.console.Console):
    """A console that raises BrokenPipeError; rich would exit with 1, as if damaged.

    What a text holds of escapes and other control characters is shown, not obeyed.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Prints as rich does; an error says what could not be written."""
        with naming(STDOUT):
            super().print(*objects, **options)

    def say(self, text: str | Text, style: str | None = None) -> None:
        """Prints a line, broken between words on a terminal, never within one."""
        whole = self.render_str(text) if isinstance(text, str) else text
        starts, at = [], 0
        for line in broken(whole.plain, self.width):
            at = whole.plain.index(line, at)
            starts.append(at)
            at += len(line)
        for part in whole.divide(starts[1:]):
            part.rstrip()
            self.print(part, style=style, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Called by rich while it handles the error."""
        raise

    def render_str(self, text: str, **options: Any) -> Text:
        """Returns a string as rich's text: one line, and empty ones around it."""
        line = text.strip("\n")
        start = text.index(line)
        shown = printable(line)
        text = f"{text[:start]}{shown}{text[start + len(line) :]}"
        return super().render_str(text, **options)

    def render(
        self,
        renderable: rich.console.RenderableType,
        options: rich.console.ConsoleOptions | None = None,
    ) -> Iterable[Segment]:
        """Yields what is printed; the escapes among it are rich's own alone."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable(segment.text, keep="\n"), segment.style)
