"""Simulates a full disk."""

FULL_DISK = """
import resource, sys
from transforms.storage.files import storage
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    with storage(sys.argv[1]).create(attempts=sys.argv[2]) as file:
        file.write(b"x" * 1500)
except OSError:
    sys.exit(7)
"""
