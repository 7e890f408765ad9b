"""Compares our resizing of JPEGs with OpenCV's, interleaved in one run.

    .venv/bin/python bench/resize.py FOLDER
    .venv/bin/python bench/resize.py FOLDER --side 160 --quality 90 --runs 7

Needs the project and opencv-python-headless in one environment. OpenCV decodes, resizes
with INTER_AREA and encodes, in one thread; ours is `prepare_image` with its default
filter, checks included, in one thread and in two. Both encode at the same quality with
4:2:0 chroma. The files are in memory; every round runs each contestant once, and the
medians are compared.
"""

import argparse
import concurrent.futures
import functools
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from transforms.core.image.policy import ImagePolicy, prepare_image
from transforms.core.image.resize import Resize
from transforms.core.reasons import Fault

# Required shares of OpenCV's rate: one worker with two threads, and one thread alone.
REQUIRED = {2: 1.0, 1: 0.55}
# Files per task of a thread, as in the reader of images.
TASK_FILES = 16


def by_opencv(data: bytes, side: int, quality: int) -> bytes:
    """Decodes, resizes to the shorter side and encodes, as a script would."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    height, width = image.shape[:2]
    if min(height, width) > side:
        (height, width), _ = Resize("shorter", side).lay_out(height, width)
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
    options = [
        *(cv2.IMWRITE_JPEG_QUALITY, quality),
        *(cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420),
    ]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def by_us(data: bytes, policy: ImagePolicy) -> bytes:
    """Checks, decodes, resizes and encodes by policy."""
    result = prepare_image(data, policy)
    if isinstance(result, Fault):
        raise SystemExit(f"refused: {result.message}")
    return result.data


def seconds(
    work: Callable[[bytes], bytes], files: Sequence[bytes], threads: int
) -> float:
    """Returns the wall time for all files with this many threads."""
    tasks = [files[i : i + TASK_FILES] for i in range(0, len(files), TASK_FILES)]
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        start = time.perf_counter()
        sum(pool.map(lambda task: sum(len(work(data)) for data in task), tasks))
        return time.perf_counter() - start


def error_of(results: Sequence[bytes], files: Sequence[bytes], side: int) -> float:
    """Returns the mean absolute difference from float area averages, in gray levels."""
    total = 0.0
    for result, data in zip(results, files, strict=True):
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        found = cv2.imdecode(np.frombuffer(result, np.uint8), cv2.IMREAD_COLOR)
        (height, width), _ = Resize("shorter", side).lay_out(*image.shape[:2])
        exact = cv2.resize(
            image.astype(np.float32),
            (width, height),
            interpolation=cv2.INTER_AREA,
        )
        total += float(np.abs(found - exact).mean())
    return total / len(files)


def main() -> int:
    """Prints the table; exit code 1 if a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=pathlib.Path, help="searched for .jpg, .jpeg")
    parser.add_argument("--side", type=int, default=224, help="pixels")
    parser.add_argument("--quality", type=int, default=95)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=int, default=400, help="files at most")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    paths = sorted(options.folder.rglob("*.jp*g"))[: options.limit]
    if not paths:
        raise SystemExit(f"no .jpg or .jpeg in {options.folder}")
    files = [path.read_bytes() for path in paths]
    policy = ImagePolicy(
        resize=Resize("shorter", options.side), output="jpeg", quality=options.quality
    )
    theirs = functools.partial(by_opencv, side=options.side, quality=options.quality)
    ours = functools.partial(by_us, policy=policy)
    contestants = {
        "opencv, 1 thread": (theirs, 1),
        "ours, 1 thread": (ours, 1),
        "ours, 2 threads": (ours, 2),
    }
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(options.runs):
        for name, (work, threads) in contestants.items():
            times[name].append(seconds(work, files, threads))
    medians = {name: statistics.median(values) for name, values in times.items()}
    base = medians["opencv, 1 thread"]
    print(
        f"{len(files)} files, {sum(map(len, files)) / len(files):,.0f} bytes each, "
        f"shorter side {options.side}, quality {options.quality}, "
        f"median of {options.runs}; OpenCV {cv2.__version__}"
    )
    print(
        f"{'':18} {'us/image':>9} {'ratio':>6} {'bound':>6} {'bytes':>8} {'error':>6}"
    )
    passed = True
    for name, (work, threads) in contestants.items():
        results = [work(data) for data in files]
        ratio = base / medians[name]
        bound = REQUIRED[threads] if work is ours else None
        passed &= bound is None or ratio >= bound
        print(
            f"{name:18} {medians[name] / len(files) * 1e6:9,.0f} {ratio:6.2f} "
            f"{'' if bound is None else bound:>6} "
            f"{sum(map(len, results)) / len(files):8,.0f} "
            f"{error_of(results, files, options.side):6.2f}"
        )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
