"""Classify Python values of all libraries into families.

    Enum -> its value    pathlib, UUID -> text    NaT, pandas.NA -> None
    np.str_, np.bytes_, arrays without dimensions -> the value

| word                             | types                                        |
| -------------------------------- | -------------------------------------------- |
| bool, int, float, decimal        | Python's, and NumPy's of every width         |
| text, bytes                      | str; bytes, bytearray, memoryview            |
| datetime, date, time, timedelta  | those of the module `datetime`               |
| datetime64, timedelta64          | NumPy's                                      |
| array, list, mapping             | NumPy's; list, tuple, range; any mapping     |

Values of other libraries become those first, and pixels files:

| value                              | becomes             |
| ---------------------------------- | ------------------- |
| image of Pillow                    | a PNG file          |
| tensor of PyTorch, and what else   | a NumPy array       |
| has `__array__`                    |                     |
| NumPy array in a column of images  | a PNG file          |
"""

import datetime
import decimal
import enum
import functools
import io
import os
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from transforms.core.arrays import is_bytes, is_list
from transforms.core.image.png import encode_png
from transforms.errors import EncodingError, bounded

_SHOWN_CHARS = 80
# The first that matches counts: a bool is also an int, a datetime a date, and a
# timedelta64 an integer.
_FAMILIES: dict[str, tuple[type, ...]] = {
    "bool": (bool, np.bool_),
    "timedelta64": (np.timedelta64,),
    "int": (int, np.integer),
    "float": (float, np.floating),
    "text": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "datetime": (datetime.datetime,),
    "date": (datetime.date,),
    "time": (datetime.time,),
    "timedelta": (datetime.timedelta,),
    "datetime64": (np.datetime64,),
    "decimal": (decimal.Decimal,),
    "array": (np.ndarray,),
    "list": (list, tuple, range),
    "mapping": (Mapping,),
}
# What values of an Arrow type are, by the first that is true.
_COLUMN_FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "bool"),
    (pa.types.is_integer, "int"),
    (pa.types.is_floating, "float"),
    (pa.types.is_timestamp, "datetime"),
    (pa.types.is_date, "date"),
    (pa.types.is_string, "text"),
    (is_bytes, "bytes"),
    (pa.types.is_struct, "mapping"),
)
_FAMILY_OF: dict[type[Any], str] = {}
# Modes of Pillow that PNG stores without a conversion.
_PNG_MODES = ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA")


class OddValueError(ValueError):
    """A Python value of another kind than the others, or of one that Arrow lacks.

    Attributes:
      index: of the value among those given; -1 if no single value is at fault.
    """

    def __init__(self, message: str, index: int = -1) -> None:
        super().__init__(message)
        self.index = index


def family_of(kind: type[Any]) -> str:
    """Returns the family of a Python type; "" if no feature holds its values."""
    family = _FAMILY_OF.get(kind)
    if family is None:
        names = (n for n, types in _FAMILIES.items() if issubclass(kind, types))
        family = _FAMILY_OF[kind] = next(names, "")
    return family


def family_of_column(kind: pa.DataType) -> str:
    """Returns the family of an Arrow type's values; "" of nulls, "other" of others."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    while is_list(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return ""
    return next((name for is_of, name in _COLUMN_FAMILIES if is_of(kind)), "other")


def plain_values(values: list[Any]) -> list[Any]:
    """Returns n values as types of the table above; the list itself if they are."""
    if not any(map(_converter, set(map(type, values)))):
        return values
    return [_converted(value) for value in values]


@functools.cache
def _converter(kind: type[Any]) -> Callable[[Any], Any] | None:
    """Returns what converts values of a type to a known one; None if nothing must."""
    if issubclass(kind, enum.Enum):
        return lambda value: value.value
    if kind.__name__ in ("NAType", "NaTType") and kind.__module__.startswith("pandas"):
        return lambda _: None
    if issubclass(kind, np.str_ | np.bytes_):
        return lambda value: value.item()
    if issubclass(kind, np.ndarray):
        # An array without dimensions is a single value.
        return lambda value: value if value.ndim else value[()]
    if issubclass(kind, (os.PathLike, uuid.UUID)) and not issubclass(kind, str):
        return str if issubclass(kind, uuid.UUID) else os.fspath
    if issubclass(kind, np.datetime64):
        return lambda value: None if np.isnat(value) else value
    return None


def _converted(value: Any) -> Any:
    """Converts a value until it is of a known type: an Enum's value may be an Enum."""
    while (convert := _converter(type(value))) is not None:  # type: ignore[arg-type]
        changed = convert(value)
        if changed is value or type(changed) is type(value):
            return changed
        value = changed
    return value


def shown(value: Any) -> str:
    """Returns a Python value and its kind for messages; of arrays dtype and shape."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    try:
        text = bounded(repr(value), _SHOWN_CHARS)
    except RecursionError:
        text = "a deeply nested value"
    except ValueError:
        # Python makes no text of an integer of more than 4,300 digits.
        text = "a value with a very large integer"
    return f"{text} ({type(value).__name__})"


def native_values(values: list[Any], *, is_image: bool) -> list[Any]:
    """Returns n values as NumPy's, Python's, or PNG files; the list itself if they are.

    Args:
      values: n of them; None where one is missing.
      is_image: whether arrays are the pixels of images.

    Raises:
      OddValueError: a value cannot be converted; has its index.
    """
    converters = {kind: converter_of(kind) for kind in set(map(type, values))}
    if not is_image and not any(converters.values()):
        return values
    out = []
    for index, value in enumerate(values):
        convert = converters[type(value)]
        try:
            native = value if convert is None else convert(value)
            is_pixels = is_image and isinstance(native, np.ndarray)
            out.append(_png(native) if is_pixels else native)
        except (OSError, ValueError, TypeError, RuntimeError, EncodingError) as error:
            raise OddValueError(str(error), index) from error
    return out


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
    """Returns the pixels of an image, (height, width[, channels]), as a PNG file."""
    return encode_png(pixels[np.newaxis])[0].as_py()


def _png_of_pillow(image: Any) -> bytes:
    """Returns a Pillow image as a PNG file; OddValueError for modes that PNG lacks."""
    if image.mode not in _PNG_MODES:
        raise OddValueError(
            f"an image of mode {image.mode} is no PNG; use image.convert('RGB')"
        )
    out = io.BytesIO()
    # The orientation stays in the file: the job's exif setting decides what to do.
    exif = image.getexif()
    image.save(out, format="PNG", **({"exif": exif} if exif else {}))
    return out.getvalue()
