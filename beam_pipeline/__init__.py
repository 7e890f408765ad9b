"""The program: `beam_pipeline.convert(source, output, ...)`, and the command line."""

from typing import TYPE_CHECKING, Any

from beam_pipeline.version import __version__

if TYPE_CHECKING:
    from beam_pipeline.api import Report, convert

__all__ = ["Report", "__version__", "convert"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for, so that the command line answers without it."""
    if name in __all__:
        from beam_pipeline import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
