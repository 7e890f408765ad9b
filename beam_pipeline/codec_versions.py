"""The libraries that decide the bytes of what is encoded anew.

An image that is resized, turned or converted is another file under another version of
them, and so is a compressed shard under another deflate.
"""

import zlib

__all__ = ["codec_versions"]


def codec_versions() -> dict[str, str]:
    """Returns library -> its version, of those that are there."""
    from PIL import __version__ as pillow
    from PIL import features

    found = {
        "pillow": pillow,
        "libjpeg-turbo": features.version_feature("libjpeg_turbo"),
        # Of PNG files, which Pillow deflates by its own library.
        "zlib-of-pillow": features.version_codec("zlib"),
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
    }
    return {name: str(version) for name, version in found.items() if version}
