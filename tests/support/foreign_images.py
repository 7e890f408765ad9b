"""Images as other programs write them, and policies for them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from tests.support.drawn_images import picture, saved
from transforms.core.image.policy import ImagePolicy
from transforms.core.image.resize import Resize

POLICIES = {
    "default": ImagePolicy(animation="first"),
    "trusting": ImagePolicy(animation="first", check="none"),
    "small": ImagePolicy(
        animation="first", exif="apply", channels=3, resize=Resize("crop", 16, 16)
    ),
    "png": ImagePolicy(
        animation="first", channels=4, resize=Resize("pad", 20, 20), output="png"
    ),
    "jpeg": ImagePolicy(animation="first", resize=Resize("shorter", 9), output="jpeg"),
    "gray": ImagePolicy(animation="first", channels=1, check="decode"),
}


# (format, modes, options): what Pillow can write of the list.
WRITTEN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("GIF", "1 L P RGB RGBA", {}),
    ("GIF", "P RGB", {"interlace": 0}),
    ("WEBP", "L RGB RGBA", {"quality": 70}),
    ("WEBP", "RGB RGBA", {"lossless": True}),
    ("TIFF", "1 L LA P RGB RGBA CMYK I;16", {}),
    ("TIFF", "1 L P RGB RGBA I;16", {"compression": "tiff_lzw"}),
    ("TIFF", "L RGB", {"compression": "tiff_adobe_deflate"}),
    ("TIFF", "L RGB", {"compression": "packbits"}),
    ("TIFF", "1", {"compression": "group4"}),
    ("TIFF", "L RGB", {"compression": "jpeg"}),
    ("TIFF", "L RGB", {"big_tiff": True}),
    ("JPEG2000", "L LA RGB RGBA I;16", {}),
    ("JPEG2000", "L RGB", {"no_jp2": True, "irreversible": True}),
    ("PPM", "1 L RGB I;16", {}),
    ("AVIF", "L RGB RGBA", {"speed": 10}),
    ("BMP", "1 L P RGB RGBA", {}),
)


def as_mode(mode: str, height: int, width: int) -> Image.Image:
    """A picture in any of Pillow's modes."""
    if mode == "I;16":
        rng = np.random.default_rng(height)
        return Image.fromarray(rng.integers(0, 65536, (height, width), np.uint16))
    if mode in ("L", "LA", "RGB", "RGBA", "CMYK"):
        return picture(mode, height=height, width=width)
    return picture(height=height, width=width).convert(mode)


def foreign_images(seed: int, rounds: int) -> Iterator[tuple[str, bytes]]:
    """Intact files of every format that TensorFlow does not read as one image."""
    rng = np.random.default_rng(seed)
    for number in range(rounds):
        height, width = (int(n) for n in rng.integers(1, 57, 2))
        for kind, modes, options in WRITTEN:
            for mode in modes.split():
                image = as_mode(mode, height, width)
                yield f"{kind} {mode}", saved(image, kind, **options)
        exif = Image.Exif()
        exif[274] = 1 + number % 8
        for kind in ("WEBP", "TIFF", "AVIF", "JPEG", "PNG"):
            image = picture(height=height, width=width)
            turned = exif if kind == "TIFF" else exif.tobytes()
            yield f"{kind} turned", saved(image, kind, exif=turned)
        pages = [picture(height=height, width=width).rotate(90 * i) for i in range(3)]
        for kind in ("GIF", "WEBP", "TIFF", "AVIF", "PNG"):
            several = {"save_all": True, "append_images": pages[1:]}
            yield f"{kind} animated", saved(pages[0], kind, **several)
        values = " ".join(str(n) for n in rng.integers(0, 101, height * width * 3))
        yield "PPM plain", f"P3 # words\n{width} {height}\n100\n{values}\n".encode()
