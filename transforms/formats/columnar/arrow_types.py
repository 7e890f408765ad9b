"""Types of the typed formats: flat columns of a schema, and drift between files.

    struct<a, b>               -> two columns, `outer/a` and `outer/b`
    list<struct<a, b>>         -> two columns of lists, likewise
    struct<bytes, path>        -> itself: an image, as Hugging Face stores it
    dictionary, run-end, view  -> the values themselves
    large_string               -> string, where it fits

Files of one source have the same columns. The width of integers, of floats and of
offsets may differ; of dictionaries and views, only the values count.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from transforms.core.arrays import has_arrays, is_list, lists_like, type_nesting
from transforms.core.json_text import MAX_NESTING
from transforms.core.rows.common_type import (
    FILES,
    is_image_file,
    plain_array,
    plain_type,
    wider_type,
)
from transforms.core.schema import Feature, Kind
from transforms.errors import InputError, first_few
from transforms.formats.table import only_in_one

_SHOWN_NAMES = 8
_MAX_OFFSET = 2**31 - 1

# The columns of a file: types by name, in the file's order.
Columns = dict[str, pa.DataType]
# By flat column, what the file itself says of it, beside its type.
Features = Mapping[str, Feature]


def flat_types(schema: pa.Schema, origin: str) -> Columns:
    """Returns the plain types of a schema's flat columns, by name.

    Raises:
      InputError: a name is empty or occurs twice, or values are nested too deep.
    """
    out: Columns = {}
    for field in schema:
        if type_nesting(field.type) > MAX_NESTING:
            raise InputError(
                f"{origin}: values of a column must be nested at most {MAX_NESTING} "
                f"levels deep; those of {field.name[:60]!r} are nested deeper. Leave "
                f"the column out where the file is written."
            )
        if not has_arrays(field.type):
            raise InputError(
                f"{origin}: column {field.name[:60]!r} is {_short(field.type)}, which "
                f"no feature holds. Leave it out where the file is written, or write "
                f"it as another type."
            )
        for name, _, kind in _flat_type(field.name, field.name, field.type):
            if name in out or not name:
                problem = f"{name!r} occurs twice" if name else "one has none"
                raise InputError(
                    f"{origin}: every column must have a name of its own; {problem}. "
                    f"Rename it where the file is written."
                )
            out[name] = kind
    return out


def _flat_type(
    name: str, path: str, kind: pa.DataType
) -> Iterator[tuple[str, str, pa.DataType]]:
    """Yields flat columns: name, the path of structs that leads there, type."""
    kind = plain_type(kind, FILES)
    if is_plain_struct(kind):
        for field in kind:
            inner = f"{path}.{field.name}"
            yield from _flat_type(f"{name}/{field.name}", inner, field.type)
    elif is_list(kind) and is_plain_struct(kind.value_type):
        for field in kind.value_type:
            yield from _flat_type(f"{name}/{field.name}", path, pa.list_(field.type))
    else:
        yield name, path, kind


def stated_features(schema: pa.Schema) -> Features:
    """Returns the labels with class names, as Hugging Face's datasets has them.

    They are in the metadata of the schema: {"info": {"features": {"label": {"names":
    ["cat", "dog"], "_type": "ClassLabel"}}}}. Metadata of another form is no error.
    """
    try:
        stated = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        named = dict(_named_classes("", stated["info"]["features"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    types = flat_types(schema, "")
    out = {}
    for name, names in named.items():
        kind = types.get(name, pa.null())
        shape = (None,) if is_list(kind) else ()
        if pa.types.is_signed_integer(kind.value_type if shape else kind):
            out[name] = Feature(name, Kind.LABEL, shape=shape, vocabulary=names)
    return out


def _named_classes(name: str, stated: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields columns with class names, as Hugging Face's metadata nests them."""
    if isinstance(stated, list):
        yield from _named_classes(name, stated[0])
    elif "_type" not in stated:
        for key, inner in stated.items():
            yield from _named_classes(f"{name}/{key}" if name else key, inner)
    elif stated["_type"] == "ClassLabel":
        names = tuple(stated["names"])
        if len({*names}) == len(names) and all(isinstance(n, str) for n in names):
            yield name, names
    elif "feature" in stated:
        yield from _named_classes(name, stated["feature"])


def sources(schema: pa.Schema, wanted: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields for each wanted flat column the field it is in, and its path with dots."""
    names = set(wanted)
    for field in schema:
        for name, path, _ in _flat_type(field.name, field.name, field.type):
            if name in names:
                yield field.name, path


def is_plain_struct(kind: pa.DataType) -> bool:
    """Whether values are flattened to columns."""
    return pa.types.is_struct(kind) and not is_image_file(kind)


def flat_columns(
    batch: pa.RecordBatch | pa.Table, wanted: Iterable[str] | None = None
) -> dict[str, pa.Array]:
    """Returns the flat columns of rows, of plain types; all, or those wanted."""
    if wanted is not None:
        wanted = set(wanted)
        fields = dict.fromkeys(field for field, _ in sources(batch.schema, wanted))
        batch = batch.select([*fields])
    out: dict[str, pa.Array] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
            if isinstance(column, pa.ChunkedArray):
                raise pa.ArrowInvalid(f"column {field.name!r} is over 2 GiB in a piece")
        out |= _flatten(field.name, column)
    if wanted is None:
        return out
    return {name: array for name, array in out.items() if name in wanted}


def _flatten(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yields the flat columns of a field; those of structs are named "field/inner"."""
    array = _plain(array)
    kind = array.type
    if is_plain_struct(kind):
        for index, field in enumerate(kind):
            yield from _flatten(f"{name}/{field.name}", pc.struct_field(array, index))
    elif is_list(kind) and is_plain_struct(kind.value_type):
        items = array.flatten()
        for index, field in enumerate(kind.value_type):
            child = pc.struct_field(items, index)
            yield from _flatten(f"{name}/{field.name}", lists_like(array, child))
    else:
        yield name, array


def _plain(array: pa.Array) -> pa.Array:
    """Returns the values in the plain type that `flat_types` gives.

    Texts over 2 GiB keep offsets of 64 bits.
    """
    if pa.types.is_large_string(array.type) and array.nbytes > _MAX_OFFSET:
        size = pc.sum(pc.binary_length(array)).as_py() or 0
        return array if size > _MAX_OFFSET else plain_array(array)
    return plain_array(array)


class CommonColumns:
    """The columns of the files of one source, types as wide as needed.

    Args:
      may_lack: whether files may lack columns of others.

    Attributes:
      columns: of the files that were added.
      features: what the files themselves say of columns.
    """

    def __init__(self, *, may_lack: bool = False) -> None:
        self.columns: Columns = {}
        self.features: dict[str, Feature] = {}
        self._first: str | None = None
        self._may_lack = may_lack

    def add(
        self, origin: str, columns: Columns, features: Features | None = None
    ) -> None:
        """Adds a file; the order of its columns may differ from the first file's.

        Raises:
          InputError: it differs from the first; names both files and the columns.
        """
        if self._first is None:
            self._first, self.columns = origin, dict(columns)
            self.features |= features or {}
            return
        facts = []
        if not self._may_lack:
            facts += only_in_one(self._first, self.columns, origin, columns)
        for name, kind in columns.items():
            previous = self.columns.get(name, kind)
            if (wide := wider_type(previous, kind, FILES)) is None:
                facts.append(
                    f"{name[:60]!r} is {_short(previous)} in {self._first} and "
                    f"{_short(kind)} in {origin}"
                )
            else:
                self.columns[name] = wide
        if facts:
            raise InputError(
                f"all files of a source must have the same columns; {self._first} and "
                f"{origin} differ: {first_few(facts, _SHOWN_NAMES)}. Convert them one "
                f"by one, or write them again under one schema."
            )
        for name, feature in (features or {}).items():
            if (first := self.features.setdefault(name, feature)) != feature:
                seen = [str(f.vocabulary or f.shape)[:99] for f in (first, feature)]
                raise InputError(
                    f"all files of a source must have values of one shape, and the "
                    f"same class names in the same order; they were {seen[0]}, and "
                    f"those of {name[:60]!r} in {origin} are {seen[1]}. Convert them "
                    f"one by one."
                )


def _short(kind: pa.DataType) -> str:
    """Returns a type for messages, cut: that of a struct may be very long."""
    return str(kind)[:60]
