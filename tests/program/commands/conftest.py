"""What these tests look at is the same without Beam's runner."""

from tests.support.no_runner import no_runner

__all__ = ["no_runner"]
