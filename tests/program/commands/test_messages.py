"""The message classes beside TensorFlow's own, in a process of their own."""

import subprocess
import sys


def test_importing_the_messages_does_not_touch_the_default_pool() -> None:
    """The default pool knows no tensorflow.Example after the import."""
    code = (
        "import transforms.core.example.messages\n"
        "from google.protobuf import descriptor_pool\n"
        "try:\n"
        "    descriptor_pool.Default().FindMessageTypeByName('tensorflow.Example')\n"
        "except KeyError:\n"
        "    print('unknown')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "unknown"
