"""The program: `beam_pipeline.convert(source, output, ...)`, and the command line."""

from typing import TYPE_CHECKING

from beam_pipeline.shadowing import check_packages
from beam_pipeline.version import __version__

check_packages()

from transforms.lazy_names import lazy_module, lazy_names  # noqa: E402

__all__ = [
    "__version__",
    "convert",
    "Report",
    # The same in three steps, for jobs with steps of their own.
    "make_spec",
    "make_plan",
    "convert_plan",
    # Pipelines of one's own
    "ReadRows",
    "RowsRead",
    "WriteDataset",
    "Committed",
    "ReadDataset",
    # Reading without Beam
    "open_dataset",
]

if TYPE_CHECKING:
    from beam_pipeline.api import convert
    from beam_pipeline.commands.report import Report
    from beam_pipeline.datasets.open_dataset import open_dataset
    from beam_pipeline.own_pipelines.read_dataset import ReadDataset
    from beam_pipeline.own_pipelines.read_rows import ReadRows, RowsRead
    from beam_pipeline.own_pipelines.write_dataset import Committed, WriteDataset
    from beam_pipeline.planning.plan import make_plan
    from beam_pipeline.running.convert import convert_plan
    from beam_pipeline.settings.spec import make_spec
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "beam_pipeline.api": ["convert"],
            "beam_pipeline.commands.report": ["Report"],
            "beam_pipeline.own_pipelines.read_dataset": ["ReadDataset"],
            "beam_pipeline.own_pipelines.read_rows": ["ReadRows", "RowsRead"],
            "beam_pipeline.own_pipelines.write_dataset": ["Committed", "WriteDataset"],
            "beam_pipeline.planning.plan": ["make_plan"],
            "beam_pipeline.datasets.open_dataset": ["open_dataset"],
            "beam_pipeline.running.convert": ["convert_plan"],
            "beam_pipeline.settings.spec": ["make_spec"],
        },
    )
    # Modules that the documentation once named, with the name that it used of each.
    for _module, _name in {
        "conversion": "convert_plan",
        "plan": "make_plan",
        "spec": "make_spec",
    }.items():
        globals()[_module] = lazy_module(f"{__name__}.{_module}", {__name__: [_name]})
