"""What settings of images may say; light to import, unlike the code that does it."""

from typing import Literal

__all__ = ["MAX_BYTES", "MAX_PIXELS", "MAX_SECONDS", "Check", "Filter", "Mode"]

Check = Literal["structure", "decode", "none"]
Mode = Literal["shorter", "longer", "exact", "crop", "pad"]
Filter = Literal["hamming", "box", "bilinear", "bicubic", "lanczos"]

MAX_PIXELS = 64_000_000
"""Default limit: 8,000 x 8,000. Decoded as RGB, 192 MB."""

MAX_BYTES = 1 << 28
"""Default limit of an encoded image: 256 MiB. A file of 64 megapixels has less."""

MAX_SECONDS = 120
"""Default limit of work on one image: some four times what 64 megapixels of any format
take to be decoded and encoded as PNG."""
