"""Long records of TFRecord files cost no memory."""

import gzip
import pathlib

from tests.support.tfrecords import HOSTILE, needs_proc, run_child, write
from transforms.core.tfrecord import (
    frame,
)


@needs_proc
def test_hostile_lengths_cost_no_memory(tmp_path: pathlib.Path) -> None:
    """Plain and gzip: below 16 MiB of growth over checking a good file."""
    good = tmp_path / "good"
    good.write_bytes(write([bytes(1000)] * 3000)[0])
    paths = []
    for length in HOSTILE:
        plain = tmp_path / f"{length}"
        plain.write_bytes(frame.header(length) + bytes(100))
        packed = tmp_path / f"{length}.gz"
        packed.write_bytes(gzip.compress(plain.read_bytes()))
        paths += [plain, packed]
    bomb = tmp_path / "bomb"
    with gzip.open(bomb, "wb", compresslevel=6) as file:
        file.write(frame.header(2**40))
        for _ in range(300):
            file.write(bytes(1 << 20))
    assert bomb.stat().st_size < 350_000
    code = """
        TFRecordReader(sys.argv[1]).verify()
        before = peak_kib()
        for path in sys.argv[2:]:
            for use in (TFRecordReader.verify, list):
                try:
                    use(TFRecordReader(path))
                except TFRecordError as error:
                    print(error.kind)
        print(peak_kib() - before)
    """
    *kinds, growth_kib = run_child(code, good, *paths, bomb)
    assert kinds == ["too-long"] * (2 * len(paths) + 2)
    assert int(growth_kib) < 16 * 1024
