"""Planning a folder of images: its layout, its features, what its shards will hold."""

from beam_pipeline.sources import Inputs, PlannedSource, portions_of, rule_of
from beam_pipeline.spec import Spec
from transforms.core.placement import SplitRule, SplitSource, check_split_name
from transforms.core.schema import Kind
from transforms.errors import SpecError
from transforms.formats import images
from transforms.formats.images import ImageTree

__all__ = ["plan_images"]

# What the features of a record of an image take beside the image, about.
_IMAGE_OVERHEAD_BYTES = 160


def plan_images(spec: Spec, inputs: Inputs) -> PlannedSource:
    """Plans a folder of images.

    Raises:
      SourceError: its folders follow no rule.
      SpecError: a setting makes no sense for images.
    """
    for setting in (
        "split_column",
        "label_column",
        "delimiter",
        "header",
        "columns",
        "encoding",
    ):
        if getattr(spec, setting) != Spec.model_fields[setting].default:
            raise SpecError(f"{setting} is for tables; the source holds images.")
    names = dict(
        images.TUTORIAL_NAMES if spec.preset == "tutorial" else images.FEATURE_NAMES
    )
    if unknown := sorted(set(spec.feature_names) - set(images.FEATURE_NAMES)):
        raise SpecError(
            f"feature_names are given by role, as in image=image_raw; roles are "
            f"{', '.join(images.FEATURE_NAMES)}; found {unknown[0]!r}."
        )
    names = {k: v for k, v in (names | spec.feature_names).items() if v}
    schema = images.image_schema(names)
    listing = images.arrange(
        inputs.entries,
        inputs.skipped,
        root=inputs.root,
        limit=spec.limit,
        allow_empty=spec.allow_empty,
    )
    count = listing.table.num_rows
    found = dict(listing.splits) or {"": (count, listing.bytes)}
    if listing.splits and spec.splits:
        raise SpecError(
            f"--splits cannot be given where folders say the split; found "
            f"{', '.join(listing.splits)}."
        )
    if listing.splits:
        for name in listing.splits:
            check_split_name(name)
        rule = SplitRule(SplitSource.COLUMN, tuple(listing.splits))
        shares = {name: found[name] for name in listing.splits}
    else:
        rule = rule_of(spec)
        shares = {
            name: (round(count * share), round(listing.bytes * share))
            for name, share in portions_of(rule).items()
        }
    layout = "split/label/file" if listing.splits else "label/file"
    return PlannedSource(
        make=lambda path: ImageTree(inputs.root, path, schema, count),
        listing=listing.table,
        schema=schema,
        rule=rule,
        records={name: n for name, (n, _) in shares.items()},
        record_bytes={
            name: size + n * _IMAGE_OVERHEAD_BYTES for name, (n, size) in shares.items()
        },
        input_bytes={
            name: size if listing.splits else listing.bytes
            for name, (_, size) in shares.items()
        },
        classes={
            feature.name: listing.labels for feature in schema.of_kind(Kind.LABEL)
        },
        skipped=listing.skipped,
        expected_rows=count,
        rows_bytes=count * _IMAGE_OVERHEAD_BYTES,
        evidence={},
        layout=f"images as {layout}",
    )
