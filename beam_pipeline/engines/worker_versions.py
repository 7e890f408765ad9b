"""The versions that the workers of a job must have."""

from beam_pipeline.version import FOR_ROWS, deciding_versions
from transforms.work.worker_check import VersionRules

__all__ = ["version_rules"]


def version_rules(*, images: bool, compressed: bool) -> VersionRules:
    """Returns the versions that decide bytes of a job, which are those of here.

    Machines of others have another zlib, say, than this one; a job of plain rows need
    not be refused for that.

    Args:
      images: whether it has images, whose codecs decide bytes.
      compressed: whether its shards are compressed.
    """
    found = deciding_versions()
    deciding = FOR_ROWS | ({"zlib"} if compressed else set())
    free = frozenset() if images else frozenset(found.keys() - deciding)
    return VersionRules(found, deciding_versions, free)
