"""Bad input, from the command line: a reject with its reason, or one clear error.

Rows are those of a catalogue of faults that are known in this field.
"""

import io
import os
import pathlib
import struct
import unicodedata
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from tests.support.image_sources import FRAMES, picture
from tests.support.outputs import EMPTY_SHA256, account, dataset, names, rejects, rows
from tests.support.runs import command, convert, process, refused
from tests.support.sources import write_csv, write_files
from transforms.errors import MAX_MESSAGE_BYTES

# The stages' own code: what is tested here is not up to Beam.
pytestmark = pytest.mark.usefixtures("without_runner")

Folder = pathlib.Path


def png_chunk(kind: bytes, data: bytes) -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png_of(width: int, height: int) -> bytes:
    """Returns a tiny PNG whose header says this size."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + png_chunk(b"IDAT", zlib.compress(bytes(100)))
        + png_chunk(b"IEND", b"")
    )


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


JPEG, PNG, BMP = picture("JPEG"), picture("PNG"), picture("BMP")

REFUSED_IMAGES = {
    "empty (71)": (b"", "empty_file"),
    "HTML (71)": (b"<!DOCTYPE html><title>404</title>", "not_an_image"),
    "text": (b"this is a note\n", "not_an_image"),
    "JPEG cut in half (73)": (JPEG[: len(JPEG) // 2], "damaged_image"),
    "JPEG without its end (73)": (JPEG[:-2], "damaged_image"),
    "PNG cut in half (74)": (PNG[: len(PNG) // 2], "damaged_image"),
    "PNG without IEND (74)": (PNG[:-12], "damaged_image"),
    "PNG with a wrong checksum (75)": (flipped(PNG, len(PNG) - 20), "damaged_image"),
    "BMP cut in half": (BMP[: len(BMP) // 2], "damaged_image"),
    "PNG of 60000 x 60000 (76)": (png_of(60_000, 60_000), "too_many_pixels"),
    "PNG of 144 megapixels (77)": (png_of(12_000, 12_000), "too_many_pixels"),
    "PNG of 0 x 0 (87)": (png_of(0, 0), "damaged_image"),
    "animated GIF (83)": (
        picture("GIF", save_all=True, append_images=FRAMES),
        "animated_image",
    ),
    "empty WebP (83)": (b"RIFF\x1a\0\0\0WEBPVP8L\x0d\0\0\0/\0\0\0", "damaged_image"),
    "EPS (85)": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "unsupported_format"),
    "JPEG after a byte of junk (86)": (b"x" + JPEG, "not_an_image"),
}
# TensorFlow reads no such file as one image.
FOREIGN_IMAGES = {
    "GIF (83)": picture("GIF"),
    "WebP (83)": picture("WEBP", lossless=True),
    "TIFF (84)": picture("TIFF"),
    "PPM (84)": picture("PPM"),
}
ACCEPTED_IMAGES = {
    "PNG named .jpg (72)": PNG,
    "BMP named .jpg (72)": BMP,
    "JPEG with garbage after it (86)": JPEG + b"PK\x05\x06" + bytes(18),
    "1 x 1 (87)": picture("PNG", (1, 1)),
    "progressive JPEG (89)": picture("JPEG", (64, 64), progressive=True),
}


class TestImages:
    @pytest.mark.parametrize("case", REFUSED_IMAGES)
    def test_bad_image_is_a_reject(self, case: str, tmp_path: Folder) -> None:
        """One bad file among good ones is rejected with its reason; they stay."""
        data, reason = REFUSED_IMAGES[case]
        good = {f"a/{number}.jpg": JPEG for number in range(9)}
        source = write_files(tmp_path / "tree", {**good, "b/bad.jpg": data})
        run = convert(source, tmp_path / "out", "--max-reject-rate", 0.1)
        (found,) = rejects(tmp_path / "out")
        assert (found["source"], found["reason"]) == ("b/bad.jpg", reason)
        assert (found["row"], found["line"]) == (None, None)
        assert 0 < len(found["message"].encode()) <= MAX_MESSAGE_BYTES
        assert len(rows(tmp_path / "out")) == 9
        assert "Traceback" not in run.err

    @pytest.mark.parametrize("case", FOREIGN_IMAGES)
    def test_foreign_image_becomes_png(self, case: str, tmp_path: Folder) -> None:
        """What TensorFlow cannot read is stored as PNG, or rejected where asked."""
        data = FOREIGN_IMAGES[case]
        good = {f"a/{number}.jpg": JPEG for number in range(9)}
        source = write_files(tmp_path / "tree", {**good, "b/odd.jpg": data})
        run = convert(source, tmp_path / "out")
        assert "reencoded 1" in run.out
        (row,) = [r for r in rows(tmp_path / "out") if r["filename"] == b"b/odd.jpg"]
        found, wanted = (Image.open(io.BytesIO(x)) for x in (row["image"], data))
        assert found.format == "PNG"
        assert found.convert("RGB").tobytes() == wanted.convert("RGB").tobytes()
        strict = ("--foreign-images", "reject", "--max-reject-rate", 0.1)
        convert(source, tmp_path / "strict", *strict)
        (reject,) = rejects(tmp_path / "strict")
        assert reject["source"] == "b/odd.jpg"
        assert reject["reason"] == "unsupported_format"

    @pytest.mark.parametrize("case", ACCEPTED_IMAGES)
    def test_odd_image_is_stored_as_it_is(self, case: str, tmp_path: Folder) -> None:
        """What TensorFlow reads is kept, whatever the file is called."""
        data = ACCEPTED_IMAGES[case]
        source = write_files(tmp_path / "tree", {"a/odd.jpg": data})
        convert(source, tmp_path / "out")
        (row,) = rows(tmp_path / "out")
        assert row["image"] == data

    def test_links_to_nothing_and_to_themselves_are_rejects(
        self, tmp_path: Folder
    ) -> None:
        """A link that leads nowhere loses one image, not the run (row 124)."""
        source = write_files(tmp_path / "tree", {"a/good.jpg": JPEG})
        (source / "a" / "dangling.jpg").symlink_to("nothing")
        (source / "a" / "self.jpg").symlink_to("self.jpg")
        convert(source, tmp_path / "out", "--max-reject-rate", 0.7)
        assert [(r["source"], r["reason"]) for r in rejects(tmp_path / "out")] == [
            ("a/dangling.jpg", "unreadable"),
            ("a/self.jpg", "unreadable"),
        ]

    def test_a_link_to_a_folder_above_ends(self, tmp_path: Folder) -> None:
        """A loop of folders is followed once and loses no image (row 124)."""
        source = write_files(tmp_path / "tree", {"a/good.jpg": JPEG})
        (source / "a" / "loop").symlink_to("..")
        convert(source, tmp_path / "out")
        assert [row["filename"] for row in rows(tmp_path / "out")] == [b"a/good.jpg"]

    def test_a_pipe_named_like_an_image_does_not_hang(self, tmp_path: Folder) -> None:
        """What is no regular file is a reject at once (rows 68, 116)."""
        source = write_files(tmp_path / "tree", {"a/good.jpg": JPEG})
        os.mkfifo(source / "a" / "pipe.jpg")
        out = tmp_path / "out"
        options = ("--max-reject-rate", 0.5)
        run = process("convert", source, out, *options, timeout=15)
        assert run.returncode == 0, run.stderr
        assert [r["source"] for r in rejects(out)] == ["a/pipe.jpg"]

    def test_an_unreadable_image_is_a_reject(
        self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that the system will not open is rejected, without a digest."""
        source = write_files(tmp_path / "tree", {"a/1.jpg": JPEG, "a/2.jpg": JPEG})
        opened = os.open

        def denied(path: Any, *arguments: Any, **named: Any) -> int:
            if str(path).endswith("2.jpg"):
                raise PermissionError(13, "Permission denied", path)
            return opened(path, *arguments, **named)

        monkeypatch.setattr(os, "open", denied)
        convert(source, tmp_path / "out", "--max-reject-rate", 0.5)
        (found,) = rejects(tmp_path / "out")
        assert found["reason"] == "unreadable"
        assert "Permission denied" in found["message"]
        assert found["sha256"] is None

    def test_litter_of_other_systems_is_skipped_and_counted(
        self, tmp_path: Folder
    ) -> None:
        """.DS_Store, Thumbs.db and AppleDouble files are no images (row 90)."""
        litter = (".DS_Store", "a/Thumbs.db", "a/._1.jpg", "__MACOSX/._x.jpg")
        source = write_files(
            tmp_path / "tree", {"a/1.jpg": JPEG, **dict.fromkeys(litter, b"\0\5\x16\7")}
        )
        convert(source, tmp_path / "out")
        assert account(tmp_path / "out")["skipped"] == {"hidden": 4}
        assert len(rows(tmp_path / "out")) == 1


class TestChangedDuringTheRun:
    def run(self, source: Folder, out: Folder, change: Callable[[], object]) -> None:
        """Plans a job, changes its source, and then runs the plan."""
        from beam_pipeline.planning.plan import make_plan
        from beam_pipeline.running.convert import convert_plan
        from beam_pipeline.settings.spec import make_spec

        settings = {"source": str(source), "output": str(out), "max_reject_rate": 0.5}
        plan = make_plan(make_spec(settings))
        change()
        convert_plan(plan)

    @pytest.mark.parametrize("change", ["gone", "shorter", "other"])
    def test_an_image_is_a_reject(self, change: str, tmp_path: Folder) -> None:
        """What is not the file that was listed is no record of it (row 125)."""
        source = write_files(tmp_path / "tree", {"a/1.jpg": JPEG, "a/2.jpg": JPEG})
        path = source / "a" / "2.jpg"
        changes: dict[str, Callable[[], object]] = {
            "gone": path.unlink,
            "shorter": lambda: path.write_bytes(b""),
            "other": lambda: path.write_bytes(PNG),
        }
        self.run(source, tmp_path / "out", changes[change])
        (found,) = rejects(tmp_path / "out")
        assert (found["source"], found["reason"]) == ("a/2.jpg", "changed_during_run")

    @pytest.mark.parametrize("change", ["gone", "shorter", "longer"])
    def test_a_table_is_an_error(self, change: str, tmp_path: Folder) -> None:
        """Rows that were added or removed are not ignored silently (row 67)."""
        from transforms.errors import BeamTFRecordError

        source = write_csv(tmp_path / "t.csv", "n", range(100))
        data = source.read_bytes()
        changes: dict[str, Callable[[], object]] = {
            "gone": source.unlink,
            "shorter": lambda: source.write_bytes(data[:150]),
            "longer": lambda: source.write_bytes(data + b"1000\n"),
        }
        with pytest.raises(BeamTFRecordError, match=r"t\.csv"):
            self.run(source, tmp_path / "out", changes[change])
        assert not (tmp_path / "out").exists()


class TestTrees:
    def refused(self, tmp_path: Folder, *files: str) -> str:
        source = write_files(tmp_path / "tree", dict.fromkeys(files, JPEG))
        message = refused(4, source, tmp_path / "out")
        assert names(tmp_path) == ["tree"]
        return message

    def test_no_folder_is_no_label(self, tmp_path: Folder) -> None:
        """Images outside a folder have no label: exit code 4, shown."""
        assert "x.jpg" in self.refused(tmp_path, "x.jpg")

    def test_a_stray_image_is_shown(self, tmp_path: Folder) -> None:
        """One image beside the label folders is named, not guessed about."""
        assert "stray.jpg" in self.refused(tmp_path, "a/1.jpg", "b/2.jpg", "stray.jpg")

    def test_too_deep_is_shown(self, tmp_path: Folder) -> None:
        """Without a split, three levels have no rule."""
        message = self.refused(tmp_path, "a/x/1.jpg", "b/y/2.jpg")
        assert "a/x/1.jpg" in message

    def test_one_odd_name_beside_splits_is_shown(self, tmp_path: Folder) -> None:
        """`extra` beside `train` makes all of them labels, too deep ones."""
        message = self.refused(tmp_path, "train/a/1.jpg", "extra/a/1.jpg")
        assert "extra/a/1.jpg" in message

    def test_splits_without_labels_are_shown(self, tmp_path: Folder) -> None:
        """`train/file` and `test/file` say no label."""
        assert "train/1.jpg" in self.refused(tmp_path, "train/1.jpg", "test/2.jpg")

    def test_names_equal_in_nfc_are_refused(self, tmp_path: Folder) -> None:
        """Two names that some systems take for one are both named (row 126)."""
        name = "a/고양이.jpg"
        twins = [unicodedata.normalize("NFC", name), unicodedata.normalize("NFD", name)]
        self.refused(tmp_path, *twins)

    def test_labels_equal_in_nfc_are_one_class(self, tmp_path: Folder) -> None:
        """A folder in NFD is the class of the same name in NFC (row 126)."""
        label = "고양이"
        files = {
            f"train/{unicodedata.normalize('NFD', label)}/1.jpg": JPEG,
            f"test/{unicodedata.normalize('NFC', label)}/1.jpg": JPEG,
        }
        convert(write_files(tmp_path / "tree", files), tmp_path / "out")
        text = (tmp_path / "out" / "label.labels.txt").read_text(encoding="utf-8")
        assert text == f"{label}\n"
        assert [row["label"] for row in rows(tmp_path / "out")] == [0, 0]

    def test_a_name_that_is_not_utf8_is_shown(self, tmp_path: Folder) -> None:
        """Bytes that are no text are escaped in the message (row 124)."""
        source = write_files(tmp_path / "tree", {"a/1.jpg": JPEG})
        (source / "a" / os.fsdecode(b"bad\xff.jpg")).write_bytes(JPEG)
        assert r"bad\xff.jpg" in refused(4, source, tmp_path / "out")

    def test_a_source_whose_own_name_is_not_utf8(self, tmp_path: Folder) -> None:
        """It works, or is exit code 4 before the work (row 124)."""
        source = tmp_path / os.fsdecode(b"bad\xff")
        write_files(source, {"a/1.jpg": JPEG})
        run = command("convert", source, tmp_path / "out")
        assert run.code in (0, 4), run.err

    def test_an_unreadable_folder_is_an_error(
        self, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its contents cannot be counted, so nothing is converted."""
        source = write_files(tmp_path / "tree", {"a/1.jpg": JPEG, "b/2.jpg": JPEG})
        scandir = os.scandir

        def denied(path: str) -> object:
            if str(path).endswith("b"):
                raise PermissionError(13, "Permission denied", path)
            return scandir(path)

        monkeypatch.setattr(os, "scandir", denied)
        assert str(source / "b") in refused(4, source, tmp_path / "out")

    @pytest.mark.parametrize("label", ["all", "no label", "a=b", "ünï", "-x", "\x07"])
    def test_odd_labels_are_kept(self, label: str, tmp_path: Folder) -> None:
        """A label may be any name of a folder, even that of no split."""
        source = write_files(tmp_path / "tree", {f"{label}/1.jpg": JPEG})
        convert(source, tmp_path / "out")
        assert dataset(tmp_path / "out")["splits"][0]["classes"] == {
            "label": {label: 1}
        }


def with_row(row: str) -> bytes:
    """Returns a table of four kinds, of 300 good rows and one more."""
    good = "".join(f"{n},w{n},{n}.5,true\n" for n in range(300))
    return f"i,t,f,b\n{good}{row}\n".encode()


REFUSED_ROWS = {
    "too few fields (97)": ("1,a,1.5", "field_count"),
    "too many fields (97)": ("1,a,1.5,true,x", "field_count"),
    "one field": ("x", "field_count"),
    "word for an integer": ("one,a,1.5,true", "not_an_integer"),
    "hexadecimal (108)": ("0x10,a,1.5,true", "not_an_integer"),
    "underscore (108)": ("1_000,a,1.5,true", "not_an_integer"),
    "word for a float": ("1,a,large,true", "not_a_number"),
    "decimal comma (108)": ('1,a,"1,5",true', "not_a_number"),
    "thousands (108)": ('1,a,"1,000.5",true', "not_a_number"),
    "empty quoted number": ('1,a,"",true', "not_a_number"),
    "beyond float32 (107)": ("1,a,1e39,true", "out_of_range"),
}


class TestRows:
    @pytest.mark.parametrize("case", REFUSED_ROWS)
    def test_bad_row_is_a_reject(self, case: str, tmp_path: Folder) -> None:
        """The row is named with its line; the 300 others are written."""
        row, reason = REFUSED_ROWS[case]
        source = write_files(tmp_path / "s", {"t.csv": with_row(row)}) / "t.csv"
        convert(source, tmp_path / "out")
        (found,) = rejects(tmp_path / "out")
        assert (found["row"], found["line"]) == (301, 302)
        assert (found["stage"], found["reason"]) == ("read", reason)
        assert found["sha256"] != EMPTY_SHA256
        assert len(rows(tmp_path / "out")) == 300

    def test_a_huge_bad_cell_makes_a_short_message(self, tmp_path: Folder) -> None:
        """The message of a reject is at most 1 KiB, whatever the cell (row 70)."""
        data = with_row(f"{'x' * 1_000_000},a,1.5,true")
        source = write_files(tmp_path / "s", {"t.csv": data}) / "t.csv"
        convert(source, tmp_path / "out")
        (found,) = rejects(tmp_path / "out")
        assert len(found["message"].encode()) <= MAX_MESSAGE_BYTES


REFUSED_TABLES = {
    "empty (101)": (b"", "t.csv"),
    "only blank lines": (b"\n\n\n", "t.csv"),
    "header only (101)": (b"a,b\n", "--allow-empty"),
    "duplicate names (100)": (b"a,b,a\n1,2,3\n", "'a'"),
    "an empty name (100)": (b"a,,c\n1,2,3\n", "column 2"),
    "only empty names (100)": (b",,\n1,2,3\n", "column 1"),
    "unclosed quote (96)": (b'a,b\n1,x\n2,"y\n3,z\n', "line 3"),
    "unclosed quote in the header": (b'a,"b\n1,2\n', "line 1"),
    "other delimiter (111)": (b"a;b\n1;2\n", "--delimiter"),
    "latin-1 (93)": (b"a,b\n1,x\n2,caf\xe9\n", "line 3"),
    "CP949 (93)": ("a,b\n1,고양이\n".encode("cp949"), "--encoding"),
    "latin-1 in the header": (b"a,caf\xe9\n1,2\n", "--encoding"),
    "an image": (JPEG, "t.csv"),
}


class TestTables:
    @pytest.mark.parametrize("case", REFUSED_TABLES)
    def test_bad_table_is_an_error(self, case: str, tmp_path: Folder) -> None:
        """Exit code 4; the message names the file or what to do about it."""
        data, word = REFUSED_TABLES[case]
        source = write_files(tmp_path / "s", {"t.csv": data}) / "t.csv"
        assert word in refused(4, source, tmp_path / "out")
        assert names(tmp_path) == ["s"]

    @pytest.mark.parametrize(
        ("text", "encoding"),
        [
            ("n,w\n1,a\n2,b\n", "utf-8-sig"),
            ("n,w\n1,a\n2,b\n", "utf-16"),
            ("n,w\r\n1,a\r\n2,b\r\n", "utf-8"),
            ("n,w\r1,a\r2,b\r", "utf-8"),
            ("n,w\r\n1,a\n2,b", "utf-8"),
            ('"n","w"\n\n"1","a"\n\n2,b\n\n', "utf-8"),
        ],
        ids=["BOM (91)", "UTF-16 (92)", "CRLF (94)", "CR (94)", "mixed (94)", "quoted"],
    )
    def test_every_way_to_write_a_table_gives_its_rows(
        self, text: str, encoding: str, tmp_path: Folder
    ) -> None:
        """Marks, line ends and quotes leave no trace in records."""
        source = write_files(tmp_path / "s", {"t.csv": text.encode(encoding)})
        convert(source / "t.csv", tmp_path / "out", "--no-shuffle")
        assert rows(tmp_path / "out") == [{"n": 1, "w": b"a"}, {"n": 2, "w": b"b"}]

    def test_text_is_kept_byte_for_byte(self, tmp_path: Folder) -> None:
        """Newlines, quotes, NUL and long cells are text like any (95, 98, 99)."""
        long = "x" * 200_000
        data = f'n,w\n1,"a\nb"\n2,"say ""hi"""\n3,a\0b\n4,{long}\n5, c \n6,""\n'
        source = write_files(tmp_path / "s", {"t.csv": data.encode()}) / "t.csv"
        convert(source, tmp_path / "out", "--no-shuffle")
        assert [row["w"] for row in rows(tmp_path / "out")] == [
            *(b"a\nb", b'say "hi"', b"a\0b", long.encode(), b" c ", b"")
        ]

    def test_missing_words_are_text_in_text_and_absent_in_numbers(
        self, tmp_path: Folder
    ) -> None:
        """NA is a class name, and no number (rows 105, 106)."""
        words = ["NA", "N/A", "null", "None", "nan", ""]
        source = write_csv(
            tmp_path / "t.csv",
            "i,f,t",
            ["1,0.5,x", *(f"{w},{w},{w}" for w in words if w != "nan"), "2,nan,nan"],
        )
        convert(source, tmp_path / "out", "--no-shuffle")
        found = rows(tmp_path / "out")
        assert [row.get("i") for row in found] == [1, *[None] * 5, 2]
        assert [row.get("f") for row in found[:-1]] == [0.5, *[None] * 5]
        assert found[-1]["f"] != found[-1]["f"]
        assert [row.get("t") for row in found] == [
            *(b"x", b"NA", b"N/A", b"null", b"None", None, b"nan")
        ]

    def test_leading_zeros_and_dates_are_text(self, tmp_path: Folder) -> None:
        """A ZIP code keeps its zeros, a date its letters (rows 104, 110)."""
        source = write_csv(tmp_path / "t.csv", "z,d", ["007,2024-01-31", "123,31.1.24"])
        convert(source, tmp_path / "out", "--no-shuffle")
        assert rows(tmp_path / "out") == [
            {"z": b"007", "d": b"2024-01-31"},
            {"z": b"123", "d": b"31.1.24"},
        ]

    def test_large_integers_are_exact_beside_missing_ones(
        self, tmp_path: Folder
    ) -> None:
        """2^53 + 1 is not rounded, nor are the ends of int64 (rows 65, 103)."""
        values = [2**53 + 1, 2**63 - 1, -(2**63)]
        source = write_csv(
            tmp_path / "t.csv", "n,x", [f"{v},1" for v in values] + [",1"]
        )
        convert(source, tmp_path / "out", "--no-shuffle")
        assert [row.get("n") for row in rows(tmp_path / "out")] == [*values, None]

    def test_files_must_agree_on_their_columns(self, tmp_path: Folder) -> None:
        """The second file's other column is named, and so are both files."""
        write_csv(tmp_path / "s" / "1.csv", "a,b", ["1,2"])
        write_csv(tmp_path / "s" / "2.csv", "a,c", ["1,2"])
        message = refused(4, tmp_path / "s", tmp_path / "out")
        for word in ("1.csv", "2.csv", "'b'", "'c'"):
            assert word in message

    def test_an_unknown_label_column_gets_the_nearest(self, tmp_path: Folder) -> None:
        """A typo in the name of a column is exit code 2 with the right one."""
        source = write_csv(tmp_path / "t.csv", "class,n", ["x,1"])
        for flag in ("--label-column", "--split-column"):
            assert "'class'" in refused(2, source, tmp_path / "out", flag, "clas")


class TestSources:
    @pytest.mark.parametrize(
        ("name", "word", "code"),
        [
            ("nothing", "nothing", 2),
            ("nothing/*.csv", "*.csv", 2),
            ("empty", "empty", 4),
            ("notes", "notes.txt", 4),
            ("notes/notes.txt", "notes.txt", 2),
            ("", "SOURCE", 2),
        ],
    )
    def test_a_source_without_input_is_an_error(
        self,
        name: str,
        word: str,
        code: int,
        tmp_path: Folder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """No such path is exit code 2, nothing to read there 4; both are shown."""
        (tmp_path / "empty").mkdir()
        write_files(tmp_path / "notes", {"notes.txt": b"hello"})
        monkeypatch.chdir(tmp_path)
        message = refused(code, name, "out")
        assert word.lower() in message.lower()
        assert names(tmp_path) == ["empty", "notes"]

    def test_an_empty_folder_of_images_may_be_allowed(self, tmp_path: Folder) -> None:
        """With --format and --allow-empty, no image is an empty dataset (row 29)."""
        (tmp_path / "empty").mkdir()
        options = ("--format", "images", "--allow-empty")
        convert(tmp_path / "empty", tmp_path / "out", *options)
        assert account(tmp_path / "out")["written"] == 0


class TestOutputs:
    @pytest.fixture
    def tree(self, tmp_path: Folder) -> Folder:
        return write_files(tmp_path / "tree", {"a/1.jpg": JPEG})

    @pytest.mark.parametrize("options", [(), ("--overwrite",)])
    def test_a_file_is_never_replaced(
        self, options: tuple[str, ...], tree: Folder, tmp_path: Folder
    ) -> None:
        """An output that is a file stays that file (row 19)."""
        (tmp_path / "out").write_text("mine")
        refused(2, tree, tmp_path / "out", *options)
        assert (tmp_path / "out").read_text() == "mine"

    def test_a_link_is_never_replaced(self, tree: Folder, tmp_path: Folder) -> None:
        """Neither the link nor what it leads to is written."""
        (tmp_path / "real").mkdir()
        (tmp_path / "out").symlink_to("real")
        refused(2, tree, tmp_path / "out", "--overwrite")
        assert os.listdir(tmp_path / "real") == []

    def test_a_folder_of_other_things_is_refused(
        self, tree: Folder, tmp_path: Folder
    ) -> None:
        """A folder that is no dataset is named with what it holds."""
        write_files(tmp_path / "out", {"mine.txt": b"mine"})
        assert "mine.txt" in refused(2, tree, tmp_path / "out", "--overwrite")
        assert names(tmp_path / "out") == ["mine.txt"]

    @pytest.mark.parametrize("place", ["tree", "tree/out", "tree/a/out", "link/out"])
    def test_the_output_is_outside_the_source(
        self, place: str, tree: Folder, tmp_path: Folder
    ) -> None:
        """A target in the source, also through a link, is refused."""
        (tmp_path / "link").symlink_to(tree)
        refused(2, tree, tmp_path / place)
        assert names(tree) == ["a"]
        assert names(tree / "a") == ["1.jpg"]

    def test_the_output_is_outside_a_folder_of_tables(self, tmp_path: Folder) -> None:
        """That holds for CSV, by folder, file and pattern, as for images."""
        source = write_csv(tmp_path / "s" / "t.csv", "n", [1])
        refused(2, tmp_path / "s", tmp_path / "s" / "out")
        refused(2, source, source)
        assert names(tmp_path / "s") == ["t.csv"]
        assert source.read_text() == "n\n1\n"

    def test_a_parent_that_is_a_file_is_refused(
        self, tree: Folder, tmp_path: Folder
    ) -> None:
        """No folder can be made below a file (row 19)."""
        (tmp_path / "file").write_text("mine")
        refused(2, tree, tmp_path / "file" / "out")

    def test_a_parent_that_cannot_be_written_is_refused_first(
        self, tree: Folder, tmp_path: Folder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The place is looked at before anything is read (row 19)."""
        access = os.access

        def read_only(path: str, mode: int) -> bool:
            return access(path, mode) and not (
                mode & os.W_OK and str(path) == str(tmp_path)
            )

        monkeypatch.setattr(os, "access", read_only)
        assert str(tmp_path) in refused(2, tree, tmp_path / "out")
        assert names(tmp_path) == ["tree"]

    def test_no_name_is_no_output(self, tree: Folder) -> None:
        """An empty output, as from an unset variable in a script, is refused."""
        refused(2, tree, "")

    @pytest.mark.parametrize("damage", ["cut", "empty", "other"])
    def test_a_dataset_with_a_damaged_manifest_is_not_replaced(
        self, damage: str, tree: Folder, tmp_path: Folder
    ) -> None:
        """What it holds is not known, so it stays (row 36)."""
        convert(tree, tmp_path / "out")
        path = tmp_path / "out" / "manifest.json"
        data = {"cut": path.read_bytes()[:300], "empty": b"", "other": b'{"a": 1}'}
        path.write_bytes(data[damage])
        before = names(tmp_path / "out")
        refused(2, tree, tmp_path / "out", "--overwrite")
        assert names(tmp_path / "out") == before


class TestMessages:
    def test_long_names_make_short_messages(self, tmp_path: Folder) -> None:
        """Whatever a message quotes, it is at most 1 KiB and one line (row 70)."""
        path = tmp_path / "/".join(["n" * 200] * 8) / "t.csv"
        message = refused(2, path, tmp_path / "out")
        assert message.count("\n") == 1

    def test_many_columns_make_short_messages(self, tmp_path: Folder) -> None:
        """A table of 5,000 odd columns is not quoted in full."""
        columns = ",".join(f"column {number} {'x' * 50}" for number in range(5000))
        source = write_csv(tmp_path / "t.csv", columns, [])
        refused(2, source, tmp_path / "out", "--label-column", "missing")

    def test_control_characters_do_not_reach_the_terminal(
        self, tmp_path: Folder
    ) -> None:
        """A name with an escape sequence is shown escaped."""
        message = refused(2, tmp_path / "\x1b[31mred\x1b[2J.csv", tmp_path / "out")
        assert "\x1b" not in message

    @pytest.mark.parametrize(
        "text",
        [
            "--splits=train",
            "--splits=all=1",
            "--splits=a b=1",
            "--splits=a=0,b=1",
            "--splits=a=x",
            "--splits=a=1,a=2",
            "--splits=a=nan",
            "--splits=a=inf",
            "--splits=a=1/0",
            "--splits=",
            "--shards=0",
            "--shards=-1",
            "--shards=1000000",
            "--shard-size=0",
            "--shard-size=-5MB",
            "--shard-size=10XB",
            "--limit=0",
            "--seed=-1",
            "--workers=0",
            "--workers=many",
            "--max-reject-rate=2",
            "--max-reject-rate=-0.1",
            "--max-reject-rate=nan",
            "--name=a/b",
            "--name=..",
            "--name=" + "x" * 300,
            "--delimiter=ab",
            "--delimiter=",
            "--encoding=utf-99",
            "--columns=a,a",
            "--preset=tutorial",
            "--feature-name=image=x",
            "--compression=bz2",
            "--format=json",
        ],
    )
    def test_a_wrong_value_is_refused_before_the_work(
        self, text: str, tmp_path: Folder
    ) -> None:
        """Exit code 2 and the setting's name, nothing written."""
        source = write_csv(tmp_path / "t.csv", "a,b", ["1,2"])
        message = refused(2, source, tmp_path / "out", text)
        name = text[2:].partition("=")[0].split("-")[0].rstrip("s")
        assert name in message
        assert names(tmp_path) == ["t.csv"]
