"""All modules here run pipelines."""

from tests.support.shortcuts import shortcuts

__all__ = ["shortcuts"]
