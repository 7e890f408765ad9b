"""Import Beam in a thread while planning runs; the import takes most of a second.

Stand-ins take the places of libraries that Beam and Arrow load and that this program
hardly uses:

    beartype                    says whether one type hint is within another: 70 ms
    httplib2                    speaks HTTP, for jobs of Dataflow: 40 ms
    pyarrow.vendored.docscrape  reads docstrings, for help texts of functions: 30 ms

Beam asks beartype about pairs of plain classes, which `issubclass` answers as well. For
any other pair, and for HTTP, the library is loaded then.
"""

import abc
import contextlib
import gc
import importlib
import importlib.machinery
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

# Beam and Arrow import these where they are installed, for sources, stores, types and
# flags that no command of this program has; Parquet's readers here are not Beam's.
_NOT_NEEDED = frozenset(
    (
        "absl",
        "boto3",
        "bson",
        "guppy",
        "pandas",
        "pyarrow.parquet",
        "pymongo",
        "requests",
    )
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


class _Spared:
    """Finder that hides some installed modules from imports of one thread."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Raises ModuleNotFoundError for them, and leaves others to other finders."""
        if fullname in _NOT_NEEDED and threading.get_ident() == self.thread:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)
        return None


class _Process:
    """State of the whole process."""

    is_own = False


def is_own_process() -> bool:
    """Whether this process runs only this program: not a user's that calls it."""
    return _Process.is_own


def spare_imports() -> None:
    """Lets this process, which must be the program's own, start and sort in less time.

    Beam's import takes 1.6 s of processor time with pandas and the others, and 0.9 s
    without them. What does need pandas in this process still gets it. Must be called
    before NumPy is imported.
    """
    _Process.is_own = True
    _leave_out_help_texts()
    _ask_no_proxy_for_this_machine()
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
        _load()


def load_for_worker() -> None:
    """Imports what a job of this machine runs, in a new process that does its work."""
    gc.disable()
    spare_imports()
    quiet_import()
    let_arrow_look()
    _load()
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


@contextlib.contextmanager
def beam_loading() -> Iterator[Callable[[], None]]:
    """Starts to import what runs a job; yields a function that waits for it.

    Planning waits for files and for Arrow, and leaves the interpreter free meanwhile. A
    plan that fails does not wait for Beam.
    """
    quiet_import()
    let_arrow_look()
    thread = threading.Thread(target=_load, daemon=True)
    thread.start()
    yield thread.join


def _load() -> None:
    with _spared():
        importlib.import_module("beam_pipeline.running.convert")


@contextlib.contextmanager
def _spared() -> Iterator[None]:
    """Spares this thread unneeded modules, if `spare_imports` was called."""
    if not _Process.is_own:
        yield
        return
    finder = _Spared()
    sys.meta_path.insert(0, finder)
    try:
        with _stand_ins():
            yield
    finally:
        sys.meta_path.remove(finder)


def let_arrow_look() -> None:
    """Makes Arrow look for pandas now: it does so once, at the first array.

    It would import pandas, which takes half as long as Beam. Does nothing unless
    `spare_imports` was called.
    """
    if _Process.is_own:
        with _spared():
            importlib.import_module("pyarrow").array([0])


def _leave_out_help_texts() -> None:
    """Lets Arrow's compute functions do without the parameters in their help texts."""
    name = "pyarrow.vendored.docscrape"
    sys.modules.setdefault(name, _module(name, NumpyDocString=_no_parameters))


@contextlib.contextmanager
def _stand_ins() -> Iterator[None]:
    """Stands in for beartype and httplib2 in what is loaded while it is open.

    Who imports them later, as a user's step may, gets the libraries.
    """
    ours = [
        _module("beartype.door", is_subhint=_is_subhint),
        _module("beartype.roar", BeartypeDoorException=_IncomparableError),
        _Deferred("httplib2"),
    ]
    for module in ours:
        if module.__name__.partition(".")[0] not in sys.modules:
            sys.modules[module.__name__] = module
    try:
        yield
    finally:
        for module in ours:
            _remove(module)


class _Deferred(ModuleType):
    """A module that is loaded when something in it is first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            # Python's import looks for these.
            raise AttributeError(name)
        _remove(self)
        return getattr(importlib.import_module(self.__name__), name)


class _IncomparableError(Exception):
    """Takes the place of the library's error, which Beam expects."""


def _is_subhint(hint: Any, other: Any) -> bool:
    """Returns whether all that the first hint allows is allowed by the other."""
    if _is_plain(hint) and _is_plain(other):
        return issubclass(hint, other)
    from beartype.door import is_subhint
    from beartype.roar import BeartypeDoorException

    try:
        return bool(is_subhint(hint, other))
    except BeartypeDoorException as error:
        raise _IncomparableError(str(error)) from error


def _is_plain(hint: Any) -> bool:
    # Not protocols, whose classes are of another type, and nothing with parameters.
    return type(hint) in (type, abc.ABCMeta) and not hasattr(hint, "__parameters__")


def _remove(module: ModuleType) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(content)
    return module


def _no_parameters(_text: str) -> dict[str, list[Any]]:
    return {"Parameters": []}
