"""Where TFDS looks for a dataset: in `DATA_DIR/NAME/VERSION`.

Source: `naming.py` and `read_only_builder.py` of TFDS 4.9.10.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from transforms.errors import SpecError

__all__ = ["VERSION", "load_call", "settle_output"]

VERSION = "1.0.0"
_NAME = re.compile(r"[a-zA-Z]\w*")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def settle_output(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings with `output` and `name` in place of `tfds_dir`.

    A name that is not given is the source's base name, up to its first dot.

        >>> settle_output({"source": "a/my-cats.zip", "tfds_dir": "data"})["output"]
        'data/my_cats/1.0.0'

    Raises:
      SpecError: `output` is given too, or TFDS cannot load the name.
    """
    out = dict(settings)
    root = out.pop("tfds_dir", None)
    if root is None:
        return out
    if not isinstance(root, str | os.PathLike):
        raise SpecError(f"tfds_dir must be a folder; found {root!r:.80}.")
    if out.get("output"):
        raise SpecError(
            "output and tfds_dir exclude each other: tfds_dir ROOT means the output "
            f"ROOT/NAME/{VERSION}. Leave one out."
        )
    name = str(out.get("name") or _source_name(str(out.get("source", ""))))
    if not _NAME.fullmatch(name):
        raise SpecError(
            f"tfds_dir needs a name that tfds.load takes, which begins with a letter "
            f"from A to Z and goes on with letters, digits and _; found {name!r}. Give "
            f"another --name."
        )
    return out | {"output": os.path.join(root, name, VERSION), "name": name}


def load_call(output: str) -> str:
    """Returns the program text that opens an output with TFDS.

    >>> load_call("data/photos/1.0.0")
    "tfds.load('photos', data_dir='data')"
    >>> load_call("out/photos")
    "tfds.builder_from_directory('out/photos')"
    """
    parent, version = os.path.split(output.rstrip("/"))
    root, name = os.path.split(parent)
    if _VERSION.fullmatch(version) and _NAME.fullmatch(name):
        return f"tfds.load({name!r}, data_dir={root or '.'!r})"
    return f"tfds.builder_from_directory({output!r})"


def _source_name(source: str) -> str:
    path = source.rstrip("/")
    if any(character in os.path.basename(path) for character in "*?["):
        path = os.path.dirname(path)
    base = os.path.basename(os.path.abspath(path)).split(".")[0]
    return re.sub(r"\W+", "_", base).strip("_")
