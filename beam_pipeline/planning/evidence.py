"""What a sample says of features: statistics, and notes on kinds that may surprise."""

import dataclasses
import itertools
import re
import shlex
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from beam_pipeline.planning.image_columns import Columns, items_of
from beam_pipeline.settings.spec import Spec
from beam_pipeline.terminal import share_text
from transforms.core.arrays import one_array
from transforms.core.infer.evidence import (
    EXAMPLE_ITEMS,
    EXAMPLES,
    Evidence,
    NearKind,
    example_text,
    extent_of,
    first_distinct,
    is_named_like_images,
)
from transforms.core.rows.column import Misfit, python_value
from transforms.core.rows.conform import conform
from transforms.core.schema import Feature, Kind, Missing, Schema
from transforms.errors import SHOWN_CHARS, first_few
from transforms.formats.table import TableSample
from transforms.storage.paths import without_access

# Rows to look at; fewer for kinds whose values are large.
_ROWS = 100_000
_ROWS_OF_LARGE = 256
_LARGE = frozenset([Kind.BYTES, Kind.IMAGE, Kind.TENSOR])
_MEASURED = frozenset([Kind.INT64, Kind.FLOAT, Kind.TIMESTAMP])

# A table may have thousands of columns.
_MOST_NOTES = 8
_MAY_BE_IMAGES = frozenset([Kind.TEXT, Kind.LABEL, Kind.BYTES])
# What a table calls the files of images that it holds itself.
_FILE_NAMES = frozenset(["file_name", "filename", "path"])
_ARE = {Kind.BOOL: "true or false"}
# The ends of names of the columns of a box, in lower case, of letters and digits.
_BOX_COLUMNS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x1", "y1", "x2", "y2"),
    ("left", "top", "right", "bottom"),
    ("left", "top", "width", "height"),
    ("bboxx", "bboxy", "bboxwidth", "bboxheight"),
    ("bboxx", "bboxy", "bboxw", "bboxh"),
    ("bbox",),
    ("regionshapeattributes",),
)
# Likewise, of columns that name an image without the suffix of its file.
_IMAGE_IDS = frozenset(["imageid", "imgid", "imagename", "imgname", "filename"])
_MASK_WORDS = re.compile(
    r"(?i)(?<![a-z])(masks?|seg|segmentations?|segmaps?|annotations?|trimaps?)(?![a-z])"
)


def evidence_of(
    feature: Feature, columns: Columns, origins: pa.Array, *, are_paths: bool
) -> Evidence:
    """Returns what a sample holds for a feature, and what of it does not fit.

    Args:
      feature: with a column, or a pattern over the paths of files.
      columns: raw columns by name, n values each.
      origins: paths of files; what a pattern without a column is matched against.
      are_paths: whether the values are paths of images, as those of images are: what
        they say of how to reach their place is not shown.
    """
    feature = dataclasses.replace(feature, missing=Missing.OMIT)
    raw: dict[str, pa.Array] = {}
    if feature.pattern and not feature.column:
        count = len(origins)
    else:
        rows_seen = _ROWS_OF_LARGE if feature.kind in _LARGE else _ROWS
        column = one_array(columns[feature.source_column].slice(0, rows_seen))
        raw, count = {feature.source_column: column}, len(column)
        origins = pa.nulls(count, pa.string())
    misfits: list[Misfit] = []
    if feature.kind is Kind.IMAGE:
        values = raw[feature.source_column]
    else:
        rows, misfits = conform(raw, Schema((feature,)), count, origins)
        values = rows.column(0)
    shown = values if feature.pattern else raw[feature.source_column]
    odd = [m.raw.filter(pa.array(m.bad)) for m in misfits]
    is_measured = feature.kind in _MEASURED
    minimum, maximum = extent_of(values) if is_measured else (None, None)
    return Evidence(
        sampled=count,
        missing=shown.null_count,
        misfits=sum(map(len, odd)),
        minimum=minimum,
        maximum=maximum,
        examples=_example_texts(shown, are_paths=are_paths),
        misfit_examples=tuple(itertools.chain(*map(_example_texts, odd)))[:EXAMPLES],
    )


def with_classes(evidence: Evidence, column: pa.Array | pa.ChunkedArray) -> Evidence:
    """Returns the evidence for a label, with how many class names there are."""
    column = items_of(column)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    names = pc.unique(column).drop_null()
    return dataclasses.replace(
        evidence, distinct=len(names), examples=_example_texts(names)
    )


def _example_texts(values: pa.Array, *, are_paths: bool = False) -> tuple[str, ...]:
    """Returns the first different values as texts; of paths no URI parameters."""

    def text(scalar: pa.Scalar) -> str:
        value = python_value(scalar, items=EXAMPLE_ITEMS)
        if isinstance(value, dict):
            value = value.get("bytes") or value.get("path") or ""
        if are_paths and isinstance(value, list):
            value = [without_access(str(path)) for path in value]
        elif are_paths and isinstance(value, str):
            value = without_access(value)
        return example_text(value)

    return first_distinct(values.slice(0, _ROWS_OF_LARGE), text)


def column_notes(
    schema: Schema,
    evidence: Mapping[str, Evidence],
    spec: Spec,
    image_shares: Mapping[str, float],
) -> tuple[str, ...]:
    """Returns a note for each column that is nearly of a kind, or was not understood.

    Columns whose kind the job says have none.

    Args:
      schema: the features.
      evidence: what their kinds were inferred from, by name.
      spec: the job.
      image_shares: of columns of text, the share of values that are image files.
    """
    said = {n.column or k for k, n in spec.features.items() if n.kind is not None}
    inferred = [f for f in schema.stored if f.source_column not in said]
    known = [(f, evidence[f.name]) for f in inferred if f.name in evidence]
    notes = [note for feature, facts in known if (note := _kind_note(feature, facts))]
    if spec.image_columns is None:
        notes += _image_notes(inferred, schema, image_shares)
    notes += [*_box_notes(schema), *_mask_notes(schema, spec)]
    if (more := len(notes) - _MOST_NOTES) > 0:
        plural = "s" if more > 1 else ""
        notes[_MOST_NOTES:] = [f"{more:,} more column{plural} like these: see spec"]
    return tuple(notes)


def _kind_note(feature: Feature, facts: Evidence) -> str:
    """Returns a note on a column that nearly is of another kind; "" for none."""
    name = feature.source_column[:SHOWN_CHARS]
    if facts.near is None:
        if feature.kind is Kind.TEXT and facts.exact_text:
            return f"column {name!r} is text: {facts.remark}"
        return ""
    if feature.kind in (Kind.TEXT, Kind.LABEL):
        share, others = near_in_words(facts.near)
        kind = "a label" if feature.kind is Kind.LABEL else "text"
        return (
            f"column {name!r} is {kind}: {share}, and the others hold {others}. "
            f"{_null_values_advice(facts.near)}"
        )
    # What is in a single row is an error in it; what comes back has a meaning.
    if facts.near.kind is not feature.kind or facts.near.stops[0][1] < 2:
        return ""
    return (
        f"column {name!r} is {feature.kind}: {facts.misfits:,} of {facts.sampled:,} "
        f"sampled cells are no numbers and will be rejected; they hold "
        f"{_other_texts(facts.near)}. {_null_values_advice(facts.near)}"
    )


def _image_notes(
    inferred: Sequence[Feature], schema: Schema, shares: Mapping[str, float]
) -> list[str]:
    """Returns a note on each column whose evidence says that it may be of images."""
    images = {f.source_column for f in schema.of_kind(Kind.IMAGE)}
    notes = {}
    for feature in inferred:
        name, text = feature.source_column, feature.source_column[:SHOWN_CHARS]
        is_own = not (feature.derived or feature.pattern or feature.constant)
        if name in images or feature.kind not in _MAY_BE_IMAGES or not is_own:
            continue
        why = "it is named like one of images"
        if share := shares.get(name, 0.0):
            why = f"{_share_in_words(share)} of its sampled cells are image files"
        elif (images and name.lower() in _FILE_NAMES) or not is_named_like_images(
            name, is_list=bool(feature.shape)
        ):
            continue
        notes[name] = (
            f"column {text!r} is {feature.kind}: {why}; if it is one of images, say "
            f"--image-columns {shlex.quote(text)}"
        )
    return [*notes.values()]


def _box_notes(schema: Schema) -> list[str]:
    """Returns a note where the evidence is that rows of a table are boxes."""
    single = [f for f in schema.stored if not (f.derived or f.shape)]
    kinds = (Kind.INT64, Kind.FLOAT, Kind.TEXT)
    names = {feature.source_column for feature in single if feature.kind in kinds}
    plain = {re.sub(r"[^a-z0-9]", "", name.lower()): name for name in names}
    is_of_images = bool(schema.of_kind(Kind.IMAGE)) or not _IMAGE_IDS.isdisjoint(plain)
    for sides in _BOX_COLUMNS:
        ends = [
            next((name for word, name in plain.items() if word.endswith(side)), "")
            for side in sides
        ]
        if all(ends) and len({*ends}) == len(sides) and is_of_images:
            shown = ", ".join(repr(name[:SHOWN_CHARS]) for name in ends)
            return [
                f"{shown} look like columns of boxes: each row becomes a record of its "
                f"own with plain values, also rows that name the same image. For a "
                f"record an image, with its boxes, call the columns filename, xmin, "
                f"ymin, xmax, ymax and class: see --format boxes_csv"
            ]
    return []


def _mask_notes(schema: Schema, spec: Spec) -> list[str]:
    """Returns a note where the evidence is that images are masks, as they are named."""
    images = schema.of_kind(Kind.IMAGE)
    changes = spec.resize or spec.channels or spec.image_format == "jpeg"
    if len(images) < 2 or not changes:
        return []
    return [
        f"images {feature.name[:SHOWN_CHARS]!r} are named like masks: if their pixels "
        f"are class numbers, say 'mask: true' of them in features of a --spec; else "
        f"resize, channels and image_format make other numbers of them"
        for feature in images
        if not feature.mask and _MASK_WORDS.search(feature.source_column)
    ]


def near_in_words(near: NearKind) -> tuple[str, str]:
    """Returns the share of cells that are of a kind, and what the others hold."""
    what = _ARE.get(near.kind, "numbers")
    return f"{_share_in_words(near.share)} of its cells are {what}", _other_texts(near)


def _share_in_words(share: float) -> str:
    """Returns a share below 1: some cells are not, however few."""
    return share_text(min(round(share * 10**6), 10**6 - 1), 10**6)


def _other_texts(near: NearKind) -> str:
    """Returns the texts that keep a column from a kind, in quotes; not all, perhaps."""
    shown = first_few([repr(t) for t, _ in near.stops], len(near.stops))
    return shown if near.alone else f"{shown} and more"


def _null_values_advice(near: NearKind) -> str:
    """Returns advice on declaring such texts as missing, as a flag where it can be."""
    texts = [text for text, _ in near.stops]
    if not near.alone or any(map(str.isdigit, "".join(texts))):
        return "Texts that mean missing are named with --null-values"
    if any("," in text or not text.isprintable() for text in texts):
        return "If these mean missing, say null_values in a --spec"
    return f"If these mean missing, say --null-values {shlex.quote(','.join(texts))}"


def feature_evidence(
    feature: Feature,
    known: Mapping[str, tuple[Feature, Evidence]],
    sample: TableSample,
    origins: pa.Array,
    paths: Collection[str],
) -> Evidence:
    """Returns the evidence that a feature was inferred from, or for what is said."""
    column = feature.source_column
    of_paths = column in paths
    if column in known and not of_paths and _stored_alike(feature, known[column][0]):
        facts = known[column][1]
    else:
        facts = evidence_of(feature, sample.columns, origins, are_paths=of_paths)
    if feature.kind is Kind.LABEL and column in sample.columns:
        facts = with_classes(facts, sample.columns[column])
    return facts


def _stored_alike(one: Feature, other: Feature) -> bool:
    """Whether the evidence of one feature is that of another one, too."""
    fields = (
        *("kind", "shape", "unit", "dtype", "separator", "pattern", "vocabulary"),
        *("inexact_integers", "at_least", "at_most", "allowed", "matches"),
    )
    return all(getattr(one, name) == getattr(other, name) for name in fields)
