"""Reads from a store overlap; those from a disk do not."""

import threading
from collections.abc import Iterator

import pytest

from transforms.storage.files import read_ahead


def test_far_reads_wait_side_by_side() -> None:
    """Eight reads that each wait for the others end, and give results in order."""
    barrier = threading.Barrier(8, timeout=60)

    def read(item: int) -> int:
        barrier.wait()
        return item * item

    found = read_ahead(read, range(8), far=True, threads=8)
    assert list(found) == [item * item for item in range(8)]


def test_near_reads_are_those_of_the_calling_thread() -> None:
    """On a disk nothing is read before it is asked for, and no thread is started."""
    threads = set()
    begun = []

    def read(item: int) -> int:
        begun.append(item)
        threads.add(threading.get_ident())
        return item

    found = read_ahead(read, range(5), far=False)
    assert next(found) == 0
    assert begun == [0]
    assert list(found) == [1, 2, 3, 4]
    assert threads == {threading.get_ident()}


def test_few_results_wait() -> None:
    """However many items there are, as many as there are threads are taken ahead."""
    taken = []

    def items() -> Iterator[int]:
        for item in range(1_000):
            taken.append(item)
            yield item

    found = read_ahead(lambda item: item, items(), far=True, threads=4)
    assert next(found) == 0
    assert len(taken) == 4


def test_an_error_is_raised_in_its_place() -> None:
    """What was read before an error is given first."""

    def read(item: int) -> int:
        if item == 3:
            raise FileNotFoundError(item)
        return item

    found = read_ahead(read, range(100), far=True)
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(FileNotFoundError):
        next(found)
