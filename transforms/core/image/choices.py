"""Choices and limits of image settings; light to import, unlike the image code."""

from typing import Literal

Check = Literal["structure", "decode", "none"]
Mode = Literal["shorter", "longer", "exact", "crop", "pad"]
Filter = Literal["hamming", "box", "bilinear", "bicubic", "lanczos"]

MAX_PIXELS = 64_000_000
"""Default limit: 8,000 x 8,000. Decoded as RGB, 192 MB."""

MAX_BYTES = 1 << 28
"""Default limit of an encoded image: 256 MiB, more than 64 megapixels need."""
