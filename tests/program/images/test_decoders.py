"""Processes for decoders: the same images as here, and no end of the run by any."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.drawn_images import picture, saved
from tests.support.foreign_images import foreign_images
from tests.support.hostile_decoder import ordered, prepare
from tests.support.outputs import rejects, rows
from tests.support.runs import convert
from tests.support.sources import write_files
from tests.support.worker_pool import runs
from transforms.core.image.policy import ImagePolicy, PreparedImage, prepare_image
from transforms.core.image.resize import Resize
from transforms.core.reasons import Fault, Reason
from transforms.errors import MAX_MESSAGE_BYTES, BeamTFRecordError
from transforms.shards import decoders
from transforms.shards.decoders import DecoderPool

Folder = pathlib.Path
ROOT = Folder(__file__).parents[3]
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
PLAIN = ImagePolicy()
# For images that take all that they get.
BRIEF = ImagePolicy(max_pixels=99)

POLICIES = {
    "default": ImagePolicy(),
    "changed": ImagePolicy(
        animation="first", exif="apply", channels=3, resize=Resize("pad", 9, 17)
    ),
    "jpeg": ImagePolicy(animation="first", output="jpeg"),
    "too small a limit": BRIEF,
}


def images_of_others() -> Iterator[tuple[str, bytes]]:
    """Images of each format that TensorFlow does not read, whole and cut."""
    whole = [*foreign_images(seed=5, rounds=1)]
    with contextlib.suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
        whole.append(("HEIF", saved(picture(), "HEIF")))
    yield from whole
    yield from ((f"half a {kind}", data[: len(data) // 2]) for kind, data in whole)


@pytest.fixture(scope="module")
def sound() -> Iterator[DecoderPool]:
    """A pool that does what the product does."""
    pool = DecoderPool()
    yield pool
    pool.end()


@pytest.fixture
def hostile() -> Iterator[DecoderPool]:
    """A pool that does what the images say."""
    pool = DecoderPool(prepare)
    yield pool
    pool.end()


def reason(result: PreparedImage | Fault) -> Reason:
    assert isinstance(result, Fault)
    assert 0 < len(result.message.encode()) <= MAX_MESSAGE_BYTES
    return result.reason


def process_of(pool: DecoderPool) -> int:
    """The id of the child that the pool would use next."""
    result = pool.prepare(ordered("process"), PLAIN)
    assert isinstance(result, Fault)
    return int(result.message)


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# ------------------------------------------------------------------- the same results


@pytest.mark.parametrize("policy", list(POLICIES))
def test_results_are_those_of_this_process(policy: str, sound: DecoderPool) -> None:
    """Bytes, facts, notes and faults are equal, whichever process has decoded."""
    for kind, data in images_of_others():
        found = sound.prepare(data, POLICIES[policy])
        assert found == prepare_image(data, POLICIES[policy]), kind


# ----------------------------------------------------------- what ends a child is known


@pytest.mark.parametrize(
    ("order", "expected", "said"),
    [
        ("crash", Reason.DECODER_CRASH, "SIGSEGV"),
        ("exit", Reason.DECODER_CRASH, "exit code 0"),
        ("spin", Reason.TOO_SLOW, "0.1 seconds of processor time"),
        ("wait", Reason.TOO_SLOW, "0.1 seconds of processor time"),
        pytest.param("swell", Reason.DECODER_CRASH, "memory", marks=ON_LINUX),
    ],
)
def test_fault_88_the_image_is_refused_and_the_next_one_is_not(
    order: str, expected: Reason, said: str, hostile: DecoderPool
) -> None:
    """A decoder that crashes, hangs or swells costs one image and one child."""
    hostile._seconds = 0.1
    fault = hostile.prepare(ordered(order), BRIEF)
    assert reason(fault) is expected
    assert isinstance(fault, Fault)
    assert said in fault.message
    assert "pnm" in fault.message
    data = ordered("nothing")
    hostile._seconds = 9
    assert hostile.prepare(data, PLAIN) == prepare_image(data)


@pytest.mark.parametrize("order", ["spin", "wait"])
def test_a_process_that_ignores_alarms_still_limits_the_time_of_an_image(
    order: str, hostile: DecoderPool
) -> None:
    """Children inherit which signals are ignored: such an image held up the run."""
    hostile._seconds = 0.1
    numbers = (signal.SIGPROF, signal.SIGALRM)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    stop = threading.Timer(20, hostile.end)
    stop.start()
    try:
        assert reason(hostile.prepare(ordered(order), BRIEF)) is Reason.TOO_SLOW
    finally:
        stop.cancel()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def test_an_image_is_judged_by_a_child_that_has_done_nothing_else(
    hostile: DecoderPool,
) -> None:
    """What another image may have broken in a child is not put down to this one."""
    data = ordered("crash-if-used")
    first = process_of(hostile)
    assert isinstance(hostile.prepare(data, PLAIN), PreparedImage)
    assert process_of(hostile) != first
    os.kill(process_of(hostile), signal.SIGKILL)
    assert isinstance(hostile.prepare(ordered("nothing"), PLAIN), PreparedImage)


def test_a_bug_is_an_error_and_no_reject(hostile: DecoderPool) -> None:
    """An exception that no image should cause fails the run, with its text."""
    with pytest.raises(BeamTFRecordError, match="ZeroDivisionError: a bug"):
        hostile.prepare(ordered("bug"), PLAIN)
    assert isinstance(hostile.prepare(ordered("nothing"), PLAIN), PreparedImage)


def test_nothing_is_printed(
    hostile: DecoderPool, capfd: pytest.CaptureFixture[str]
) -> None:
    """What decoders print reaches neither the terminal nor the answers."""
    assert isinstance(hostile.prepare(ordered("print"), PLAIN), PreparedImage)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("broken", ["executable", "ends", "silent"])
def test_a_child_that_does_not_start_is_an_error(
    broken: str, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No image is refused because of the machine; the message says what to do."""
    if broken == "executable":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    else:
        python = tmp_path / "python"
        does = "exec sleep 600" if broken == "silent" else "exit 7"
        python.write_text(f"#!/bin/sh\n{does}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(python))
        monkeypatch.setattr(
            decoders, "_START_SECONDS", 0.2 if broken == "silent" else 9
        )
    with pytest.raises(
        BeamTFRecordError, match=r"exit code 7|No such file|not ready.*SIGKILL"
    ) as error:
        DecoderPool(prepare).prepare(ordered("nothing"), PLAIN)
    assert "--foreign-images reject" in str(error.value)


# -------------------------------------------------------------------- children's ends


def test_threads_have_a_child_each(hostile: DecoderPool) -> None:
    """Two hanging images are waited for at the same time."""
    hostile._seconds = 0.1
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        tasks = [threads.submit(hostile.prepare, ordered("wait"), BRIEF) for _ in "12"]
        assert {reason(task.result()) for task in tasks} == {Reason.TOO_SLOW}


@ON_LINUX
def test_ctrl_c_and_the_end_of_idle_children(hostile: DecoderPool) -> None:
    """Ctrl-C reaches the children too, and is not for them; `end_idle` is."""
    pid = process_of(hostile)
    os.kill(pid, signal.SIGINT)
    assert process_of(hostile) == pid
    hostile.end_idle()
    assert not runs(pid)


PARENT = """
import os, sys, threading
from tests.support.foreign_images import foreign_images
from tests.support.hostile_decoder import ordered, prepare
from transforms.core.image.policy import ImagePolicy
from transforms.shards.decoders import DecoderPool
pool, policy = DecoderPool(prepare), ImagePolicy()
idle = pool.prepare(ordered("process"), policy).message
forked = os.fork() if sys.argv[2] == "fork" else 1
if not forked:
    own = pool.prepare(ordered("process"), policy).message
    os._exit(own == idle)
if sys.argv[2] == "fork":
    assert os.waitpid(forked, 0)[1] == 0
    assert pool.prepare(ordered("process"), policy).message == idle
first = threading.Thread(target=pool.prepare, args=(ordered(sys.argv[1]), policy))
first.start()
while not pool.prepare(ordered("process"), policy).message != idle:
    pass
print(idle, pool.prepare(ordered("process"), policy).message, flush=True)
first.join()
"""


@ON_LINUX
@pytest.mark.parametrize("order", ["wait", "spin"])
def test_children_die_with_the_parent(order: str) -> None:
    """Idle or in the middle of a decoder that hangs, and whatever ended the parent."""
    code = PARENT
    parent = subprocess.Popen(
        [sys.executable, "-c", code, order, "fork" if order == "wait" else ""],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    children = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(children) == 2
    assert all(map(runs, children))
    parent.kill()
    parent.communicate()
    assert within(5, lambda: not any(map(runs, children)))


# --------------------------------------------------------------------------- end to end

JPEG = saved(picture(), "JPEG")


def test_the_run_survives_a_decoder_that_crashes(
    tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The images that end their decoders are rejected; all others are converted."""
    pool = DecoderPool(prepare, 0.5)
    monkeypatch.setattr(decoders, "SHARED", pool)
    tree = {f"a/{number:02}.jpg": JPEG for number in range(20)}
    tree |= {f"b/{number:02}.webp": saved(picture(), "WEBP") for number in range(20)}
    tree |= {f"c/{o}.ppm": ordered(o) for o in ("crash", "crash-if-used", "spin")}
    source, out = write_files(tmp_path / "tree", tree), tmp_path / "out"
    run = convert(source, out, "--max-reject-rate", 0.1, "--workers", 1)
    assert [(r["source"], r["reason"]) for r in rejects(out)] == [
        ("c/crash.ppm", "decoder_crash"),
        ("c/spin.ppm", "too_slow"),
    ]
    assert len(rows(out)) == 41
    assert "reencoded 21" in run.out
    assert not pool._children


CLI = """
from tests.support.foreign_images import foreign_images
from tests.support.hostile_decoder import prepare
from transforms.shards import decoders
from beam_pipeline.cli import program
decoders.SHARED = decoders.DecoderPool(prepare)
program()
"""


@ON_LINUX
def test_ctrl_c_while_a_decoder_hangs(tmp_path: Folder) -> None:
    """The run ends at once and leaves neither processes nor files behind."""
    note = tmp_path / "pid"
    tree = {"a/1.jpg": JPEG, "b/hangs.ppm": ordered(f"wait {note}")}
    source = write_files(tmp_path / "tree", tree)
    arguments = ("convert", source, tmp_path / "out", "--workers", 1)
    run = subprocess.Popen(
        [sys.executable, "-c", CLI, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert within(30, lambda: note.exists() and note.read_text().endswith("\n"))
    # As the terminal does: to all processes in the foreground.
    os.killpg(run.pid, signal.SIGINT)
    _, said = run.communicate(timeout=5)
    assert run.returncode == 130
    assert said.endswith("Interrupted; nothing was committed. Run it again to go on.\n")
    assert "Traceback" not in said
    child = int(note.read_text())
    assert within(5, lambda: not runs(child))
    assert not (tmp_path / "out").exists()
