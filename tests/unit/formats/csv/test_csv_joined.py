"""Small files that are parsed as one text give what each gives by itself."""

import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.table_reading import listed
from transforms.core.reasons import Reason
from transforms.errors import InputError
from transforms.formats.csv.sample import CsvReader
from transforms.formats.file_runs import gathered
from transforms.formats.raw_rows import RawRows
from transforms.formats.table import InputFile, TableReader

NAMES = ("a", "b")
READER = CsvReader(names=NAMES, named_in="0.csv")
LARGE = 1 << 20

header = st.sampled_from(
    [b"a,b\n"] * 6 + [b"a,b\r\n", b"\xef\xbb\xbfa,b\n", b'"a",b\n', b"\na,b\n", b"a,b"]
)
record = st.sampled_from(
    [
        *(
            b"1,x",
            b"2,",
            b",",
            b"1",
            b"1,2,3",
            b"a,b",
            b"\x1a",
            b"",
            b"\xef\xbb\xbfa,b",
        ),
        *(b'"q""q",x', b'"l\nl",x', b'5" pipe,x', b'"open,x', b"\xc3\xa9,x", b"\xe9,x"),
    ]
)
body = st.lists(st.tuples(record, st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])))
contents = st.builds(
    lambda head, rows, ended: (
        head + b"".join(r + e for r, e in rows) + (b"" if ended else b"9,z")
    ),
    header,
    body,
    st.booleans(),
)


def written(folder: str, datas: Sequence[bytes]) -> list[InputFile]:
    """Returns files of these contents, as a listing has them."""
    names = [f"{number:03}.csv" for number in range(len(datas))]
    for name, data in zip(names, datas, strict=True):
        pathlib.Path(folder, name).write_bytes(data)
    return listed(folder, names)


def told(raws: Iterator[RawRows]) -> tuple[list[Any], list[Any], dict[str, int], str]:
    """Returns all that is said of rows: values, rejections of each, skipped, error."""
    rows: list[Any] = []
    rejections: list[Any] = []
    skipped: dict[str, int] = {}
    try:
        for raw in raws:
            assert raw.origins is not None or raw.positions is None
            origins = [raw.block.origin] * len(raw.numbers)
            if raw.origins is not None:
                origins = raw.origins.to_pylist()
            positions = raw.positions
            if positions is None:
                positions = raw.block.positions_of(raw.numbers)
            values = [raw.columns[name].to_pylist() for name in NAMES]
            rows += zip(
                origins, raw.numbers.tolist(), positions.tolist(), *values, strict=True
            )
            places = raw.numbers if raw.places is None else raw.places
            complaints = [(p, Reason.NOT_AN_INTEGER, "x") for p in places.tolist()]
            assert raw.reject is not None
            found = raw.reject(sorted([*complaints, *raw.refused]))
            rejections += [(each, each.raw) for each in found]
            for reason, count in raw.skipped.items():
                skipped[reason] = skipped.get(reason, 0) + count
    except InputError as error:
        return rows, rejections, skipped, str(error)
    return rows, rejections, skipped, ""


@given(datas=st.lists(contents, min_size=1, max_size=6))
@example([b"a,b\n1,x\n", b'a,b\n"q""q",x\n1\n', b"a,b\n", b"a,b\n\x1a", b"a,b\r\n2,"])
@example([b"a,b\n1,x\n", b"a,bc\n1,x\n"])
@example([b"a,b\n1,x\n", b"a,b\n\xe9,x\n", b"a,b\n2,y"])
@example([b'a,b\n"open,x\n', b'a,b\nclosed",y\n'])
def test_joined_files_give_what_each_gives(datas: list[bytes]) -> None:
    """Values, numbers, positions, rejections, skipped rows and errors are equal.

    So they are where rows of files that are read one by one are gathered.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = written(folder, datas)

        def one_by_one() -> Iterator[RawRows]:
            return TableReader.read_whole(READER, inputs, NAMES, block_bytes=LARGE)

        apart = told(one_by_one())
        joined = READER.read_whole(inputs, NAMES, block_bytes=LARGE)
        ways = [
            told(gathered(each, most_bytes=LARGE)) for each in (joined, one_by_one())
        ]
    for whole in ways:
        # Rows before the error may wait for others when it is raised.
        assert whole[-1] == apart[-1]
        assert apart[-1] or whole == apart


def test_what_joins(tmp_path: pathlib.Path) -> None:
    """Plain files are one text; those that may differ inside one are left out."""
    datas = [b"a,b\n1,x\n", b"\xef\xbb\xbfa,b\r\n2,y", b'a,b\n"3",z\n', b"a,b\n"]
    inputs = written(str(tmp_path), [*datas, b"a,b\n\n4,x\n", b"a,b\n5,x\n"])
    contents = map(READER._content, inputs)
    joined, *others = READER.runs_to_join(contents, LARGE)
    assert [(file.origin, *rest) for file, *rest in joined.parts] == [
        ("000.csv", 4, b"1,x\n"),
        ("001.csv", 8, b"2,y\n"),
        ("002.csv", 4, b'"3",z\n'),
    ]
    assert [run.parts[0][0] for run in others] == inputs[4:]
    assert all(len(run.parts) == 1 for run in others)


def test_a_changed_file_is_an_error(tmp_path: pathlib.Path) -> None:
    """A file that has changed since it was listed is named, whichever way it goes."""
    inputs = written(str(tmp_path), [b"a,b\n1,x\n"] * 3)
    (tmp_path / "001.csv").write_bytes(b"a,b\n1,xyz\n")
    with pytest.raises(InputError, match=r"001\.csv"):
        list(READER.read_whole(inputs, NAMES, block_bytes=LARGE))
