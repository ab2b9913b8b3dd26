"""Files behind a URL, through fsspec: every call ends, and whatever goes wrong is `Away`.

A library of some kind of storage raises what it likes and waits as long as it likes, an NFS mount without end. So each
call runs in a thread of its own that is left behind when it does not answer, and all its errors but a missing file
become one. While several are left so, nothing more is asked.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from workbench.values.errors import ConfigError
from workbench.values.versions import install_command

T = TypeVar("T")

PATIENCE_S = 20.0
"""What one call may take: a look, or one block."""
BLOCK_BYTES = 1 << 23
_SCHEMES = ("file", "s3")
_SECRET = re.compile(
    r"(?i)(?:secret|token|password|signature)[\w-]*\s*[=:]\s*[^\s,;&]+|credential=[^\s&]+|(?<=://)[^/\s@]+@"
)
_MOST_LEFT = 8
"""Threads that may wait on behind us; each comes back with the answer, or with the store."""
_SHORTEST_SECRET = 8
_MOST_WORDS = 300


class Away(Exception):
    """The shared store does not do what it was asked, now. The message is the reason, without a full stop."""


class Remote:
    """The files below one URL; safe to use from several threads."""

    def __init__(self, url: str, *, patience_s: float = PATIENCE_S) -> None:
        """Nothing is asked of the other side yet.

        Raises:
            ConfigError: the URL is of a kind that is not known here, or its package is not installed.
        """
        self.url, self.patience_s = checked_url(url), patience_s
        scheme, _, rest = self.url.partition("://")
        self._fs = _file_system(scheme)
        self._root, self._renames = rest, scheme == "file"
        self._left: list[threading.Thread] = []

    def at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def size(self, path: str) -> int | None:
        """Bytes of a regular file; None where there is none."""
        try:
            info: dict[str, Any] = self._call(lambda: self._fs.info(self.at(path)))
        except FileNotFoundError:
            return None
        # a link or a device in a shared folder may lead anywhere
        return int(info["size"]) if info["type"] == "file" and not info.get("islink") else None

    def read(self, path: str, *, most: int) -> bytes | None:
        """A small file; None where there is none, or none of at most so many bytes."""
        size = self.size(path)
        return None if size is None or size > most else b"".join(self.blocks(path, size))

    def blocks(self, path: str, size_bytes: int) -> Iterator[bytes]:
        """The first so many bytes of a file in blocks; fewer where it ends earlier."""
        for start in range(0, size_bytes, BLOCK_BYTES):
            end = min(start + BLOCK_BYTES, size_bytes)
            try:
                yield bytes(self._call(partial(self._fs.cat_file, self.at(path), start=start, end=end)))
            except FileNotFoundError:
                return

    def write(self, path: str, blocks: Iterator[bytes]) -> None:
        """A file in place of any other: of a folder by a rename, elsewhere as the store completes what was sent.

        An exception of `blocks` goes through and leaves no file, or the one before.
        """
        place, draft = self.at(path), self.at(f"v1/uploads/{uuid.uuid4().hex}")
        file: Any = None

        def opened() -> Any:
            if not self._renames:
                return self._fs.open(place, "wb", block_size=2 * BLOCK_BYTES, autocommit=False)
            self._fs.info(self._root)  # never made here: it may be the place of a disk that is not mounted
            self._fs.makedirs(self._fs._parent(draft), exist_ok=True)
            return self._fs.open(draft, "xb")

        def put_in_place() -> None:
            if not self._renames:
                file.close()
                file.commit()
                return
            file.flush()
            os.fsync(file.fileno())
            file.close()
            self._fs.makedirs(self._fs._parent(place), exist_ok=True)
            self._fs.mv(draft, place)

        try:
            file = self._call(opened)
            for block in blocks:
                self._call(partial(file.write, block))
            self._call(put_in_place)
        except BaseException:
            with contextlib.suppress(Away, FileNotFoundError):
                if self._renames:
                    self._call(lambda: self._fs.rm_file(draft))
                elif file is not None:
                    self._call(file.discard)
            raise

    def _call(self, action: Callable[[], T]) -> T:
        self._left = [thread for thread in self._left if thread.is_alive()]
        if len(self._left) >= _MOST_LEFT:
            raise Away(f"{len(self._left)} calls wait for an answer")
        answer: Future[T] = Future()

        def work() -> None:
            try:
                answer.set_result(action())
            except FileNotFoundError as error:
                answer.set_exception(error if self._root_is_there(error) else Away(words_of(error)))
            except BaseException as error:  # of whatever kind: it belongs to the caller
                answer.set_exception(error)

        thread = threading.Thread(target=work, name="shared store", daemon=True)
        thread.start()
        try:
            return answer.result(self.patience_s)
        except (FileNotFoundError, Away):
            raise
        except Exception as error:
            if answer.done():
                raise Away(words_of(error)) from error
            self._left = [*self._left, thread]
            raise Away(f"no answer within {self.patience_s:g} s") from None

    def _root_is_there(self, missing: FileNotFoundError) -> bool:
        """Not where a bucket was misspelt, or a network folder is not mounted: that is another thing than no file."""
        if self._renames:
            return Path(self._root).is_dir()
        return "specified bucket does not exist" not in str(missing)


def checked_url(written: str) -> str:
    """The URL of a shared store in one form: `file:///…` or `s3://bucket/…`; a path is a folder's.

    Raises:
        ConfigError: it is of another kind, or carries what belongs into the environment.
    """
    url = written.strip()
    if "://" not in url and url:
        url = f"file://{Path(url).expanduser().absolute()}"
    scheme, _, rest = url.partition("://")
    if "@" in rest.partition("/")[0] or "?" in rest or "#" in rest:
        raise ConfigError(
            "the URL of the shared store carries more than a place.",
            key="store",
            hint="Credentials and options belong into the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and so on.",
        )
    relative = scheme == "file" and not rest.startswith("/")
    nowhere = any(part in ("", ".", "..") for part in rest.strip("/").split("/"))
    if scheme not in _SCHEMES or "::" in url or relative or nowhere:
        shown, hint = _SECRET.sub("…", written), "Write a folder, file:///folder or s3://bucket/prefix."
        raise ConfigError(f"{shown!r} is no shared store.", key="store", hint=hint)
    return f"{scheme}://{rest.rstrip('/')}"


def words_of(error: Exception) -> str:
    """An error of a library in one line without what looks like a secret."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {first}" if first else type(error).__name__
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        secret = os.environ.get(name, "")
        if len(secret) >= _SHORTEST_SECRET:  # a shorter one is no secret, and stands in many words
            text = text.replace(secret, "…")
    return _SECRET.sub("…", text)[:_MOST_WORDS].rstrip(".")


def _file_system(scheme: str) -> Any:
    import fsspec

    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if scheme == "s3":
        # every file is held against its sha256 here, and older servers refuse the checksums that newer clients add
        options["config_kwargs"] = {
            "connect_timeout": 5,
            "read_timeout": PATIENCE_S,
            "retries": {"max_attempts": 1},
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
    try:
        made = fsspec.filesystem(scheme, **options)
    except ImportError as error:
        raise ConfigError(
            f"a store at {scheme}:// needs a package that is not installed: {error}.",
            key="store",
            hint=f"Run: {install_command('cluster')}",
        ) from error
    if scheme == "s3":
        made.retries = 2
    return made
