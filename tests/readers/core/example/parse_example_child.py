"""`tf.io.parse_single_example` in a process of its own, which its messages may end.

The op reads beyond some mutated messages, and now and then that is the end of the
process. Messages come over stdin and answers go over stdout, both as pickles:
None where TensorFlow refuses a message, else name -> values.
"""

import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

# What TensorFlow has not answered: its process ended.
CRASHED = "crashed"


def parsed_elsewhere(messages: Iterable[bytes]) -> Iterator[Any]:
    """Yields TensorFlow's answer to each message, or CRASHED."""
    child = None
    try:
        for message in messages:
            if child is None:
                child = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "tests.readers.core.example.parse_example_child",
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            assert child.stdin is not None
            assert child.stdout is not None
            try:
                pickle.dump(message, child.stdin)
                child.stdin.flush()
                yield pickle.load(child.stdout)
            except (EOFError, BrokenPipeError):
                # Only a signal ends it so; anything else is a fault of this test.
                child.communicate(timeout=60)
                assert child.returncode < 0, child.returncode
                child = None
                yield CRASHED
    finally:
        if child is not None:
            child.kill()
            child.communicate()


def main() -> None:
    """Answers until there are no more messages."""
    import tensorflow as tf

    features = {
        "one": tf.io.FixedLenFeature((), tf.int64, 7),
        "i": tf.io.VarLenFeature(tf.int64),
        "f": tf.io.VarLenFeature(tf.float32),
        "글": tf.io.VarLenFeature(tf.string),
    }
    while True:
        try:
            message = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer: Any = None
        try:
            found = tf.io.parse_single_example(message, features)
        except (tf.errors.InvalidArgumentError, UnicodeDecodeError):
            # The second where the message of the first quotes a key.
            pass
        else:
            answer = {"one": int(found["one"])} | {
                name: found[name].values.numpy() for name in ("i", "f", "글")
            }
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
