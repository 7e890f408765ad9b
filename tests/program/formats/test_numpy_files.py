"""NumPy files: numpy.load of the whole file is the oracle."""

import io
import pathlib
import pickle
import struct
import zipfile
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from tests.support.outputs import dataset, flip
from tests.support.runs import convert, refused
from tests.support.table_reading import listed, read_all
from transforms.errors import SourceError
from transforms.formats.columnar import numpy_files
from transforms.formats.columnar.numpy_files import NumpyReader

RNG = np.random.default_rng(7)
ARRAYS = {
    "i8": np.arange(-50, 50, dtype=np.int8),
    "u64": np.full(100, 2**64 - 1, np.uint64),
    "big": np.arange(100, dtype=">i4") * 1_000_003,
    "f16": np.linspace(0, 1, 100).astype(np.float16),
    "f64": RNG.normal(size=100),
    "b": np.arange(100) % 3 == 0,
    "s": np.array([b"x%d" % i for i in range(100)]),
    "t": np.array([f"é{i}" for i in range(100)]),
    "when": np.arange(100).astype("M8[ms]"),
    "day": np.arange(100).astype("M8[D]"),
    "row": RNG.integers(0, 256, (100, 4), np.uint8),
    "image": RNG.integers(0, 256, (100, 2, 3, 1), np.uint8),
    "fortran": np.asfortranarray(RNG.normal(size=(100, 3, 2))),
}


def plain(values: npt.NDArray[Any]) -> list[Any]:
    """An array as the nested lists of Python values that Arrow gives."""
    return pa.array([None] * 0) if values is None else values.tolist()


@pytest.mark.parametrize("block_bytes", [1, 1000, 1 << 20])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_are_those_that_numpy_loads(
    tmp_path: pathlib.Path, save: Any, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain members by ranges, compressed ones in pieces: every dtype and order."""
    monkeypatch.setattr(numpy_files, "PIECE_BYTES", 5000)
    save(tmp_path / "a.npz", **ARRAYS)
    read = read_all(NumpyReader(), tmp_path, ["a.npz"], block_bytes=block_bytes)
    with np.load(tmp_path / "a.npz") as loaded:
        for name in ARRAYS:
            assert read.columns[name] == plain(loaded[name]), name
    if save is np.savez_compressed:
        assert len(read.blocks) == 1
    else:
        assert len(read.blocks) == {1: 100, 1000: 50, 1 << 20: 1}[block_bytes] or (
            block_bytes == 1000
        )
    assert len(read.pieces) > 1
    assert read.sample.total_rows == 100
    assert read.sample.complete
    assert str(read.sample.columns["image"].type).count("fixed_size_list") == 3


@pytest.mark.parametrize("name", [*ARRAYS])
def test_single_arrays(tmp_path: pathlib.Path, name: str) -> None:
    """An .npy file is the column "value"."""
    np.save(tmp_path / "a.npy", ARRAYS[name])
    read = read_all(NumpyReader(), tmp_path, ["a.npy"], block_bytes=64)
    assert read.columns == {"value": plain(np.load(tmp_path / "a.npy"))}


def test_named_fields_are_columns(tmp_path: pathlib.Path) -> None:
    """A structured dtype gives a column for each field; names may be any text."""
    dtype = [("x", "<f4"), ("이름", "<U4"), ("v", "<i2", (2,))]
    array = np.array([(0.5, "고양이", (1, 2)), (1.5, "", (3, 4))], dtype)
    with pytest.warns(UserWarning, match=r"format 3\.0"):
        np.save(tmp_path / "a.npy", array)
    read = read_all(NumpyReader(), tmp_path, ["a.npy"], block_bytes=1)
    assert read.columns == {
        "x": [0.5, 1.5],
        "이름": ["고양이", ""],
        "v": [[1, 2], [3, 4]],
    }


class Bomb:
    """Runs code when it is loaded from a pickle."""

    def __reduce__(self) -> Any:
        return (pathlib.Path.touch, (pathlib.Path("exploded"),))


def test_fault_133_object_arrays_are_never_loaded(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pickle inside .npy or .npz is an error, and its code does not run."""
    monkeypatch.chdir(tmp_path)
    array = np.array([Bomb(), None], object)
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    np.savez(tmp_path / "b.npz", good=np.arange(2), bad=array, allow_pickle=True)
    for name in ("a.npy", "b.npz"):
        with pytest.raises(SourceError, match="dtype object"):
            NumpyReader().plan(listed(tmp_path, [name]))
    (tmp_path / "c.npy").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(SourceError, match=r"c\.npy cannot be read as NumPy"):
        NumpyReader().plan(listed(tmp_path, ["c.npy"]))
    assert not (tmp_path / "exploded").exists()


def saved(array: npt.NDArray[Any] | np.float64) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def with_header(header: bytes) -> bytes:
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "cannot be read as NumPy"),
        (b"id,x\n1,2\n", "cannot be read as NumPy"),
        (saved(np.arange(9))[:-1], r"takes 200 bytes with its header; found 199"),
        (saved(np.arange(9)) + b"\0", r"takes 200 bytes with its header; found 201"),
        (saved(np.arange(9))[:40], "cannot be read as NumPy"),
        (saved(np.arange(9)).replace(b"(9,)", b"(-9,)"), "found|cannot"),
        (saved(np.arange(9)).replace(b"<i8", b"<i0"), "found|cannot"),
        (saved(np.float64(3)), "must have a first dimension"),
        (saved(np.arange(3) * 1j), "dtype complex128"),
        (saved(np.arange(3).astype("m8[s]")), "dtype timedelta64"),
        (with_header(b"'" + b"\\'" * 1_000), r"a\.npy cannot be read as NumPy"),
        (with_header(b"-" * 9_000), r"a\.npy cannot be read as NumPy"),
    ],
)
def test_fault_133_damage_is_an_error(
    tmp_path: pathlib.Path, data: bytes, match: str
) -> None:
    """Wrong magic, a count that is not the size, dtypes that no feature holds.

    A header that is no literal takes no hours, and no more memory than Python's parser.
    """
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.raises(SourceError, match=match):
        read_all(NumpyReader(), tmp_path, ["a.npy"])


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_fault_133_a_flipped_bit_in_an_npz_is_an_error(
    tmp_path: pathlib.Path, compression: int
) -> None:
    """The zip's checksum is compared, also where members are read by ranges."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w", compression) as archive:
        archive.writestr("x.npy", saved(np.arange(10_000)))
    flip(tmp_path / "a.npz", (tmp_path / "a.npz").stat().st_size // 2)
    with pytest.raises(SourceError, match=r"a\.npz cannot be read"):
        read_all(NumpyReader(), tmp_path, ["a.npz"])


def test_unequal_first_dimensions_are_an_error(tmp_path: pathlib.Path) -> None:
    """It names the arrays; those that go together can be read by name."""
    np.savez(
        tmp_path / "a.npz",
        w=np.arange(2),
        x=np.arange(3),
        y=np.arange(3),
        z=np.arange(4),
    )
    with pytest.raises(SourceError, match=r"found 'w' 2, 'x' 3, .* --columns x,y\."):
        NumpyReader().plan(listed(tmp_path, ["a.npz"]))
    read = read_all(NumpyReader(columns=("x", "y")), tmp_path, ["a.npz"])
    assert read.columns == {"x": [0, 1, 2], "y": [0, 1, 2]}
    run = convert(tmp_path / "a.npz", tmp_path / "out", "--columns", "x,y")
    assert "3" in run.out
    features = [each["name"] for each in dataset(tmp_path / "out")["features"]]
    assert features == ["x", "y"]
    np.savez(tmp_path / "b.npz", x=np.arange(3), one=np.float64(1))
    with pytest.raises(SourceError, match="name the arrays to read with --columns"):
        NumpyReader().plan(listed(tmp_path, ["b.npz"]))
    np.save(tmp_path / "c.npy", np.arange(3))
    message = refused(4, tmp_path / "c.npy", tmp_path / "no", "--columns", "x")
    assert "--columns is for the arrays of an .npz" in message


@pytest.mark.parametrize("version", [1, 2])
def test_long_integers_of_python_2_are_read(
    tmp_path: pathlib.Path, version: int
) -> None:
    """Its NumPy wrote the shape (3L,), and names of fields that look like that."""
    header = b"{'descr': [('3L', '<i8', (2L,)), (\"it's 4L\", '<i4')], "
    header += b"'fortran_order': False, 'shape': (3L,), }\n"
    size = len(header).to_bytes(2 if version == 1 else 4, "little")
    values = b"".join(
        struct.pack("<qqi", 2 * row, 2 * row + 1, -row) for row in range(3)
    )
    data = b"\x93NUMPY" + bytes([version, 0]) + size + header + values
    (tmp_path / "a.npy").write_bytes(data)
    with pytest.warns(UserWarning, match="Python 2"):
        read = read_all(NumpyReader(), tmp_path, ["a.npy"])
    assert read.columns == {"3L": [[0, 1], [2, 3], [4, 5]], "it's 4L": [0, -1, -2]}
