"""Nothing that others have named or written can steer the terminal that shows it."""

import io
import json
import pathlib

import PIL.Image
import pytest

from beam_pipeline import terminal
from beam_pipeline.terminal import json_text, printable
from tests.support.runs import command, convert
from tests.support.sources import write_files

Folder = pathlib.Path

pytestmark = pytest.mark.usefixtures("without_runner")

# ESC, BEL, C1's CSI, what turns the direction of text, CR, TAB, LF, DEL, a tag.
HOSTILE = "\x1b]0;t\x07\x9b31m\u202eabc\r\t\n\x7f\U000e0041"
NAME = f"x{HOSTILE}y"


def steers(text: str) -> set[str]:
    """Returns the characters of printed text that a terminal might obey."""
    return {each for each in text if not each.isprintable()} - {"\n"}


def test_printable_escapes_each_character() -> None:
    """What is readable stays, and all else is written out."""
    assert printable("Grüße 한국") == "Grüße 한국"
    assert printable(HOSTILE) == (
        r"\x1b]0;t\x07\x9b31m\u202eabc\r\t\n\x7f" + "\\U000e0041"
    )
    assert printable("a\nb\x1b", keep="\n") == "a\nb\\x1b"
    assert printable("\udc80") == r"\udc80"


def test_json_text_stays_json() -> None:
    """Escapes of JSON give the same value back."""
    value = {NAME: [HOSTILE, "Grüße"]}
    text = json_text(value)
    assert text.isprintable()
    assert "Grüße" in text
    assert json.loads(text) == value


@pytest.mark.parametrize("is_terminal", [True, False])
def test_styled_texts_are_escaped(
    is_terminal: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lines, heads, parts and cells of tables are escaped; styles still work."""
    monkeypatch.setattr(terminal, "_shows_colours", lambda: is_terminal)
    terminal.print_line(f"note: {NAME}", "red")
    terminal.print_line(NAME, "bold", " more")
    terminal.print_line(NAME, "cyan", NAME)
    terminal.print_table([NAME], [[NAME]])
    found = capsys.readouterr().out
    assert steers(found) <= ({"\x1b"} if is_terminal else set())
    assert "\x1b]" not in found
    assert ("\x1b[31m" in found) is is_terminal
    assert found.count(r"\x1b]0;t") == 6


def test_messages_on_standard_error_are_escaped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Errors, warnings of what was tried again, notes of engines: all take this way."""
    terminal.say(f"warning: {NAME}")
    assert steers(capsys.readouterr().err) == set()


@pytest.fixture
def hostile(tmp_path: Folder) -> Folder:
    """Sources whose files, folders, columns, classes and values are all hostile."""
    drawn = io.BytesIO()
    PIL.Image.new("RGB", (8, 8)).save(drawn, "JPEG")
    jpeg = drawn.getvalue()
    write_files(
        tmp_path,
        {
            f"tree/{NAME}/{NAME}.jpg": jpeg,
            f"tree/b/{NAME}.jpg": jpeg,
            f"tree/b/{NAME}{NAME}.jpg": jpeg[:200],
            f"{NAME.replace(chr(10), '')}.csv": (
                f'a,"{NAME}",k\n' + f'1,"{NAME}",{HOSTILE[:-9]}\n' * 20 + "y,z,t\n" * 2
            ).encode(),
            "rows.jsonl": "".join(
                json.dumps({"a": i, NAME: NAME if i % 2 else [NAME]}) + "\n"
                for i in range(20)
            ).encode()
            + b'{"a": \x1b]0;t\n',
        },
    )
    return tmp_path


@pytest.mark.parametrize("kind", ["tree", "csv", "jsonl"])
def test_no_command_prints_what_steers(hostile: Folder, kind: str) -> None:
    """All commands, over a source and its dataset, with and without errors."""
    [source] = [p for p in hostile.iterdir() if p.name.endswith(kind)]
    out = hostile / f"out{HOSTILE}"
    more = ["--label-column", "k"] if kind == "csv" else []
    share = ("--max-reject-rate", "0.9")
    runs = [
        command("plan", source, out, *more),
        command("spec", source, *more),
        command("convert", source, out, *more),
        command("rejects", out),
        command("convert", source, out, *more, *share),
        command("plan", source, out, *more, *share),
        command("convert", source, out, *more, *share, "--seed", 3),
        command("inspect", out),
        command("head", out),
        command("code", out),
        command("rejects", out),
        command("rejects", out, "--json"),
        command("rejects", out, "--reason", "malformed"),
        command("rejects", out, "--reason", "malformed", "--json"),
        command("rejects", out, "--reason", NAME),
        command("verify", out),
        command("repair", out, hostile / f"again{HOSTILE}"),
        command("clean", out),
    ]
    shard = next(each for each in sorted(out.iterdir()) if "tfrecord" in each.name)
    shard.write_bytes(shard.read_bytes()[:-3])
    stray = out / NAME
    stray.write_bytes(b"")
    runs += [
        command("verify", out),
        command("verify", shard),
        command("head", out),
        command("inspect", shard),
        command("repair", shard, hostile / f"one{HOSTILE}"),
        command("convert", source, out, "--overwrite"),
        command("convert", source, hostile / "o", f"--{NAME}"),
        command("convert", source, hostile / "o", "--label-column", NAME),
        command("convert", source, hostile / "o", "--drop", f"{NAME},{HOSTILE}"),
        command("convert", source, hostile / "o", "--spec", NAME),
        command("convert", NAME, hostile / "o"),
        command("inspect", NAME),
        command("verify", NAME),
        command("head", NAME),
        command(NAME),
    ]
    for run in runs:
        assert steers(run.out + run.err) == set(), run
    assert not any("Traceback" in run.err for run in runs)


def test_a_schema_of_hostile_names_is_a_spec(hostile: Folder) -> None:
    """The printed YAML has the exact columns and values."""
    source = hostile / "rows.jsonl"
    (hostile / "spec.yaml").write_text(command("spec", source).out)
    convert(
        *(source, hostile / "out", "--spec", hostile / "spec.yaml"),
        *("--max-reject-rate", "0.9"),
    )
    facts = json.loads((hostile / "out" / "manifest.json").read_bytes())["dataset"]
    assert [each["name"] for each in facts["features"]] == ["a", NAME]
