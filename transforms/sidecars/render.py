"""The files beside the shards, rendered from the manifest, but manifest and rejects.

A new kind of files is a module in this folder and its lines here. The code that
publishes, repairs or points to a dataset asks here, and names no file.
"""

from collections.abc import Mapping

from transforms.core.label_map import LABEL_MAP_NAME, render_label_map
from transforms.core.manifest import Manifest
from transforms.sidecars import tfds
from transforms.sidecars.tensorflow_metadata import SCHEMA_NAME, render_schema
from transforms.sidecars.tfds import Rendered


def render_sidecars(
    manifest: Manifest, label_map: Mapping[int, str] | None = None
) -> Rendered:
    """Returns the files beside the shards, by name, and their notes.

    Args:
      manifest: of the dataset; its `files` and `derived` are ignored.
      label_map: class id -> name, for `label_map.pbtxt`, which the Object Detection
        API reads; None or empty for none.
    """
    rendered = tfds.render(manifest)
    files = dict(rendered.files)
    if label_map:
        files[LABEL_MAP_NAME] = render_label_map(label_map)
    derived = {SCHEMA_NAME: render_schema(manifest)}
    return Rendered(dict(sorted(files.items())), rendered.notes, derived)
