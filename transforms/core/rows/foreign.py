"""Convert values of other libraries to what `arrow_of` takes; pixels to PNG files.

| value                              | becomes             |
| ---------------------------------- | ------------------- |
| image of Pillow                    | a PNG file          |
| tensor of PyTorch, and what else   | a NumPy array       |
| has `__array__`                    |                     |
| NumPy array in a column of images  | a PNG file          |
"""

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from transforms.core.image.png_encode import encode_png
from transforms.core.rows.python_kinds import OddValueError
from transforms.errors import EncodingError

# Modes of Pillow that PNG stores without a conversion.
_PNG_MODES = ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA")


def native_values(values: list[Any], *, is_image: bool) -> list[Any]:
    """Returns n values as NumPy's, Python's, or PNG files; the list itself if they are.

    Args:
      values: n of them; None where one is missing.
      is_image: whether arrays are the pixels of images.

    Raises:
      OddValueError: a value cannot be converted; has its index.
    """
    converters = {kind: converter_of(kind) for kind in set(map(type, values))}
    if is_image:
        converters |= {k: _png for k in converters if issubclass(k, np.ndarray)}
    if not any(converters.values()):
        return values
    return [
        _converted(value, index, converters[type(value)], is_image)
        for index, value in enumerate(values)
    ]


def _converted(
    value: Any, index: int, convert: Callable[[Any], Any] | None, is_image: bool
) -> Any:
    if convert is None:
        return value
    try:
        value = convert(value)
        return _png(value) if is_image and isinstance(value, np.ndarray) else value
    except (OSError, ValueError, TypeError, RuntimeError, EncodingError) as error:
        raise OddValueError(str(error), index) from error


def converter_of(kind: type[Any]) -> Callable[[Any], Any] | None:
    """Returns what converts a library's values to NumPy or PNG; None for no need."""
    if kind.__module__.startswith("PIL."):
        return _png_of_pillow
    if hasattr(kind, "detach") and hasattr(kind, "numpy"):
        # A PyTorch tensor: NumPy cannot read one that has a gradient or is on a GPU.
        return lambda value: value.detach().cpu().numpy()
    ours = (np.ndarray, np.generic)
    if hasattr(kind, "__array__") and not issubclass(kind, ours):
        return np.asarray
    return None


def _png(pixels: np.ndarray) -> bytes:
    try:
        file: bytes = encode_png(pixels[np.newaxis])[0].as_py()
    except EncodingError as error:
        raise OddValueError(str(error)) from error
    return file


def _png_of_pillow(image: Any) -> bytes:
    if image.mode not in _PNG_MODES:
        raise OddValueError(
            f"an image of mode {image.mode} is no PNG; use image.convert('RGB')"
        )
    out = io.BytesIO()
    # The orientation stays in the file: the job's exif setting decides what to do.
    exif = image.getexif()
    image.save(out, format="PNG", **({"exif": exif} if exif else {}))
    return out.getvalue()
