"""`convert(source, output, ...)`: the program from Python, with the CLI's settings."""

import contextlib
import inspect
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from beam_pipeline.commands.progress import shown_progress
from beam_pipeline.commands.report import Report, report_of
from beam_pipeline.planning.plan import make_plan, prepare
from beam_pipeline.planning.request import output_name
from beam_pipeline.python_data import store_rows
from beam_pipeline.settings.keywords import Keywords
from beam_pipeline.settings.options import SETTINGS
from beam_pipeline.settings.removed import check_still_there
from beam_pipeline.settings.spec import make_spec
from transforms.core.files import folder_of_parts
from transforms.core.manifest import Manifest
from transforms.errors import raising_in_python
from transforms.formats.columnar.arrow_batches import SAMPLE_BYTES
from transforms.publishing import target
from transforms.storage.paths import another_job, check_file_names
from transforms.work.rejects import remove_left

# The origin of rows that come from no file. It is part of their identity, so of the
# bytes: it must not change.
_ORIGIN = "data.arrow"


_Function = TypeVar("_Function", bound=Callable[..., Any])
_KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def _with_settings(function: _Function) -> _Function:
    """Lists every setting in a signature and a docstring, for `help` and notebooks."""
    signature = inspect.signature(function)
    *own, _ = signature.parameters.values()
    named, lines = [], [f"{inspect.getdoc(function)}\n\nSettings:"]
    for name, setting in SETTINGS.items():
        if annotation := Keywords.__annotations__.get(name):
            facts = {"default": setting.default, "annotation": annotation}
            named.append(inspect.Parameter(name, _KEYWORD_ONLY, **facts))
            lines.append(f"  {name}: {setting.python_help}")
    signature = signature.replace(parameters=[*own, *named])
    vars(function)["__signature__"] = signature
    function.__doc__ = "\n".join([*lines, ""])
    return function


@_with_settings
@raising_in_python()
def convert(
    source: object,
    output: str | os.PathLike[str],
    *,
    beam_flags: Sequence[str] = (),
    between: Any = None,
    watch: Callable[[], None] = lambda: None,
    progress: bool = False,
    **settings: Unpack[Keywords],
) -> Report:
    """Converts a source into a dataset and returns the report.

        report = convert("rows.csv", "out/rows", splits={"train": 0.8, "test": 0.2})
        report.splits["train"]["records"]

    Args:
      source: a path or pattern, or Python data; see `beam_pipeline.python_data`.
      output: the dataset's folder, as on the command line.
      beam_flags: Beam's own flags.
      between: a PTransform from Batch to Batch, at most one for each, between read
        and place; see `convert_plan`. A run with one is never "up to date".
      watch: called ten times a second meanwhile.
      progress: whether to show on standard error how far the run is.
      settings: every setting of a spec, by its name, as below.

    Raises:
      UsageError: the job cannot be done.
      BeamTFRecordError: it failed; nothing was committed.
    """
    started = time.monotonic()
    check_still_there(settings)
    check_file_names()
    another_job()
    # A job that makes no sense is refused before the data is stored.
    path = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    given = {"source": _ORIGIN if path is None else path, "output": os.fspath(output)}
    spec = make_spec({**settings, **given})
    with contextlib.ExitStack() as stack:
        if path is None:
            folder = tempfile.TemporaryDirectory(prefix="beam-tfrecord-")
            path = os.path.join(stack.enter_context(folder), _ORIGIN)
            images = {*(spec.image_columns or ())}
            for name, said in spec.features.items():
                images |= {said.column or name} if said.kind == "image" else set()
            store_rows(source, path, images=images)
            # Relative paths of images start at the caller's folder, not the copy's.
            images_root = spec.images_root or os.getcwd()
            named = folder_of_parts(spec.output) if spec.part else spec.output
            name = spec.name or output_name(named)
            stored = {"source": path, "images_root": images_root, "name": name}
            if os.path.getsize(path) > SAMPLE_BYTES:
                # All rows were at hand, so all of them decide, as for `WriteDataset`.
                stored["infer"] = "full"
            # The copy is a new file each time: compare it by its content.
            spec = spec.model_copy(update={**stored, "fingerprint": "content"})
        # A run that was killed while publishing is completed or undone first.
        target.at(spec.output).recover()
        prepared = prepare(spec, steps=between is not None)
        if prepared.done is not None:
            remove_left(target.rejects_path(spec.output))
            seconds = time.monotonic() - started
            return report_of(prepared.done, spec.output, seconds, "up to date")
        plan = make_plan(prepared)
        shown = stack.enter_context(shown_progress(plan, quiet=not progress))

        def watch_both() -> None:
            shown()
            watch()

        convert_plan = _conversion()
        manifest = convert_plan(
            plan, beam_flags=beam_flags, between=between, watch=watch_both
        )
    return report_of(manifest, spec.output, time.monotonic() - started)


def _conversion() -> Callable[..., Manifest]:
    """Imports what needs Beam; hides the warnings that Beam logs while it loads."""
    root = logging.getLogger()
    handler = logging.NullHandler()
    # Without any handler the root logger prints warnings to stderr.
    root.addHandler(handler)
    try:
        from beam_pipeline.running.convert import convert_plan
    finally:
        root.removeHandler(handler)
    return convert_plan
