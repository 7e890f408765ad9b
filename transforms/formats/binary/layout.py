"""The layout of fixed-length records, and blocks of them as arrays.

    header | record | record | ...          record: field | skipped | field | ...

A block is decoded through one NumPy view with strides; no record is looked at alone.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from transforms.core.image.png_encode import png_channels
from transforms.errors import SpecError

__all__ = [
    "DTYPES",
    "MAX_RECORD_BYTES",
    "BinaryField",
    "Layout",
    "Values",
]

DTYPES = tuple(
    "uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64".split()
)
MAX_RECORD_BYTES = 1 << 30
"""Arrow counts the bytes of a column in int32."""

_ENDIANNESS: Mapping[str, Literal["<", ">"]] = {"little": "<", "big": ">"}
_STORES = ("tensor", "list", "png")
_IMAGE_AXES = "HWC"

Values = npt.NDArray[Any]


@dataclasses.dataclass(frozen=True, slots=True)
class BinaryField:
    """One field of every record.

    Worked examples: the pixels of CIFAR-10 are `BinaryField("image", "uint8",
    (3, 32, 32), order="CHW")`, those of STL-10 `(3, 96, 96), order="CWH"`; both
    become (height, width, 3).

    Attributes:
      name: the column, and the feature's name.
      dtype: one of `DTYPES`, as NumPy names them.
      shape: of the array as it is stored, slowest axis first; () for one number.
      order: "C" for row-major as it is, "F" for column-major; or the stored axes by
        letter, "CHW", to be turned to "HWC"; or both by letter, "TCHW->THWC".
      endianness: "little" or "big"; the layout's when empty.
      offset: bytes from the record's start; None for right after the field before.
      skip: bytes to leave out before the field.
      store: what an array becomes: "tensor" (raw bytes), "list" (of numbers) or
        "png" (an encoded image, of uint8 or uint16).
      label: whether it is what a model is to predict; one a layout.
      classes: of a class id, the file beside the data that names the classes: UTF-8,
        one a line, the first has id 0.
      class_count: of a class id, how many there are where no file names them.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] = ()
    order: str = "C"
    endianness: str = ""
    offset: int | None = None
    skip: int = 0
    store: str = "tensor"
    label: bool = False
    classes: str = ""
    class_count: int = 0

    def __post_init__(self) -> None:
        where = f"field {self.name!r} of a layout"
        if not self.name:
            raise SpecError("Every field of a layout has a name; one has none.")
        if self.dtype not in DTYPES:
            raise SpecError(
                f"dtype of {where} must be one of {', '.join(DTYPES)}; found "
                f"{self.dtype!r}"
            )
        if any(side < 1 for side in self.shape) or len(self.shape) > 16:
            raise SpecError(
                f"shape of {where} is of up to 16 positive numbers; found {self.shape}"
            )
        if self.endianness not in ("", *_ENDIANNESS):
            raise SpecError(
                f"endianness of {where} is little or big; found {self.endianness!r}"
            )
        if min(self.offset or 0, self.skip) < 0 or (self.skip and self.offset):
            raise SpecError(
                f"{where} has an offset or a skip, and neither is negative; found "
                f"offset {self.offset}, skip {self.skip}"
            )
        if self.store not in _STORES:
            raise SpecError(
                f"store of {where} is one of {', '.join(_STORES)}; found {self.store!r}"
            )
        _permutation(self)
        if self.store == "png" and not png_channels(self.dtype, self.result_shape):
            raise SpecError(
                f"{where} is stored as png, so it must be uint8 or uint16 of (height, "
                f"width) or (height, width, 1 to 4); it is {self.dtype} of "
                f"{self.result_shape}"
            )
        is_class = bool(self.classes or self.class_count)
        if (is_class or self.label) and self.shape:
            raise SpecError(f"{where} is a label, so it must be one number, no array")
        if is_class and (self.dtype.startswith("float") or self.class_count < 0):
            raise SpecError(
                f"{where} has classes, so it must be an integer, and a count of them "
                f"positive; found {self.dtype}, {self.class_count}"
            )

    @property
    def size(self) -> int:
        """Bytes in a record."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def result_shape(self) -> tuple[int, ...]:
        """Shape of the array as columns hold it."""
        return tuple(self.shape[axis] for axis in _permutation(self))

    def arranged(self, values: Values) -> Values:
        """Returns (n, *shape) values as (n, *result_shape), little-endian, in C order.

        Args:
          values: as they are stored, of any strides and endianness.
        """
        axes = (0, *(axis + 1 for axis in _permutation(self)))
        return np.ascontiguousarray(
            values.transpose(axes), np.dtype(self.dtype).newbyteorder("<")
        )


def _permutation(field: BinaryField) -> tuple[int, ...]:
    """Returns the stored axes in the result's order; raises SpecError."""
    axes = range(len(field.shape))
    if field.order == "F":
        return tuple(reversed(axes))
    if field.order in ("", "C"):
        return tuple(axes)
    stored, _, wanted = field.order.partition("->")
    if not wanted:
        wanted = "".join(axis for axis in _IMAGE_AXES if axis in stored)
    letters = re.fullmatch("[A-Z]+", stored) and len(set(stored)) == len(stored)
    if not letters or sorted(stored) != sorted(wanted) or len(stored) != len(axes):
        raise SpecError(
            f"order of field {field.name!r} of a layout is C, F, or a letter for each "
            f"of its {len(axes)} axes, CHW say, which becomes HWC; other letters say "
            f"what they become, TCHW->THWC. Found {field.order!r}."
        )
    return tuple(stored.index(axis) for axis in wanted)


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Files of records of one length.

    Attributes:
      fields: in order; names are unique.
      header_bytes: before the first record; not looked at.
      endianness: "little" or "big", of fields that do not say.
      record_bytes: of a record, if it goes on after its last field; else 0.
    """

    fields: tuple[BinaryField, ...]
    header_bytes: int = 0
    endianness: str = "little"
    record_bytes: int = 0

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if not names or len(set(names)) < len(names):
            raise SpecError(
                f"A layout has fields, each name once; found {names or 'none'}."
            )
        if self.endianness not in _ENDIANNESS:
            raise SpecError(
                f"endianness of a layout is little or big; found {self.endianness!r}"
            )
        if min(self.header_bytes, self.record_bytes) < 0:
            raise SpecError(
                f"header_bytes and record_bytes of a layout are not negative; found "
                f"{self.header_bytes} and {self.record_bytes}"
            )
        if sum(field.label for field in self.fields) > 1:
            raise SpecError("At most one field of a layout is the label.")
        end = self._end
        if self.record_bytes and self.record_bytes < end:
            raise SpecError(
                f"record_bytes of a layout must cover its fields, which take {end}; "
                f"found {self.record_bytes}"
            )
        if self.size > MAX_RECORD_BYTES:
            raise SpecError(
                f"A record takes at most {MAX_RECORD_BYTES} bytes; this layout's are "
                f"{self.size}."
            )

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each field starts in a record."""
        out: list[int] = []
        at = 0
        for field in self.fields:
            at = at + field.skip if field.offset is None else field.offset
            out.append(at)
            at += field.size
        return tuple(out)

    @property
    def size(self) -> int:
        """Bytes of a record."""
        return self.record_bytes or self._end

    @property
    def _end(self) -> int:
        return max(
            offset + field.size
            for offset, field in zip(self.offsets, self.fields, strict=True)
        )

    def views(self, data: bytes | memoryview) -> dict[str, Values]:
        """Returns each field of a block of n whole records, nothing copied.

        Args:
          data: n * `size` bytes.

        Returns:
          By name, arrays of (n, *shape) as they are stored.
        """
        formats = [
            (
                np.dtype(field.dtype).newbyteorder(
                    _ENDIANNESS[field.endianness or self.endianness]
                ),
                field.shape,
            )
            for field in self.fields
        ]
        names = [field.name for field in self.fields]
        # Names of ours may be anything; those of NumPy's fields may not.
        inner = [f"f{i}" for i in range(len(names))]
        kind = np.dtype(
            {
                "names": inner,
                "formats": formats,
                "offsets": list(self.offsets),
                "itemsize": self.size,
            }
        )
        records = np.frombuffer(data, kind)
        return {name: records[i] for name, i in zip(names, inner, strict=True)}
