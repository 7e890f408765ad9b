"""Names of columns that hold paths of images, by the conventions of the field."""

_IMAGE_COLUMNS = ("image", "file_name", "image_uri", "image_path", "filename", "path")
_IMAGE_ENDINGS = ("_file_name", "_image_uri", "_image_path", "_path", "_uri", "_image")
# Likewise of lists of them, file_names of Hugging Face among them.
LIST_COLUMNS = tuple(f"{name}s" for name in _IMAGE_COLUMNS)
_LIST_ENDINGS = tuple(f"{ending}s" for ending in _IMAGE_ENDINGS)
LIST_NAME = "images"


def is_named_like_images(name: str, *, is_list: bool) -> bool:
    """Whether a column has a name that columns of images have.

    >>> is_named_like_images("Left_Image_Path", is_list=False)
    True
    """
    known = LIST_COLUMNS if is_list else _IMAGE_COLUMNS
    endings = _LIST_ENDINGS if is_list else _IMAGE_ENDINGS
    return name.lower() in known or name.lower().endswith(endings)


def without_ending(name: str, *, is_list: bool) -> str:
    """Returns the name without what says that it is of images.

    >>> without_ending("left_image_path", is_list=False)
    'left'
    """
    endings = _LIST_ENDINGS if is_list else _IMAGE_ENDINGS
    ending = next((e for e in endings if name.endswith(e)), "")
    return name.removesuffix(ending) or name
