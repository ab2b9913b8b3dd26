"""Keys and signatures: read what minisign 0.11 wrote, write what it reads, refuse everything else.

The files in data/ were made by minisign 0.11 (Debian 12); their secret keys have signed nothing but these tests.
"""

import base64
import dataclasses
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bundle.making import needs_minisign
from workbench.bundle.signing import (
    SignatureError,
    make_keys,
    parse_public_key,
    parse_signature,
    read_secret_key,
    read_trusted_keys,
    sign,
    trusted_keys_of,
    verify,
)
from workbench.values.errors import ConfigError, ToolchainError

DATA = Path(__file__).parent / "data"
CONTENT = (DATA / "content.txt").read_bytes()


def public_of(name: str) -> str:
    return (DATA / f"{name}.pub").read_text().splitlines()[1]


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A secret key of minisign -W; git keeps no rights, so they are set here."""
    file = Path(shutil.copy(DATA / "plain.key", tmp_path / "plain.key"))
    file.chmod(0o600)
    return file


# --- what minisign wrote ----------------------------------------------------------------------------------------------


def test_a_signature_of_minisign_is_accepted_and_its_key_gives_the_very_same_here(plain: Path) -> None:
    """Ed25519 is deterministic. The legacy kind is refused by name."""
    signature = parse_signature((DATA / "content.txt.minisig").read_bytes())
    public = parse_public_key(public_of("plain"))

    verify(public, CONTENT, signature)
    assert signature.trusted_comment == "made by minisign 0.11"
    assert public.name in (DATA / "plain.pub").read_text()
    made = sign(read_secret_key(plain), CONTENT, "made by minisign 0.11")
    assert made.to_text("untrusted words") == (DATA / "content.txt.minisig").read_text()
    with pytest.raises(SignatureError, match="legacy kind"):
        parse_signature((DATA / "content.legacy.minisig").read_bytes())


@settings(deadline=None, max_examples=150)
@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_below_the_first_line_is_found(position: int, bit: int) -> None:
    content = bytearray((DATA / "content.txt.minisig").read_bytes())
    start = content.index(b"\n") + 1
    content[start + position % (len(content) - start - 1)] ^= 1 << bit

    with pytest.raises(SignatureError):
        verify(parse_public_key(public_of("plain")), CONTENT, parse_signature(bytes(content)))


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_signature_or_an_error(content: bytes) -> None:
    with pytest.raises(SignatureError):
        parse_signature(content)


def test_a_signature_of_another_key_or_content_is_refused(plain: Path) -> None:
    signature = parse_signature((DATA / "content.txt.minisig").read_bytes())
    public = parse_public_key(public_of("plain"))
    other = parse_public_key(public_of("sealed"))

    with pytest.raises(SignatureError, match="does not fit the content"):
        verify(public, CONTENT + b" ", signature)
    with pytest.raises(SignatureError, match=f"made with key {public.name}, not {other.name}"):
        verify(other, CONTENT, signature)
    with pytest.raises(SignatureError, match="does not fit the content"):
        verify(dataclasses.replace(other, key_id=public.key_id), CONTENT, signature)
    with pytest.raises(SignatureError, match="trusted comment was changed"):
        verify(public, CONTENT, dataclasses.replace(signature, trusted_comment="made by minisign 0.12"))
    swapped = dataclasses.replace(sign(read_secret_key(plain), b"else", "x"), signature=signature.signature)
    with pytest.raises(SignatureError, match="trusted comment was changed"):
        verify(public, CONTENT, swapped)


def test_a_text_that_is_no_key_is_refused() -> None:
    good = public_of("plain")
    for text in ("", "RW", good[:-1], good + "A", good.replace("RW", "RX", 1), "é", good[:20] + "\n" + good[20:]):
        with pytest.raises(SignatureError, match=r"no public key|not a public key"):
            parse_public_key(text)


# --- secret keys ------------------------------------------------------------------------------------------------------


def test_a_key_is_made_read_and_signs_and_none_is_overwritten(tmp_path: Path) -> None:
    secret, public = tmp_path / "a.key", tmp_path / "a.pub"
    made = make_keys(secret, public)

    opened = read_secret_key(secret)

    assert opened.public == made == parse_public_key(public.read_text().splitlines()[1])
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    verify(made, CONTENT, sign(opened, CONTENT, "a comment"))
    assert repr(opened.seed) not in repr(opened)
    for names in (("a.key", "b.pub"), ("b.key", "a.pub")):
        with pytest.raises(ConfigError, match="exists already"):
            make_keys(*(tmp_path / name for name in names))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.key", "a.pub"]
    with pytest.raises(ToolchainError, match="cannot be written"):
        make_keys(tmp_path / "no" / "c.key", tmp_path / "c.pub")


def test_what_is_no_secret_key_or_has_a_password_is_refused(plain: Path) -> None:
    head, line, _ = plain.read_text().split("\n")
    raw = bytearray(base64.b64decode(line))
    raw[70] ^= 1
    for text, words in (
        ("", "not a secret key"),
        (plain.read_text()[:-9], "not a secret key"),
        ((DATA / "plain.pub").read_text(), "not a secret key"),
        ("x\n" + base64.b64encode(bytes(158)).decode(), "no secret key of minisign"),
        ((DATA / "sealed.key").read_text(), "has a password, which minisign alone asks for: minisign -S"),
        (f"{head}\n{base64.b64encode(raw).decode()}\n", "is damaged"),
    ):
        plain.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_secret_key(plain)
    plain.chmod(0o644)  # everybody reads it
    with pytest.raises(ConfigError, match="chmod 600"):
        read_secret_key(plain)


# --- the real tool, both ways -----------------------------------------------------------------------------------------


def minisign(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["minisign", *map(str, arguments)], input="\n", capture_output=True, text=True, timeout=300, check=False
    )


@needs_minisign
def test_minisign_signs_with_our_keys_and_checks_our_signatures(tmp_path: Path) -> None:
    secret, public, content = tmp_path / "a.key", tmp_path / "a.pub", tmp_path / "content"
    made = make_keys(secret, public)
    content.write_bytes(CONTENT)

    ours = sign(read_secret_key(secret), CONTENT, "by us")
    (tmp_path / "ours").write_text(ours.to_text("x"))
    theirs = minisign("-S", "-s", secret, "-m", content, "-x", tmp_path / "theirs")

    assert theirs.returncode == 0, theirs.stderr
    verify(made, CONTENT, parse_signature((tmp_path / "theirs").read_bytes()))
    checked = minisign("-V", "-H", "-p", public, "-m", content, "-x", tmp_path / "ours")
    assert checked.returncode == 0
    assert "Trusted comment: by us" in checked.stdout
    content.write_bytes(CONTENT + b" ")
    assert minisign("-V", "-p", public, "-m", content, "-x", tmp_path / "ours").returncode == 1


# --- trust ------------------------------------------------------------------------------------------------------------


def test_a_file_of_trusted_keys_names_and_revokes(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    one, two = public_of("plain"), public_of("sealed")
    file.write_text(f"# ours\n\nrevoked {two}\tlaptop lost\n{one}   release 2026, 张伟\r\n{two} the old one\n")

    keys = read_trusted_keys(file)

    assert [(key.name, key.revoked) for key in keys.keys] == [("laptop lost", True), ("release 2026, 张伟", False)]
    (found,) = keys.of(parse_public_key(one).key_id)
    assert found.words == f"{parse_public_key(one).name} (release 2026, 张伟)"
    assert keys.of(b"12345678") == ()


def test_a_file_that_would_trust_nobody_or_is_misread_is_refused(tmp_path: Path) -> None:
    for text, words in (
        ("", "no key that is not revoked"),
        ("# nothing\n", "no key that is not revoked"),
        (f"revoked {public_of('plain')} gone\n", "no key that is not revoked"),
        ("RWnonsense somebody\n", ":1: --trusted-keys: it is not a public key"),
        (f"{public_of('plain')}\ntrusted {public_of('sealed')}\n", ":2: --trusted-keys: it is not a public key"),
        ("\0", "not a public key"),
    ):
        (tmp_path / "keys").write_text(text)

        with pytest.raises(ConfigError, match=words):
            read_trusted_keys(tmp_path / "keys")


def test_the_environment_asks_for_signatures_where_no_option_does(tmp_path: Path) -> None:
    assert trusted_keys_of(None, {}) is None
    by_environment = trusted_keys_of(None, {"WORKBENCH_TRUSTED_KEYS": str(DATA / "plain.pub")})
    assert by_environment is not None
    by_option = trusted_keys_of(DATA / "sealed.pub", {"WORKBENCH_TRUSTED_KEYS": str(DATA / "plain.pub")})
    assert by_option is not None
    assert by_option.file == DATA / "sealed.pub"
    with pytest.raises(ConfigError, match="would trust nobody"):
        trusted_keys_of(None, {"WORKBENCH_TRUSTED_KEYS": ""})
    with pytest.raises(ConfigError, match="no such file"):
        trusted_keys_of(None, {"WORKBENCH_TRUSTED_KEYS": str(tmp_path / "nowhere")})
