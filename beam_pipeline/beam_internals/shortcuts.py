"""Caches patched into Beam's graph construction, and a shorter wait after a bundle.

Building and starting the graph of a job asks for the arguments of the same methods
some 7,000 times, and makes 350 parsers of Beam's flags: together nearly half a second,
on top of every job however small. What is remembered here depends on nothing else.

At the end of a bundle Beam waits for the thread that samples which step is at work, and
which sleeps for up to 200 ms: a tenth of a second on average for each bundle of a
second or more. Here it sleeps for up to 20 ms, and takes 0.2 % of a core.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statesampler
from apache_beam.transforms import core

from beam_pipeline.shared_change import shared_change

# A variable: mypy refuses to assign a method, and ruff setattr with a constant.
_VIEW_AS = "view_as"
_SAMPLING_MS = 20

_Arguments = tuple[list[str], list[Any]]


@shared_change
def beam_shortcuts() -> Iterator[None]:
    """Remembers arguments and views of options, and samples often, while it is open."""
    graph: Any = core
    worker: Any = statesampler
    arguments = graph.get_function_args_defaults
    view = getattr(PipelineOptions, _VIEW_AS)
    sampler = worker.StateSampler
    graph.get_function_args_defaults = _remembered_arguments(arguments)
    setattr(PipelineOptions, _VIEW_AS, _remembered_views(view))
    sample_often()
    try:
        yield
    finally:
        graph.get_function_args_defaults = arguments
        setattr(PipelineOptions, _VIEW_AS, view)
        worker.StateSampler = sampler


def sample_often() -> None:
    """Shortens the wait at the end of bundles, for good; for workers of our own."""
    module: Any = statesampler
    module.StateSampler = functools.partial(
        statesampler.StateSampler, sampling_period_ms=_SAMPLING_MS
    )


def _remembered_arguments(
    plain: Callable[[Any], _Arguments],
) -> Callable[[Any], _Arguments]:
    known: dict[tuple[Any, bool], _Arguments] = {}

    def arguments(function: Any) -> _Arguments:
        # Bound methods of one class share their function, and so its arguments.
        key = (
            getattr(function, "__func__", function),
            getattr(function, "__self__", None) is not None,
        )
        try:
            found = known.get(key)
        except TypeError:
            return plain(function)
        if found is None:
            found = known[key] = plain(function)
        names, defaults = found
        return list(names), list(defaults)

    return arguments


def _remembered_views(
    plain: Callable[[PipelineOptions, type], PipelineOptions],
) -> Callable[[PipelineOptions, type], PipelineOptions]:
    # Keeps the options alive, so that no other object gets the same id.
    known: dict[tuple[int, type], tuple[PipelineOptions, PipelineOptions]] = {}

    def view_as(options: PipelineOptions, kind: type) -> PipelineOptions:
        key = id(options), kind
        if key not in known:
            known[key] = options, plain(options, kind)
        return known[key][1]

    return view_as
