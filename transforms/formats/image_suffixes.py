"""File name suffixes of images; the content may differ."""

import os

IMAGE_SUFFIXES = tuple(
    (
        ".jpg .jpeg .jpe .jfif .png .bmp .dib .gif .webp .tif .tiff .jp2 .j2k .avif "
        ".heic .heif .ppm .pgm .pbm .pnm .ico .tga .psd .svg"
    ).split()
)


def is_image_name(path: str) -> bool:
    """Whether a path ends like that of an image."""
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES
