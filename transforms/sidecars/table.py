"""The sidecars of a dataset: all files beside the shards except manifest and rejects.

A new sidecar is one module in this folder and one line in `SIDECARS`. The code that
publishes, repairs or points to a dataset uses this table and names no sidecar.
"""

import itertools
from collections.abc import Mapping

from transforms.core.label_map import LABEL_MAP_NAME, render_label_map
from transforms.core.manifest import Manifest
from transforms.sidecars import tensorflow_metadata, tfds
from transforms.sidecars.sidecar import Rendered, Sidecar


def _label_map(_: Manifest, label_map: Mapping[int, str]) -> Rendered:
    """Renders `label_map.pbtxt`, which the Object Detection API reads."""
    if not label_map:
        return Rendered({})
    return Rendered({LABEL_MAP_NAME: render_label_map(label_map)})


SIDECARS: tuple[Sidecar, ...] = (
    tfds.SIDECAR,
    Sidecar(_label_map),
    tensorflow_metadata.SIDECAR,
)


def render_sidecars(
    manifest: Manifest, label_map: Mapping[int, str] | None = None
) -> Rendered:
    """Returns the files of all sidecars, by name, and their notes.

    Args:
      manifest: of the dataset; its `files` and `derived` are ignored.
      label_map: class id -> name; None or empty for none.

    Raises:
      ValueError: two sidecars write a file of the same name.
    """
    rendered = [sidecar.render(manifest, label_map or {}) for sidecar in SIDECARS]
    names = sorted(name for each in rendered for name in (*each.files, *each.derived))
    for name, other in itertools.pairwise(names):
        if name == other:
            raise ValueError(f"two sidecars write {name!r}; rename one")
    return Rendered(
        files=dict(sorted(item for each in rendered for item in each.files.items())),
        notes=tuple(note for each in rendered for note in each.notes),
        derived=dict(
            sorted(item for each in rendered for item in each.derived.items())
        ),
    )


def pointers_to(folder: str, manifest: Manifest) -> dict[str, bytes]:
    """Returns the files for a directory whose dataset is in a folder below it."""
    pointers: dict[str, bytes] = {}
    for sidecar in SIDECARS:
        if sidecar.point_to is not None:
            pointers |= sidecar.point_to(folder, manifest)
    return pointers
