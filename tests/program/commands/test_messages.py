"""The message classes beside TensorFlow's own, in a process of their own."""

from tests.support.runs import python


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
    done = python("-c", code, check=True)
    assert done.stdout.strip() == "unknown"
