"""Files of others: only regular ones are read, only as much of them as is of use, and errors say which and why."""

import os
import socket
from pathlib import Path

import pytest

from workbench.values.documents import input_files
from workbench.values.documents.input_files import LIMIT_VARIABLE, open_lines, read_bytes, read_text
from workbench.values.errors import ConfigError


@pytest.mark.timeout(20)  # a FIFO that is opened waits for a writer that never comes
def test_what_is_no_regular_file_is_named_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    kinds = {
        tmp_path / "fifo": "is a FIFO",
        tmp_path / "folder": "is a folder",
        tmp_path / "socket": "is a socket",
        Path("/dev/zero"): "is a character device",
        tmp_path / "none": "no such file",
        Path("a\0b"): "is no path",
    }
    try:
        for path, words in kinds.items():
            with pytest.raises(ConfigError, match=words):
                read_bytes(path, limit_bytes=10)
    finally:
        listening.close()


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")

    assert read_bytes(tmp_path / "link", limit_bytes=3) == b"abc"


def test_a_file_over_the_limit_is_refused_and_the_environment_raises_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 2000)

    with pytest.raises(ConfigError, match=rf"has 1\.953 KiB; at most 1000 bytes are read.*{LIMIT_VARIABLE}"):
        read_bytes(path, limit_bytes=1000)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.001")
    assert len(read_bytes(path, limit_bytes=1000)) == 2000
    monkeypatch.setenv(LIMIT_VARIABLE, "many")
    with pytest.raises(ConfigError, match=f"{LIMIT_VARIABLE}: 'many' is not a number of GiB"):
        read_bytes(path, limit_bytes=1000)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs a file of unknown size")
def test_a_file_whose_size_is_not_known_beforehand_is_refused_too() -> None:
    with pytest.raises(ConfigError, match="has no end; at most 100 bytes"):
        read_bytes(Path("/proc/self/maps"), limit_bytes=100)


def test_lines_are_read_one_by_one_and_a_bad_byte_has_its_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo\r\n" + b"x" * 20_000 + b"\nfo\xffur\n")

    with open_lines(path, limit_bytes=100_000) as lines:
        assert [next(lines), next(lines)] == ["one\n", "two\r\n"]
        with pytest.raises(ConfigError, match=r"file:4: byte 0xff is not UTF-8"):
            list(lines)


def test_a_line_without_end_is_refused_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_files, "MOST_LINE_CHARACTERS", 100)
    path = tmp_path / "file"
    path.write_text("ok\n" + "x" * 300)

    with (
        pytest.raises(ConfigError, match="file:2: the line is longer than 100 characters"),
        open_lines(path, limit_bytes=1000) as lines,
    ):
        list(lines)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbf{}")

    assert read_text(tmp_path / "file", limit_bytes=10) == "{}"
