"""The version of the distribution, and the versions that decide bytes.

An image that is resized, turned or converted is another file under another version of
its decoder or encoder, and so is a compressed shard under another deflate. Work that
an earlier run left is taken over only under the same versions.
"""

import functools

__version__ = "0.3.0"

# Of PIL.features: what Pillow calls a library, and what it is called here.
_CODECS = {
    "zlib": "zlib-of-pillow",  # its PNG files; it may have a library of its own
    "jpg_2000": "openjpeg",
    "libtiff": "libtiff",
}
_MODULES = {"webp": "libwebp", "avif": "libavif"}
_PACKAGES = {"pyarrow": "pyarrow", "Pillow": "pillow", "pillow-heif": "pillow-heif"}


@functools.cache
def deciding_versions(
    *, images: bool = True, compressed: bool = True
) -> dict[str, str]:
    """Returns name -> version, of those that are there.

    Machines of others have another zlib, say, than this one; a job of plain rows need
    not be refused for that.

    Args:
      images: whether there are images, whose codecs decide bytes, and zlib with them.
      compressed: whether shards are compressed.
    """
    import importlib.metadata
    import zlib

    from PIL import features

    versions: dict[str, object] = {"beam-tfrecord": __version__}
    for package, name in _PACKAGES.items():
        try:
            versions[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    versions["libjpeg-turbo"] = features.version_feature("libjpeg_turbo")
    versions |= {name: features.version_codec(key) for key, name in _CODECS.items()}
    versions |= {name: features.version_module(key) for key, name in _MODULES.items()}
    versions["zlib"] = zlib.ZLIB_RUNTIME_VERSION
    of_rows = {"beam-tfrecord", "pyarrow", *(("zlib",) if compressed else ())}
    return {
        name: str(version)
        for name, version in versions.items()
        if version and (images or name in of_rows)
    }
