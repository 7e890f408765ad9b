"""The sidecar `label_map.pbtxt`, which the Object Detection API reads."""

from collections.abc import Mapping

from transforms.core.label_map import LABEL_MAP_NAME, render_label_map
from transforms.core.manifest import Manifest
from transforms.sidecars.sidecar import Rendered, Sidecar

__all__ = ["SIDECAR"]


def _render(_: Manifest, label_map: Mapping[int, str]) -> Rendered:
    if not label_map:
        return Rendered({})
    return Rendered({LABEL_MAP_NAME: render_label_map(label_map)})


SIDECAR = Sidecar(_render)
