"""Pieces of program text that several programs have."""

import json
from collections.abc import Mapping, Sequence

WIDTH = 88
"""Characters of a line."""


def assigned(
    name: str, entries: Mapping[str, str], *, always_long: bool = False
) -> list[str]:
    """Returns the lines that define a dictionary, one line if they fit into it.

    >>> assigned("MISSING", {'"age"': "-1"})
    ['MISSING = {"age": -1}']
    """
    items = [f"{key}: {value}" for key, value in entries.items()]
    line = f"{name} = {{{', '.join(items)}}}"
    if len(line) <= WIDTH and not always_long:
        return [line]
    return [f"{name} = {{", *(f"    {item}," for item in items), "}"]


def assigned_list(name: str, texts: Sequence[str]) -> list[str]:
    """Returns the lines that define a list of texts, one line if they fit into it.

    >>> assigned_list("COLUMNS", ["image", "label"])
    ['COLUMNS = ["image", "label"]']
    """
    items = [literal(text) for text in texts]
    line = f"{name} = [{', '.join(items)}]"
    if len(line) <= WIDTH:
        return [line]
    return [f"{name} = [", *(f"    {item}," for item in items), "]"]


def literal(text: str) -> str:
    """Returns a text as a Python literal, with nothing in it that is not printable."""
    return json.dumps(text, ensure_ascii=not text.isprintable())


def decoding(image: str, *, channels_first: bool = False) -> str:
    """Returns a function that decodes the image of a row with Pillow; empty for none.

    Args:
      image: name of the feature.
      channels_first: whether its array has the shape [3, height, width].
    """
    if not image:
        return ""
    name = literal(image)
    pixels, order = "pixels", "channels last"
    if channels_first:
        pixels, order = "pixels.transpose(2, 0, 1)", "channels first"
    return f'''
def prepare(row):
    """Decodes the image of a row and resizes it: 0 to 1, {order}."""
    image = Image.open(io.BytesIO(row[{name}])).convert("RGB")
    pixels = np.asarray(image.resize((SIZE, SIZE)), np.float32) / 255
    return row | {{{name}: {pixels}}}

'''
