"""The program: `beam_pipeline.convert(source, output, ...)`, and the command line."""

from typing import TYPE_CHECKING

from beam_pipeline.version import __version__
from transforms.lazy_names import lazy_names

__all__ = [
    "__version__",
    "convert",
    "Report",
    # The same in three steps, for jobs with steps of their own.
    "make_spec",
    "make_plan",
    "convert_plan",
]

if TYPE_CHECKING:
    from beam_pipeline.api import Report, convert
    from beam_pipeline.planning.plan import make_plan
    from beam_pipeline.running.convert import convert_plan
    from beam_pipeline.settings.spec import make_spec
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "beam_pipeline.api": ["Report", "convert"],
            "beam_pipeline.planning.plan": ["make_plan"],
            "beam_pipeline.running.convert": ["convert_plan"],
            "beam_pipeline.settings.spec": ["make_spec"],
        },
    )
