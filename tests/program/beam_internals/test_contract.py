"""The assumptions of each file of `beam_internals` about Beam, name by name.

A failure here means that the installed Beam is another one than the file was written
for; the name of the test says which file, and the assertion what has changed.
"""

import importlib
import inspect
import os
import pathlib
import subprocess
import sys
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.job_server import SubprocessJobServer
from apache_beam.runners.runner import PipelineRunner
from apache_beam.transforms import userstate
from apache_beam.transforms.userstate import CombiningValueStateSpec
from apache_beam.utils import thread_pool_executor

from beam_pipeline.beam_internals import local_runner
from beam_pipeline.engines.presets import ENGINES
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
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


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
    subprocess.run([sys.executable, "-c", code], check=True)


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
with loading.beam_loading() as loaded:
    loaded()
from apache_beam.typehints import typehints
assert not [name for name in sys.modules if name.startswith("beartype")]
assert typehints.is_consistent_with(bool, int)
assert not typehints.is_consistent_with(int, bool)
assert not typehints.is_consistent_with(int, "no class")
from beartype.door import is_subhint
assert is_subhint(list[bool], list[int])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
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
    module = importlib.import_module(engine.module)
    assert issubclass(getattr(module, engine.runner), PipelineRunner)
    if engine.job_server:
        assert issubclass(getattr(module, engine.job_server), SubprocessJobServer)
