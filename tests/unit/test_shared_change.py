"""Changes to a process that overlapping runs share."""

from collections.abc import Iterator

import pytest

from beam_pipeline.beam_internals.local_runner import shared_change


def test_the_first_opens_and_the_last_closes() -> None:
    """In whatever order they leave; the next one opens it again."""
    done: list[str] = []

    @shared_change
    def change() -> Iterator[None]:
        """Changes something."""
        done.append("open")
        yield
        done.append("close")

    first, second = change(), change()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert done == ["open"]
    second.__exit__(None, None, None)
    assert done == ["open", "close"]
    with change():
        assert done == ["open", "close", "open"]
    assert change.__doc__ == "Changes something."


def test_a_failure_of_the_last_is_seen_by_the_change() -> None:
    """It may clean up in another way, and hides no error."""
    done: list[str] = []

    @shared_change
    def change() -> Iterator[None]:
        try:
            yield
        finally:
            done.append("restored")
        done.append("ended well")

    with pytest.raises(KeyError), change():
        raise KeyError
    assert done == ["restored"]
    with change():
        pass
    assert done == ["restored", "restored", "ended well"]
