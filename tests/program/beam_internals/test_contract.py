"""The assumptions of each file of `beam_internals` about Beam, name by name.

A failure here means that the installed Beam is another one than the file was written
for; the name of the test says which file, and the assertion what has changed.
"""

import importlib
import inspect
import os
import pathlib
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.portability.api import beam_provision_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.job_server import SubprocessJobServer
from apache_beam.runners.runner import PipelineRunner, create_runner
from apache_beam.runners.worker import sdk_worker, sdk_worker_main
from apache_beam.transforms import userstate
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.utils import thread_pool_executor

from beam_pipeline.beam_internals import local_runner
from beam_pipeline.engines.presets import ENGINES
from beam_pipeline.graph import views_made_once
from tests.support.runs import python
from tests.support.stress import sizes


def parameters(function: Any) -> list[str]:
    """Returns the names of a function's parameters, without `self`."""
    return [name for name in inspect.signature(function).parameters if name != "self"]


# local_runner.py, in notebooks


def test_notebooks_convert_without_beams_interactive_environment(
    tmp_path: pathlib.Path,
) -> None:
    """`convert` in IPython imports none of it."""
    (tmp_path / "rows.csv").write_text("number\n1\n2\n")
    code = (
        "import sys\n"
        "from apache_beam.utils import interactive_utils\n"
        "interactive_utils.is_in_ipython = lambda: True\n"
        "import beam_tfrecord\n"
        "assert beam_tfrecord.convert('rows.csv', 'out').records == 2\n"
        "assert 'apache_beam.runners.interactive' not in sys.modules\n"
    )
    python("-c", code, check=True, cwd=tmp_path)


# loading.py


@pytest.mark.parametrize("module", sizes("pymongo", "pandas", "requests"))
def test_loading_spares_what_beam_does_not_need(module: str) -> None:
    """Beam imports where the library is missing; the program's own jobs are built."""
    code = (
        "import sys\n"
        "from beam_pipeline.beam_internals import loading\n"
        f"loading._SPARED = [{module!r}]\n"
        "with loading._spared():\n"
        "    import apache_beam as beam\n"
        "    import beam_pipeline.running.convert\n"
        "beam.Pipeline(runner='FnApiRunner') | beam.Create([1])\n"
        f"assert {module!r} not in sys.modules\n"
    )
    python("-c", code, check=True)


def test_loading_remembers_what_is_one_for_a_class() -> None:
    """States and timers are those of a class of DoFns, whatever the instance holds."""
    state = beam.DoFn.StateParam(CombiningValueStateSpec("count", combine_fn=sum))

    class Counts(beam.DoFn):
        def __init__(self, start: int) -> None:
            self.start = start

        def process(self, element: tuple[str, int], count: Any = state) -> None:
            count.add(self.start)

    first, second = (userstate.get_dofn_specs(Counts(start)) for start in (1, 2))
    assert first == second
    assert [spec.name for spec in first[0]] == ["count"]
    assert userstate.get_dofn_specs(beam.Map(len).dofn) == (set(), set())


def test_loading_answers_what_beam_asks_of_beartype() -> None:
    """Beam takes these two names, and asks about hints that are no hints of its own."""
    code = """
import sys
from beam_pipeline.beam_internals import loading
loading.spare_imports()
loading.beam_loading()()
from apache_beam.typehints import typehints
assert not [name for name in sys.modules if name.startswith("beartype")]
assert typehints.is_consistent_with(bool, int)
assert not typehints.is_consistent_with(int, bool)
assert not typehints.is_consistent_with(int, "no class")
from beartype.door import is_subhint
assert is_subhint(list[bool], list[int])
"""
    run = python("-c", code)
    assert (run.returncode, run.stderr) == (0, "")


# local_runner.py


def test_local_runner_renews_the_threads_of_a_fork() -> None:
    """The runner takes its threads from one pool of the process."""
    assert local_runner  # What is imported renews them.
    pool = thread_pool_executor.shared_unbounded_instance()
    read_end, write_end = os.pipe()
    if not os.fork():
        renewed = thread_pool_executor.shared_unbounded_instance() is not pool
        os.write(write_end, b"renewed" if renewed else b"old")
        os._exit(0)
    os.wait()
    assert os.read(read_end, 99) == b"renewed"
    assert thread_pool_executor.shared_unbounded_instance() is pool
    os.close(read_end)
    os.close(write_end)


# engines/presets.py


@pytest.mark.parametrize("name", ENGINES)
def test_runners_are_found_by_name(name: str) -> None:
    """Every engine's runner is a class of Beam's, and so is its job server."""
    engine = ENGINES[name]
    assert isinstance(create_runner(engine.runner), PipelineRunner)
    if engine.job_server:
        module, _, kind = engine.job_server.rpartition(".")
        server = getattr(importlib.import_module(module), kind)
        assert issubclass(server, SubprocessJobServer)


def test_views_of_options_are_made_once_while_steps_are_added() -> None:
    """What a view sets stays set, and so does nothing else."""
    options = PipelineOptions(["--streaming"])
    with views_made_once(options):
        view = options.view_as(StandardOptions)
        assert view is options.view_as(StandardOptions)
        assert view.streaming
        view.streaming = False
    again = options.view_as(StandardOptions)
    assert again is not view
    assert not again.streaming


def test_local_runner_takes_the_place_of_grpc() -> None:
    """The runner makes its servers by `grpc.server` of its module, on any address."""
    assert worker_handlers.grpc is grpc
    source = inspect.getsource(worker_handlers.GrpcServer)
    assert source.count("grpc.server(") == source.count("add_insecure_port('[::]:0')")
    assert source.count("grpc.server(") > 0


def test_engine_worker_is_recognised_by_these_variables() -> None:
    """Beam's worker program reads what the engine has said from the environment."""
    source = inspect.getsource(sdk_worker_main)
    for name in (
        "WORKER_ID",
        "PIPELINE_OPTIONS",
        "RUNNER_CAPABILITIES",
        "CONTROL_API_SERVICE_DESCRIPTOR",
        "LOGGING_API_SERVICE_DESCRIPTOR",
        "STATUS_API_SERVICE_DESCRIPTOR",
    ):
        assert f"'{name}'" in source or f'"{name}"' in source, name
    assert parameters(sdk_worker_main.main) == ["unused_argv"]


def test_engine_worker_asks_for_these_fields() -> None:
    """What an engine says about a worker has these names."""
    fields = beam_provision_api_pb2.ProvisionInfo.DESCRIPTOR.fields_by_name
    assert {
        "pipeline_options",
        "runner_capabilities",
        "control_endpoint",
        "logging_endpoint",
        "status_endpoint",
    } <= set(fields)


def test_engine_worker_hears_of_failures_by_a_logger() -> None:
    """The worker loop logs failed work below the name of Beam's package."""
    assert sdk_worker._LOGGER.name.startswith("apache_beam.")
    assert sdk_worker._LOGGER.propagate
