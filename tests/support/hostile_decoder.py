"""Image preparation that misbehaves as its input says, for children of a pool.

The files are PPMs; the comment in their first line is the order.
"""

import os
import signal
import sys
import time

from transforms.core.image.policy import ImagePolicy, PreparedImage, prepare_image
from transforms.core.reasons import Fault, Reason

_served = 0


def ordered(order: str) -> bytes:
    """Returns a PPM of 2 x 1 pixels that asks for `order`."""
    return f"P6\n# {order}\n2 1\n255\n".encode() + bytes(range(6))


def prepare(data: bytes, policy: ImagePolicy) -> PreparedImage | Fault:
    """Misbehaves as the image says, and then prepares it properly."""
    global _served
    _served += 1
    first, second, *_ = [*data[:300].split(b"\n"), b""]
    order, _, argument = second[2:].decode("utf-8", "replace").partition(" ")
    match order if first == b"P6" else "":
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "crash-if-used" if _served > 1:
            os.kill(os.getpid(), signal.SIGSEGV)
        case "exit":
            os._exit(0)
        case "spin":
            while True:
                pass
        case "wait":
            if argument:
                with open(argument, "w", encoding="utf-8") as file:
                    file.write(f"{os.getpid()}\n")
            time.sleep(600)
        case "swell":
            bytearray(6 << 30)
        case "bug":
            raise ZeroDivisionError("a bug")
        case "print":
            print("printed")
            print("printed", file=sys.stderr)
            os.write(1, b"printed")
        case "process":
            return Fault(Reason.UNSUPPORTED_FORMAT, str(os.getpid()))
    return prepare_image(data, policy)
