"""The results of image checks, without the fields that only a policy uses."""

from transforms.core.image import check
from transforms.core.image.formats import ImageInfo
from transforms.core.image.resize import MAX_PIXELS, Check
from transforms.core.reasons import Fault

__all__ = ["check_image"]


def check_image(
    data: bytes, how: Check = "structure", max_pixels: int = MAX_PIXELS
) -> ImageInfo | Fault:
    """Returns what TensorFlow would decode from an image, or the fault."""
    found = check.check_image(data, how, max_pixels)
    return found if isinstance(found, Fault) else ImageInfo(*found[:4])


def fault_of(data: bytes, check: Check = "structure") -> Fault:
    """The fault of an image that must be refused."""
    fault = check_image(data, check)
    assert isinstance(fault, Fault), fault
    return fault
