"""Images as a policy prepares them, and what a check says of them."""

import io

import numpy as np
from PIL import Image

from tests.support.drawn_images import picture, saved
from transforms.core.image import check
from transforms.core.image.formats import ImageInfo
from transforms.core.image.policy import ImagePolicy, PreparedImage, prepare_image
from transforms.core.image.resize import Check, Resize
from transforms.core.reasons import Fault

FIRST = ImagePolicy(animation="first")


def check_image(data: bytes, how: Check = "structure") -> ImageInfo | Fault:
    """Returns what TensorFlow would decode from an image, or the fault."""
    found = check.check_image(data, how)
    return found if isinstance(found, Fault) else ImageInfo(*found[:4])


def fault_of(data: bytes, check: Check = "structure") -> Fault:
    """The fault of an image that must be refused."""
    fault = check_image(data, check)
    assert isinstance(fault, Fault), fault
    return fault


def prepared(data: bytes, policy: ImagePolicy = FIRST) -> PreparedImage:
    """The image that must be accepted."""
    result = prepare_image(data, policy)
    assert isinstance(result, PreparedImage), result
    return result


def pixels(data: bytes) -> np.ndarray:
    """As Pillow decodes them."""
    return np.asarray(Image.open(io.BytesIO(data)))


def oriented(kind: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[274] = orientation
    return saved(picture(), kind, exif=exif.tobytes() if kind != "TIFF" else exif)


def frames(kind: str) -> bytes:
    """An animation, or as many pages; no two frames alike."""
    images = [picture(height=24, width=40).rotate(90 * i) for i in range(3)]
    return saved(images[0], kind, save_all=True, append_images=images[1:])


SMALLER = ImagePolicy(resize=Resize("shorter", 12), animation="first")
