"""Two small sources, and the digests of all files that they are converted to."""

import hashlib
import pathlib
import struct

from tests.support.outputs import contents, dataset
from tests.support.sources import write_csv, write_files

Folder = pathlib.Path


def bmp(width: int, height: int, seed: int) -> bytes:
    """Returns a 24-bit BMP of pixels from a formula; no encoder has a part in it."""
    rows = b"".join(
        b"".join(
            bytes([(x * 37 + seed) % 256, (y * 59 + seed) % 256, (x * y + seed) % 256])
            for x in range(width)
        )
        + bytes(-3 * width % 4)
        for y in range(height)
    )
    info = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, 24, 0, len(rows), 0, 0, 0, 0
    )
    return struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54) + info + rows


def pets(folder: Folder) -> Folder:
    """Writes 30 images of two labels in two splits, one of them no image."""
    files = {
        f"{split}/{label}/{number}.bmp": bmp(3 + number, 5, 40 * len(label) + number)
        for split, count in (("train", 10), ("test", 5))
        for label in ("cat", "고양이")
        for number in range(count)
    }
    return write_files(folder, {**files, "train/cat/bad.bmp": b"BM"})


def measures(path: Folder) -> Folder:
    """Writes a table of five kinds with missing cells and a bad row."""
    lines = [
        ",".join(
            (
                str(number * 7919 - 3_000_000) if number % 10 else "",
                f"{number / 8}" if number % 7 else "NA",
                "true" if number % 3 else "false",
                f'"name, {number % 11}"' if number % 13 else "",
                "abc"[number % 3],
            )
        )
        for number in range(1000)
    ]
    return write_csv(path, "i,f,b,t,c", [*lines[:500], "1,2", *lines[500:]])


PETS_OPTIONS = ("--name", "pets", "--shards", 2, "--seed", 3, "--max-reject-rate", 0.1)


MEASURES_OPTIONS = (
    *("--name", "measures", "--splits", "train=0.7,test=0.3", "--shards", 2),
    *("--label-column", "c"),
)


# sha256 of every file of two small datasets. A change here is a change of the output
# format: every dataset ever written would have other bytes. Recipe: `pets`
# and `measures` above, with the options above.
GOLDEN_PETS = {
    "dataset_info.json": "e326ad61a6be140a",
    "features.json": "3468b56c0808f451",
    "index/pets-test.tfrecord-00000-of-00002.idx": "12bfe19919db86c9",
    "index/pets-test.tfrecord-00000-of-00002.u64": "3d29d8a1009bf603",
    "index/pets-test.tfrecord-00001-of-00002.idx": "a001eeacf19fc72a",
    "index/pets-test.tfrecord-00001-of-00002.u64": "e72ede7f7d89c410",
    "index/pets-train.tfrecord-00000-of-00002.idx": "f6549bd6ccbb1a6d",
    "index/pets-train.tfrecord-00000-of-00002.u64": "258daf513af2b7cc",
    "index/pets-train.tfrecord-00001-of-00002.idx": "86cb58fa2fa161db",
    "index/pets-train.tfrecord-00001-of-00002.u64": "0a057e72a2d6ebe8",
    "label.labels.txt": "374b06239af64552",
    "manifest.json": "725cf07b064f788f",
    "pets-test.tfrecord-00000-of-00002": "ccbc901bc7624922",
    "pets-test.tfrecord-00001-of-00002": "e04ee6a24ada85b4",
    "pets-train.tfrecord-00000-of-00002": "e34cf6327b597010",
    "pets-train.tfrecord-00001-of-00002": "47a21416ed4d017c",
    "rejects.jsonl": "429fb1d236ec61fb",
    "schema.pbtxt": "734b80581de5cd20",
}


GOLDEN_MEASURES = {
    "c.labels.txt": "880553fca8fcea94",
    "dataset_info.json": "a8653b4cdff971ef",
    "features.json": "ffdfc70a23e54ea9",
    "index/measures-test.tfrecord-00000-of-00002.u64": "8c42bea11afb10d4",
    "index/measures-test.tfrecord-00001-of-00002.u64": "1a8fa56a0047aa2d",
    "index/measures-train.tfrecord-00000-of-00002.u64": "f2b041b4ecbf19c3",
    "index/measures-train.tfrecord-00001-of-00002.u64": "a7960b48ddcba2ca",
    "manifest.json": "f9068a91d6b6ed19",
    "measures-test.tfrecord-00000-of-00002": "0feaf1351ebcf952",
    "measures-test.tfrecord-00001-of-00002": "ba2336f6cfe4d737",
    "measures-train.tfrecord-00000-of-00002": "7a145860988e928a",
    "measures-train.tfrecord-00001-of-00002": "020fa739fc2a3227",
    "rejects.jsonl": "8bb0c17ae91d890e",
    "schema.pbtxt": "38a959b5a9613b03",
}


def digests(directory: Folder) -> dict[str, str]:
    """Returns the digest of every file; of the manifest, of its dataset part.

    Not of the catalogue: its files state the version of Arrow that wrote them.
    """
    found = {
        name: hashlib.sha256(data).hexdigest()[:16]
        for name, data in contents(directory).items()
        if not name.startswith("catalogue/")
    }
    return {**found, "manifest.json": dataset(directory)["digest"][:16]}
