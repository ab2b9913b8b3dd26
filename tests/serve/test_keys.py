"""Keys: their file, who has one, and how they change while the service runs."""

import os
import time
from pathlib import Path

import pytest

from workbench.serve.access import Keys, drawn_key, read_keys
from workbench.serve.refusals import Refusal
from workbench.values.errors import ConfigError

HEX = "a" * 64


def refused(keys: Keys, given: bytes | None) -> str:
    try:
        keys.admit(given)
    except Refusal as refusal:
        return refusal.kind
    return ""


def test_a_drawn_key_is_the_one_of_its_line(tmp_path: Path) -> None:
    secret, line = drawn_key("mobile-app")
    other, second = drawn_key("nightly")
    path = tmp_path / "keys"
    path.write_text(f"# ours\n\n{line}  # since March\n{second}\n")

    keys = Keys(path)

    assert secret not in path.read_text()
    assert len(secret) >= 43
    assert keys.admit(secret.encode()) == "mobile-app"
    assert keys.admit(other.encode()) == "nightly"
    for wrong in (None, b"", secret[:-1].encode(), HEX.encode(), "é".encode("latin-1")):
        assert refused(keys, wrong) == "unauthorized"


def test_a_file_that_is_wrong_says_where_and_quotes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    for content, said in (
        ("# nothing\n", "has 0 keys"),
        ("a secret-in-clear-text\n", "no line of a key"),
        (f"ok sha256:{HEX}\na sha256:{HEX[:-1]}\n", ":2: this is no line of a key"),
        (f"a sha256:{HEX} 5/s\n", "Requests a second are limited by a gateway in front"),
        (f"a/b sha256:{HEX}\n", "no line of a key"),
        (f"a sha256:{HEX}\na sha256:{HEX[:-1]}b\n", ":2: the name a is taken"),
        (f"default sha256:{HEX}\n", "the name default is taken"),
        ("\xff", "is not UTF-8"),
        ("#" * (1 << 20) + "##", "at most 1 MiB are read"),
        ("".join(f"k{i} sha256:{HEX}\n" for i in range(1001)), "has 1001 keys"),
    ):
        path.write_bytes(content.encode("latin-1"))
        with pytest.raises(ConfigError) as error:
            read_keys(path)
        assert said in str(error.value)
        assert str(path) in str(error.value)
        assert "secret" not in str(error.value)
    path.chmod(0o666)
    os.mkfifo(tmp_path / "pipe")
    for wrong, said in ((path, "everybody may write"), (tmp_path, "folder"), (tmp_path / "pipe", "FIFO")):
        with pytest.raises(ConfigError, match=said):
            read_keys(wrong)


def test_a_key_counts_as_long_as_its_line_stands_in_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (first, first_line), (second, second_line) = drawn_key("first"), drawn_key("second")
    path = tmp_path / "keys"
    path.write_text(first_line)
    keys = Keys(path, {"default": "fixed"})

    def admitted() -> list[str]:
        keys.look()
        return [secret for secret in (first, second, "fixed") if not refused(keys, secret.encode())]

    def writable() -> None:
        _replace(path, first_line)
        assert admitted() == [first, "fixed"]
        path.chmod(0o666)

    assert admitted() == [first, "fixed"]
    _replace(path, f"{first_line}\n{second_line}\n")
    assert admitted() == [first, second, "fixed"]
    _replace(path, f"{first_line[:-5]}\n{second_line}\n")
    assert admitted() == [second, "fixed"]
    for lock_out in (
        lambda: _replace(path, ""),
        lambda: _replace(path, "# nobody"),
        lambda: _replace(path, "broken"),
        lambda: path.write_bytes(b"\xff\xfe" * 40),
        lambda: path.write_text("#" * (1 << 20) + "\n" + first_line),
        path.unlink,
        writable,
    ):
        _replace(path, f"{first_line}\n{second_line}\n")
        assert admitted() == [first, second, "fixed"]
        lock_out()
        assert admitted() == ["fixed"]

    log = capfd.readouterr().err
    assert log.count("keys_refused") == 8
    assert first not in log
    assert second not in log


def _replace(path: Path, content: str) -> None:
    new = path.with_suffix(".new")
    new.write_text(content)
    os.utime(new, ns=(time.time_ns(), time.time_ns()))
    new.replace(path)
