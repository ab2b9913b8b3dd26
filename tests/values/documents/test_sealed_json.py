"""Sealed JSON: what was written comes back, anything else is told from it."""

import json
import os
from pathlib import Path

import pytest

from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed


def test_every_single_flipped_bit_and_every_cut_is_found(tmp_path: Path) -> None:
    path = tmp_path / "sealed.json"
    write_sealed(path, {"a": [1, 2.5, None, True], "text": "x y", "nested": {"b": "ü"}})
    sound = path.read_bytes()
    for bit in range(8 * len(sound)):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(Unsound):
            read_sealed(path)
    for length in range(len(sound)):
        path.write_bytes(sound[:length])
        with pytest.raises(Unsound):
            read_sealed(path)


def test_foreign_content_is_named_and_what_is_no_file_of_ours_not_read(tmp_path: Path) -> None:
    for content, words in (
        (b"", "is empty"),
        (bytes(4000), "nothing but zeros"),
        (b"[1, 2]\n", "something else"),
        (b'{"a":1}\n', "carries no sha256"),
        (b'{"a":NaN,"sha256":"x"}\n', "is not JSON any more"),
        (b"[" * 100_000, "is not JSON any more"),
        (json.dumps({"a": 1, "sha256": ["x"]}).encode(), "does not match"),
        (b"\xff\xfe", "is not JSON any more"),
    ):
        (tmp_path / "sealed.json").write_bytes(content)
        with pytest.raises(Unsound, match=words):
            read_sealed(tmp_path / "sealed.json")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)

    for name, words in {
        "gone": "is missing",
        "fifo": "no regular file",
        "zeros": "no regular file",
        ".": "no regular file",
        "sparse": "1099511627776 bytes",
    }.items():
        with pytest.raises(Unsound, match=words):
            read_sealed(tmp_path / name)
