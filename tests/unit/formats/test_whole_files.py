"""Files that a process parses once and keeps."""

import pathlib

from transforms.formats.whole_files import kept_in_memory


def test_a_file_that_was_replaced_is_parsed_again(tmp_path: pathlib.Path) -> None:
    """Content is kept by the stamp that the file has, also if none was listed."""
    path = tmp_path / "a"
    load = kept_in_memory(2)(lambda path, _: pathlib.Path(path).read_text())
    for text in ("one", "three"):
        path.write_text(text)
        assert load(str(path), 0) == text
