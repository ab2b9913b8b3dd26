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


def test_a_file_over_the_limit_is_refused_and_the_environment_raises_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 2000)

    with pytest.raises(ConfigError, match=rf"has 1\.953 KiB; at most 1000 bytes are read.*{LIMIT_VARIABLE}"):
        read_bytes(path, limit_bytes=1000)
    with pytest.raises(ConfigError, match="has no end; at most 100 bytes"):
        read_bytes(Path("/proc/self/maps"), limit_bytes=100)
    monkeypatch.setenv(LIMIT_VARIABLE, "0.001")
    assert len(read_bytes(path, limit_bytes=1000)) == 2000
    monkeypatch.setenv(LIMIT_VARIABLE, "many")
    with pytest.raises(ConfigError, match=f"{LIMIT_VARIABLE}: 'many' is not a positive number"):
        read_bytes(path, limit_bytes=1000)


def test_texts_begin_after_a_byte_order_mark_and_lines_are_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_files, "MOST_LINE_BYTES", 25_000)
    path = tmp_path / "file"
    (tmp_path / "link").symlink_to("file")
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert read_text(tmp_path / "link", limit_bytes=10) == "{}"
    for fourth, wrong in (
        (b"fo\xffur\n", "file:4: byte 0xff is not UTF-8"),
        (b"x" * 30_000, "file:4: the line is longer than 25000 bytes"),
    ):
        path.write_bytes(b"\xef\xbb\xbfone\ntwo\r\n" + b"x" * 20_000 + b"\n" + fourth)
        with open_lines(path, limit_bytes=100_000) as lines:
            assert [next(lines), next(lines)] == ["one\n", "two\r\n"]
            with pytest.raises(ConfigError, match=wrong):
                list(lines)
    path.write_bytes(b"one\rtwo\r\n\nthree")
    with open_lines(path, limit_bytes=100, newline="") as lines:
        assert list(lines) == ["one\r", "two\r\n", "\n", "three"]
