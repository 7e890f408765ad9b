"""Columns of images: which they are, what is stored under which names, their files."""

import dataclasses
import itertools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.settings.spec import FeatureSpec, Spec
from transforms.core.arrays import is_list, one_array
from transforms.core.infer.evidence import (
    LIST_COLUMNS,
    LIST_NAME,
    is_named_like_images,
    looks_like_image_paths,
    without_ending,
)
from transforms.core.rows.typed_cells import is_image_struct
from transforms.core.schema import Feature, Kind, Missing, Schema, Unknown
from transforms.errors import SpecError
from transforms.formats.file_names import IMAGE_SUFFIXES, is_image_name
from transforms.formats.images import NAMES_OF_FILES, PRESETS, image_schema
from transforms.formats.input_files import InputFiles
from transforms.formats.pairs import PAIR_NAMES
from transforms.formats.table import TableSample
from transforms.storage.files import sizes_of
from transforms.storage.paths import SCHEMES, is_remote, relative, spellings

Columns = Mapping[str, pa.Array | pa.ChunkedArray]
# Column -> what the job says of the features that it is the column of.
_Said = Mapping[str, Sequence[FeatureSpec]]

# A manifest of tfrecorder: whatever the URIs end in, they are those of images.
_TFRECORDER = frozenset(["split", "image_uri", "label"])
# Behind the suffix of a path in a store: how the store is reached.
_PARAMETERS = rf"^((?:{'|'.join(SCHEMES)})://.*)\?[A-Za-z_]+=[^?]*$"
# Roles that are read from the column of the label, not from the image.
_LABEL_ROLES = ("label", "text", "synset")
# Files of all columns that are looked for, and folders that one may be in.
_LOOKED_AT, _MOST_FOLDERS = 64, 8


def role_names(spec: Spec, tree: str = "images") -> dict[str, str]:
    """Returns role -> name of what is stored of a column of images, or of a folder.

    An empty name is for nothing.

    Args:
      spec: of the job.
      tree: "files" for the features of a file that is no image, "pairs" for those of
        an image with a mask.
    """
    names = NAMES_OF_FILES if tree == "files" else PRESETS[spec.preset]
    if tree == "pairs" and spec.preset == "default":
        names = PAIR_NAMES
    return {**names, **spec.feature_names}


def stored_roles(
    spec: Spec, tree: str = "images", *, labelled: bool = False
) -> dict[str, str]:
    """Returns the roles of an image that are stored, and their names.

    Args:
      spec, tree: see `role_names`.
      labelled: whether folders say a label; tables have columns of labels.
    """
    without = () if labelled else _LABEL_ROLES
    names = role_names(spec, tree).items()
    return {role: name for role, name in names if name and role not in without}


def with_roles(features: Sequence[Feature], spec: Spec) -> list[Feature]:
    """Returns the features of a table of images, its label named as the job says.

    Under a preset of its own names, or where `feature_names` says so, the label gets
    the name of that role, and text and synset are stored beside it. File names that a
    format declares, of an archive's members say, are named likewise.
    """
    names = role_names(spec)
    if spec.preset == "default" and "label" not in spec.feature_names:
        names.pop("label", None)
    out: list[Feature] = []
    taken = {feature.name for feature in features}
    for feature in features:
        name, beside = feature.name, []
        if feature.is_label:
            name = names.get("label", name)
            roles = ("text", "synset") if feature.kind is Kind.LABEL else ()
            beside = [n for role in roles if (n := names.get(role, "")) not in taken]
        elif name == "filename" and feature.kind is Kind.TEXT and feature.column:
            # Not a column of the table that is called so, whatever it may hold.
            name = names.get("filename", "")
        out += [_renamed(feature, name)] if name else []
        out += [_class_names_beside(feature, name) for name in beside if name]
    return out


def _renamed(feature: Feature, name: str) -> Feature:
    """Returns a feature of a table of images under another name."""
    column = feature.source_column
    return dataclasses.replace(
        feature, name=name, column="" if column == name else column
    )


def _class_names_beside(label: Feature, name: str) -> Feature:
    """Returns the class names of a table of images, as texts beside their label."""
    bare = dataclasses.replace(label, vocabulary=None, unknown=Unknown.REJECT)
    plain = dataclasses.replace(bare, kind=Kind.TEXT, is_label=False)
    return _renamed(plain, name)


def with_images(
    features: Sequence[Feature],
    columns: Columns,
    spec: Spec,
    *,
    images_named: bool = False,
    image_files: Collection[str] = (),
) -> list[Feature]:
    """Returns the features with image columns replaced by those of the records.

    Args:
      features: inferred or declared by the format.
      columns: of the source.
      spec: of the job.
      images_named: whether the format's own names stay, and nothing is added.
      image_files: columns of text whose sampled values are image files, whatever
        their names.

    Raises:
      SpecError: the names of images cannot be changed.
    """
    settled = images_named or any(feature.derived for feature in features)
    if spec.image_columns is None and settled:
        # The format has said what its images are.
        if spec.preset == "default" and not spec.feature_names:
            return list(features)
        if any(feature.states for feature in features):
            raise SpecError(
                "preset and feature_names are not for boxes: their names are those of "
                "the TF Object Detection API. Rename them by `features` of a spec."
            )
        features = [feature for feature in features if not feature.derived]
    said: dict[str, list[FeatureSpec]] = {}
    for name, declared in spec.features.items():
        if declared.path is None:
            said.setdefault(declared.column or name, []).append(declared)
    chosen = {*(spec.image_columns or ())}
    if spec.image_columns is None:
        named = (f for f in features if _is_image(f, columns, said, image_files))
        chosen = {feature.source_column for feature in named}
    features = [_as_said(f, said) if f.source_column in chosen else f for f in features]
    taken = {f.name for f in features if f.source_column not in chosen}
    images = [f for f in features if f.source_column in chosen]
    prefixes = _image_prefixes(images, taken)
    out: list[Feature] = []
    for feature in features:
        if feature.source_column not in chosen:
            out.append(feature)
            continue
        made = _features_of_image(feature, columns, prefixes[feature.name], spec)
        # What the table says itself, a height say, is not stored a second time.
        out += [f for f in made if f.kind is Kind.IMAGE or f.name not in taken]
    return out


def _image_prefixes(
    chosen: Sequence[Feature], taken: Collection[str]
) -> dict[str, str]:
    """Returns what the names of each image column's features begin with."""
    if len(chosen) == 1 and "image" not in taken and not chosen[0].shape:
        return {chosen[0].name: ""}
    bases = {}
    for feature in chosen:
        name, is_list = feature.name, bool(feature.shape)
        bases[name] = without_ending(name, is_list=is_list)
        if is_list and name.lower() in LIST_COLUMNS:
            bases[name] = LIST_NAME
    prefixes = [*bases.values(), *taken]
    return {n: base if prefixes.count(base) == 1 else n for n, base in bases.items()}


def _as_said(feature: Feature, said: _Said) -> Feature:
    """Returns a column of images with the shape and separator that the job says."""
    for given in said.get(feature.source_column, ()):
        if given.kind in (None, "image") and (given.shape or given.separator):
            shape = tuple(given.shape or (None,))
            separator = given.separator or ""
            return dataclasses.replace(feature, shape=shape, separator=separator)
    return feature


def _is_image(
    feature: Feature, columns: Columns, said: _Said, image_files: Collection[str]
) -> bool:
    """Whether a column holds images: as is said, or by its values and its name."""
    name = feature.source_column
    if kinds := [given.kind for given in said.get(name, ()) if given.kind is not None]:
        return Kind.IMAGE in kinds
    if feature.kind is not Kind.TEXT:
        return feature.kind is Kind.IMAGE
    if name in image_files:
        return True
    column = items_of(columns.get(name))
    if column is None or not pa.types.is_string(column.type) or len(feature.shape) > 1:
        return False
    if name == "image_uri" and columns.keys() >= _TFRECORDER:
        return True
    if not is_named_like_images(name, is_list=bool(feature.shape)):
        return False
    paths = pc.replace_substring_regex(column, _PARAMETERS, r"\1")
    return looks_like_image_paths(paths, frozenset(IMAGE_SUFFIXES))


def with_file_paths(features: Sequence[Feature], columns: Columns) -> list[Feature]:
    """Returns the features; files in structs that are no images have their paths."""
    out: list[Feature] = []
    names = {feature.name for feature in features}
    for feature in features:
        out.append(feature)
        items = items_of(columns.get(feature.source_column))
        if feature.kind is not Kind.BYTES or items is None:
            continue
        name = f"{feature.name}/path"
        if is_image_struct(items.type) and name not in names:
            column = feature.source_column
            out.append(Feature(name, Kind.TEXT, column=column, shape=feature.shape))
    return out


def items_of(column: pa.Array | pa.ChunkedArray | None) -> Any:
    """Returns the images in a column or in its lists; of other columns the values."""
    while column is not None and is_list(column.type):
        column = pc.list_flatten(column)
    return column


def _features_of_image(
    feature: Feature, columns: Columns, prefix: str, spec: Spec
) -> list[Feature]:
    """Returns the features of a column of images: image, file name and dimensions."""
    column = feature.source_column
    items = items_of(columns.get(column))
    inline = is_inline(feature, items)
    shape, separator = feature.shape, feature.separator
    named = not inline and (items is None or pa.types.is_string(items.type))
    names = stored_roles(spec)
    if not named:
        names.pop("filename", None)
    if prefix:
        names = {
            role: prefix if role == "image" else f"{prefix}/{given}"
            for role, given in names.items()
        }
    out = []
    for image_feature in image_schema(names).features:
        changed: dict[str, Any] = {"shape": shape}
        if image_feature.derived:
            changed["derived_from"] = names["image"] if prefix else ""
        else:
            changed["column"] = "" if column == image_feature.name else column
            changed["separator"] = separator
        if image_feature.kind is Kind.IMAGE:
            changed |= {"inline": inline, "missing": Missing.REJECT}
        out.append(dataclasses.replace(image_feature, **changed))
    return out


def is_inline(feature: Feature, column: pa.Array | pa.ChunkedArray | None) -> bool:
    """Whether the rows hold images themselves, not where they are."""
    column = items_of(column)
    if column is None or pa.types.is_string(column.type):
        return feature.inline
    if not is_image_struct(column.type):
        return True
    # Hugging Face's images that were not embedded have a path alone.
    contents, paths = (pc.struct_field(column, name) for name in ("bytes", "path"))
    return bool(contents.null_count < len(column) or paths.null_count == len(column))


def image_folders(files: InputFiles, images_root: str) -> list[str]:
    """Returns folders that paths in tables are relative to.

    Args:
      files: the tables.
      images_root: the folder of all images; empty for those of the tables.
    """
    if images_root:
        return [images_root]
    step = max(len(files) // _LOOKED_AT, 1)
    paths = [files[i].path for i in range(0, len(files), step)]
    return [*dict.fromkeys(map(os.path.dirname, paths))][:_MOST_FOLDERS]


def image_shares(
    features: Sequence[Feature], columns: Columns, folders: Sequence[str]
) -> dict[str, float]:
    """Returns the share of sampled cells that are relative paths of image files.

    Args:
      features: as they were inferred; those of texts are looked at.
      columns: raw columns by name.
      folders: those that the paths are relative to.

    Returns:
      Column -> share above 0: 1 where each cell has an image's suffix and each file
      that was looked for is there.
    """
    texts = [f.source_column for f in features if f.kind is Kind.TEXT]
    cells = {name: _sampled_paths(columns[name]) for name in texts}
    inside = {name: [*filter(_is_inside, texts)] for name, texts in cells.items()}
    some = itertools.islice(filter(inside.get, inside), _LOOKED_AT)
    named = {name: inside[name] for name in some}
    most = _LOOKED_AT // max(len(named), 1)
    asked = {name: paths[:: -(-len(paths) // most)] for name, paths in named.items()}
    # One question for all columns: a store answers many at a time.
    spelt = {
        path: image_places(path, folders) for path in itertools.chain(*asked.values())
    }
    there = sizes_of(itertools.chain(*spelt.values())).keys()
    out = {}
    for name, paths in asked.items():
        hits = sum(not there.isdisjoint(spelt[path]) for path in paths)
        if hits:
            share = len(named[name]) / len(cells[name])
            out[name] = hits * share / len(paths)
    return out


def image_places(path: str, folders: Sequence[str]) -> list[str]:
    """Returns where an image may be that is called so in rows."""
    return [os.path.join(f, spelling) for f in folders for spelling in spellings(path)]


def _sampled_paths(column: pa.Array | pa.ChunkedArray) -> list[str]:
    """Returns what may be paths of images, from evenly through a column."""
    items = items_of(column)
    if not pa.types.is_string(items.type):
        return []
    some = items[:: -(-len(items) // _LOOKED_AT) or 1]
    return [*map(str, some.fill_null("").to_pylist())]


def _is_inside(path: str) -> bool:
    """Whether a text may be the path of an image below a folder: no URL, say."""
    # The dot first: it is cheap, and texts of thousands of columns have none.
    if "." not in path or not is_image_name(path) or path.startswith("/"):
        return False
    return "://" not in path and "\0" not in path


def check_images_root(folder: str, source: str) -> None:
    """Raises SpecError where the folder of the images is not there.

    Args:
      folder: that `images_root` names; empty for none.
      source: the source's root.
    """
    if not folder or is_remote(folder) or os.path.isdir(folder):
        return
    beside = os.path.join(source, relative(folder, ""))
    hint = "Correct it."
    if os.path.isdir(beside):
        hint = f"In the folder of the source there is one; name it {beside!r}."
    raise SpecError(
        f"images_root must be a folder, relative to the current one; there is no "
        f"{folder!r}. {hint}"
    )


def check_images_named(spec: Spec, schema: Schema) -> None:
    """Raises SpecError for an `images_root` to which no path is relative."""
    folder = spec.images_folder
    # Rows of Python have it without a word: their copy lies in another folder.
    is_default = spec.fingerprint == "content" and spec.images_root == os.getcwd()
    named = any(not feature.inline for feature in schema.of_kind(Kind.IMAGE))
    if not folder or is_default or named:
        return
    raise SpecError(
        "images_root is for paths of images; no column of this source holds them. "
        "Leave it out, or name their columns with image_columns."
    )


def renamed_derived(name: str, said: FeatureSpec, base: Feature) -> Feature:
    """Returns a feature read off an image under a new name; SpecError for more."""
    settings = said.model_dump(exclude_none=True)
    settings.pop("column", None)
    if settings.pop("kind", base.kind) != base.kind or settings:
        raise SpecError(
            f"Feature {name!r} is read off an image, as {base.kind}: it can be named "
            f"or left out, with feature_names, and no more."
        )
    return dataclasses.replace(base, name=name)


def renamed_images(
    features: Sequence[Feature], places: Mapping[str, Sequence[str]]
) -> list[Feature]:
    """Returns the features; what is read off an image knows its image's new name."""
    out = []
    for feature in features:
        name = places.get(feature.derived_from, [feature.derived_from])[0]
        out.append(dataclasses.replace(feature, derived_from=name))
    return out


def named_images(sample: TableSample, schema: Schema, most: int) -> list[str]:
    """Returns images that columns of a sample name: the first, and evenly on.

    Args:
      sample: of the files.
      schema: of the rows.
      most: how many of each column.
    """
    names = []
    for feature in schema.of_kind(Kind.IMAGE):
        column = sample.columns.get(feature.source_column)
        if feature.inline or column is None:
            continue
        texts = one_array(column)
        if feature.separator and pa.types.is_string(texts.type):
            texts = pc.split_pattern(texts, feature.separator)
        texts = items_of(texts).drop_null()
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            step = max(-(-len(texts) // most), 1)
            names += [texts[i].as_py().strip() for i in range(0, len(texts), step)]
    return [*filter(None, names)]
