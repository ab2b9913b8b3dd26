"""Bytes and lines of files that others wrote: regular files alone, and no more of them than the reader can use.

    text = read_text(path, limit_bytes=MOST_BYTES)
    with open_lines(path, limit_bytes=MOST_BYTES) as lines: ...      # never more than one line in memory

A FIFO or a terminal would make a command wait for ever and `/dev/zero` never ends, so neither is opened for reading.
Links are followed: where a user keeps a file is the user's affair.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from workbench.values.errors import ConfigError
from workbench.values.system.environment import number_of

LIMIT_VARIABLE = "WORKBENCH_MAX_FILE_GIB"
"""Raises every limit on the size of a whole file to so many GiB; a number."""

MOST_LINE_BYTES = 1 << 24
"""Of one line. A sample is a text that a model reads; a book of this length is none."""

MOST_FOLDER_FILES, MOST_FOLDER_BYTES = 10_000, 1 << 32
"""Of a folder that is named by what it holds."""

_BLOCK_BYTES = 1 << 20
_POINTER = b"version https://git-lfs"
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def read_bytes(path: Path, *, limit_bytes: int, key: str | None = None) -> bytes:
    """The content of a regular file.

    Args:
        limit_bytes: the largest file that is read; `LIMIT_VARIABLE` may raise it.
        key: where the user wrote the path, for the error.

    Raises:
        ConfigError: no such file, not a regular one, not readable, or too large.
    """
    with open_file(path, limit_bytes=limit_bytes, key=key) as stream:
        most = raised(limit_bytes)
        try:
            content = stream.read(os.fstat(stream.fileno()).st_size + 1)  # at once: reading twice would copy it
            while len(content) <= most and (more := stream.read(_BLOCK_BYTES)):
                content += more  # it grows while it is read, or is of a kind whose size is not known beforehand
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}.", file=path, key=key) from error
    if len(content) > most:
        raise _too_large(path, None, limit_bytes, key)
    return content


def read_text(path: Path, *, limit_bytes: int, key: str | None = None) -> str:
    """The content of a regular UTF-8 file; a byte order mark is dropped.

    Raises:
        ConfigError: as `read_bytes`, or with the line of the first byte that is not UTF-8.
    """
    return decoded(read_bytes(path, limit_bytes=limit_bytes, key=key), path)


def decoded(content: bytes, path: Path) -> str:
    """UTF-8 bytes as text, without the byte order mark that spreadsheets write.

    Raises:
        ConfigError: with the line of the first byte that is not UTF-8.
    """
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _not_utf8(path, content.count(b"\n", 0, error.start) + 1, content[error.start]) from error


@contextlib.contextmanager
def open_lines(path: Path, *, limit_bytes: int, newline: str = "\n") -> Iterator[Iterator[str]]:
    """The lines of a regular UTF-8 file one after another, each with its line end.

    Args:
        newline: '\\n' to end lines there alone; '' to end them as CSV readers do, at '\\r' too.

    Raises:
        ConfigError: as `read_text`, or a line is longer than `MOST_LINE_BYTES`.
    """
    with open_file(path, limit_bytes=limit_bytes) as stream:
        yield _lines(stream, path, newline)


def _lines(stream: IO[bytes], path: Path, newline: str) -> Iterator[str]:
    for number in itertools.count(1):
        try:
            line = stream.readline(MOST_LINE_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}.", file=path) from error
        if len(line) > MOST_LINE_BYTES:
            hint = "Is this the right file? Each line is one sample."
            raise ConfigError(f"the line is longer than {MOST_LINE_BYTES} bytes.", file=path, line=number, hint=hint)
        if not line:
            return
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _not_utf8(path, number, line[error.start]) from error
        text = text.removeprefix("\ufeff") if number == 1 else text
        yield from re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text) if newline == "" else [text]


def _not_utf8(path: Path, line: int, byte: int) -> ConfigError:
    return ConfigError(
        f"byte {byte:#04x} is not UTF-8.",
        file=path,
        line=line,
        hint="Convert the file, for example: iconv -f GB18030 -t UTF-8.",
    )


def open_file(path: Path, *, limit_bytes: int, key: str | None = None) -> IO[bytes]:
    """A regular file of at most `limit_bytes`, opened for reading.

    Raises:
        ConfigError: no such file, not a regular one, not readable, too large, or a pointer of Git LFS.
    """
    check_file(path, key=key)  # before it is opened: opening a device may already act on it
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO put there meanwhile
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=path, key=key) from error
    stream = os.fdopen(descriptor, "rb")
    try:
        status = os.fstat(descriptor)
        _refuse_special(path, status.st_mode, key)
        if status.st_size > raised(limit_bytes):
            raise _too_large(path, status.st_size, limit_bytes, key)
        if os.pread(descriptor, len(_POINTER), 0) == _POINTER:
            raise ConfigError(
                "is a pointer of Git LFS: the file itself was not fetched.",
                file=path,
                key=key,
                hint="Run git lfs pull in its folder, or download it from where it is published.",
            )
    except ConfigError:
        stream.close()
        raise
    return stream


def folder_digest(path: Path) -> str:
    """sha256 (64 hex) over the names and contents of all regular files below a folder, in the order of their names.

    Raises:
        ConfigError: no folder, one without files, or beyond `MOST_FOLDER_FILES` and `MOST_FOLDER_BYTES`; something in
            it cannot be read, or is neither a file nor a folder.
    """
    if not path.is_dir():
        raise ConfigError("no such folder.", file=path)
    found, files, size = hashlib.sha256(), 0, 0
    for at in sorted(path.rglob("*")):
        if at.is_dir() and not at.is_symlink():
            continue
        name = at.relative_to(path).as_posix()
        with open_file(at, limit_bytes=MOST_FOLDER_BYTES) as stream:
            files, size = files + 1, size + os.fstat(stream.fileno()).st_size
            if files > MOST_FOLDER_FILES or size > MOST_FOLDER_BYTES:
                raise ConfigError(
                    f"holds more than {MOST_FOLDER_FILES} files or {size_text(MOST_FOLDER_BYTES)}.", file=path
                )
            content = hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]  # typeshed asks for more than it uses
        found.update(f"{name}\n{content}\n".encode())
    if not files:
        raise ConfigError("is an empty folder.", file=path)
    return found.hexdigest()


def check_file(path: Path, *, key: str | None = None, hint: str = "Check the path.") -> None:
    """Raises ConfigError where there is no regular file of this name, with what there is."""
    try:
        _refuse_special(path, path.stat().st_mode, key)
    except FileNotFoundError as error:
        raise ConfigError("no such file.", file=path, key=key, hint=hint) from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}.", file=path, key=key) from error
    except ValueError as error:  # a NUL in the path
        raise ConfigError(f"{str(path)!r} is no path: {error}.", key=key) from error


def is_file(path: Path) -> bool:
    """Whether there is a regular file of this name; False, too, for names that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, links that lead back to themselves
        return False


def raised(limit_bytes: int) -> int:
    """The limit, or what the environment allows where that is more.

    Raises:
        ConfigError: the variable holds no number.
    """
    return max(limit_bytes, int(number_of(LIMIT_VARIABLE, 0.0) * (1 << 30)))


def size_text(size_bytes: int) -> str:
    """1536 → '1.5 KiB'."""
    size = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def special_kind(mode: int) -> str:
    """What something is that is no regular file, with its article; '' for one that is."""
    return "" if stat.S_ISREG(mode) else next((words for is_kind, words in _KINDS if is_kind(mode)), "no file")


def _refuse_special(path: Path, mode: int, key: str | None) -> None:
    if kind := special_kind(mode):
        raise ConfigError(f"is {kind}, not a regular file.", file=path, key=key, hint="Name a file on a disk.")


def _too_large(path: Path, size_bytes: int | None, limit_bytes: int, key: str | None) -> ConfigError:
    has = "has no end" if size_bytes is None else f"has {size_text(size_bytes)}"
    return ConfigError(
        f"{has}; at most {size_text(raised(limit_bytes))} are read.",
        file=path,
        key=key,
        hint=f"Is it the right file? {LIMIT_VARIABLE}=N in the environment allows N GiB.",
    )
