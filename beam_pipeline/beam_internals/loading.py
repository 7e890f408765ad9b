"""Import Beam in a thread while planning runs; the import takes most of a second."""

import contextlib
import gc
import importlib
import logging
import os
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, cast

# Beam and Arrow import these where they are installed, for what no command here has: it
# takes 0.4 s of processor time and 57 MB.
_SPARED = "absl boto3 bson guppy pandas pyarrow.parquet pymongo requests".split()
# Beam asks beartype about plain classes only, and speaks HTTP for Dataflow: 0.15 s.
_STAND_INS: dict[str, Any] = {
    "beartype.door": types.SimpleNamespace(is_subhint=issubclass),
    "beartype.roar": types.SimpleNamespace(BeartypeDoorException=TypeError),
    "httplib2": types.ModuleType("httplib2"),
}
_STAND_INS["httplib2"].__getattr__ = lambda name: getattr(
    importlib.import_module("httplib2"), name
)

# AMD's processors of family 0x19, among them Zen 4. What NumPy's sort for AVX-512 does
# for each word, compress it into memory, takes that one over 100 cycles: it needs five
# times as long as the sort for AVX2 (https://github.com/numpy/x86-simd-sort/issues/6).
_SLOW_AT_SORTING = b"cpu:type:x86,ven0002fam0019"
_PROCESSOR = "/sys/devices/system/cpu/modalias"
# AVX-512 as NumPy 2.4 names it, and as those before it do, which need the whole list.
_AVX512 = (
    "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
)

# gRPC reads it in small letters.
_NO_PROXY = "no_grpc_proxy"
_THIS_MACHINE = ("localhost", "127.0.0.1")

# New objects after which the collector looks for cycles among them: Python's 700 would
# search the facts of 10,000 columns a hundred times.
_COLLECTED_OBJECTS = 10_000

# Engines whose runners in Beam need none of them.
_WITH_JOB_SERVERS = frozenset(("flink", "prism", "spark"))


class _Process:
    """State of the whole process."""

    is_own = False


def is_own_process() -> bool:
    """Whether `spare_imports` was called: this process runs only this program."""
    return _Process.is_own


def spare_imports() -> None:
    """Lets this process, which must be the program's own, start and sort in less time.

    Must be called before NumPy is imported.
    """
    _Process.is_own = True
    _ask_no_proxy_for_this_machine()
    # Arrow reads docstrings with it, for help texts of functions: 20 ms.
    texts = types.SimpleNamespace(NumpyDocString=lambda _: {"Parameters": []})
    sys.modules.setdefault("pyarrow.vendored.docscrape", cast(Any, texts))
    # NumPy's BLAS starts a thread for each processor. Nothing here multiplies matrices.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _is_slow_at_sorting():
        os.environ.setdefault("NPY_DISABLE_CPU_FEATURES", _AVX512)


def _ask_no_proxy_for_this_machine() -> None:
    """Lets gRPC reach the runner, and job servers here, where a proxy is set."""
    # https://grpc.github.io/grpc/core/md_doc_environment_variables.html
    told = os.environ.get(_NO_PROXY) or os.environ.get("no_proxy", "")
    hosts = [host for host in told.split(",") if host]
    hosts += [host for host in _THIS_MACHINE if host not in hosts]
    os.environ[_NO_PROXY] = ",".join(hosts)


def _is_slow_at_sorting() -> bool:
    """Tells whether NumPy had better sort as on a processor without AVX-512."""
    with contextlib.suppress(OSError), open(_PROCESSOR, "rb") as file:
        return file.read(len(_SLOW_AT_SORTING)) == _SLOW_AT_SORTING
    return False


def quiet_import() -> None:
    """Keeps what Beam warns about while it is imported off the terminal."""
    # A handler of its own keeps the root logger from printing.
    logging.getLogger().addHandler(logging.NullHandler())


def load_for_engine(runner: str) -> None:
    """Imports what submits a job; whole, where the runner may need all of Beam.

    Args:
      runner: as `--runner` takes it.
    """
    quiet_import()
    if runner in _WITH_JOB_SERVERS:
        let_arrow_look()
        _import_beam()


def load_for_worker() -> None:
    """Imports what a job of this machine runs, in a new process that does its work."""
    gc.disable()
    spare_imports()
    quiet_import()
    let_arrow_look()
    _import_beam()
    collect_seldom()
    # A user's steps run here, beside threads: what they call must not fork.
    _Process.is_own = False


def collect_seldom() -> None:
    """Turns the garbage collector on, after imports that did without it.

    They make a hundred thousand objects that all stay: searching them for garbage would
    take a fifth of the start.
    """
    gc.freeze()
    gc.set_threshold(_COLLECTED_OBJECTS)
    gc.enable()


def beam_loading() -> Callable[[], None]:
    """Starts to import what runs a job; returns a function that waits for it.

    Planning waits for files and for Arrow, and leaves the interpreter free meanwhile. A
    plan that fails does not wait for Beam.
    """
    quiet_import()
    let_arrow_look()
    thread = threading.Thread(target=_import_beam, daemon=True)
    thread.start()
    return thread.join


def let_arrow_look() -> None:
    """Makes Arrow look for pandas now: it does so once, at the first array.

    Does nothing unless `spare_imports` was called.
    """
    if _Process.is_own:
        with _spared():
            importlib.import_module("pyarrow").array([0])


def _import_beam() -> None:
    """Imports what runs a job; in our own process with less work by Beam than usual."""
    with _spared() if _Process.is_own else contextlib.nullcontext():
        importlib.import_module("beam_pipeline.running.convert")
    if _Process.is_own:
        # Beam looks into every method of a DoFn 200 times a job: 0.14 s.
        userstate: Any = importlib.import_module("apache_beam.transforms.userstate")
        look, specs = userstate.get_dofn_specs, dict[type, Any]()
        userstate.get_dofn_specs = lambda dofn: (
            specs.get(type(dofn)) or specs.setdefault(type(dofn), look(dofn))
        )


@contextlib.contextmanager
def _spared() -> Iterator[None]:
    """Hides `_SPARED` from imports of this thread, and has `_STAND_INS` for others.

    Who imports these later gets the libraries.
    """
    thread = threading.get_ident()

    def find_spec(name: str, *_: object) -> None:
        if name in _SPARED and threading.get_ident() == thread:
            raise ModuleNotFoundError(f"{name} is not needed here", name=name)

    finder: Any = types.SimpleNamespace(find_spec=find_spec)
    ours = {name: _STAND_INS[name] for name in _STAND_INS.keys() - sys.modules.keys()}
    sys.meta_path.insert(0, finder)
    sys.modules.update(ours)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in ours:
            del sys.modules[name]
