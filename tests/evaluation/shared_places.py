"""Where a shared store may lie, for one suite over all of them; and faults put between it and the workbench."""

import errno
import hashlib
import os
import subprocess
import sys
import textwrap
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from workbench.evaluation.shared_store import SharedStore
from workbench.evaluation.store import Store
from workbench.values.documents.canonical import digest


def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket; whoever opens it finds the server and its credentials in the environment, children too."""
    import s3fs

    name = f"bucket-{uuid.uuid4().hex}"
    for variable, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "not-to-be-logged",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(variable, value)
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir(name)
    return f"s3://{name}/workbench"


@dataclass
class Faults:
    """What stands between the workbench and fsspec's file system, as an own fault of the latter would.

    Attributes:
        refuse: of these calls, with this error; writing is `open`, `makedirs`.
        hang: these calls never answer, until the test is over.
    """

    system: Any
    refuse: dict[str, Exception] = field(default_factory=dict)
    hang: set[str] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)
    calls: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.system, name)
        if not callable(real):
            return real

        def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self.hang:
                self.over.wait(60)
            if name in self.refuse:
                raise self.refuse[name]
            return real(*arguments, **options)

        return call

    def refuse_writes(self, error: Exception | None = None) -> None:
        error = error or OSError(errno.ENOSPC, "No space left on device")
        self.refuse = dict.fromkeys(("open", "makedirs"), error)

    def refuse_all(self) -> None:
        self.refuse_writes(ConnectionError("no route to host"))
        self.refuse |= dict.fromkeys(("info", "cat_file", "ls", "rm_file"), self.refuse["open"])


class Team:
    """Machines that share one store, each with a local store and a list of what it was told."""

    def __init__(self, url: str, root: Path) -> None:
        self.url, self._root = url, root
        self._open: list[Store] = []
        self._faults: list[Faults] = []

    def machine(self, name: str) -> tuple[Store, list[str], Faults]:
        said: list[str] = []
        shared = self.shared(said.append)
        faults = Faults(system=shared.remote._fs)
        shared.remote._fs = faults
        self._faults.append(faults)
        store = Store(self._root / name, shared=shared, report=said.append)
        self._open.append(store)
        return store, said, faults

    def shared(self, report: Callable[[str], None] = print, patience_s: float = 60.0) -> SharedStore:
        return SharedStore(self.url, report=report, patience_s=patience_s)

    def close(self) -> None:
        for faults in self._faults:
            faults.over.set()
            faults.refuse, faults.hang = {}, set()
        for store in self._open:
            store.close()


class Builder:
    """Writes two files and counts how often."""

    def __init__(self, content: bytes = b"content", at: str = "deep/file.bin") -> None:
        self.content, self.at, self.calls = content, at, 0

    def __call__(self, to: Path) -> None:
        self.calls += 1
        (to / self.at).parent.mkdir(parents=True, exist_ok=True)
        (to / self.at).write_bytes(self.content)
        (to / "empty").write_bytes(b"")


def stored(shared: SharedStore, below: str) -> list[str]:
    """Every file below a folder of the shared store."""
    return list(shared.remote._fs.find(shared.remote.at(below)))


def child(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """A process that runs Python code, whose standard input and output are pipes."""
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    root = Path(__file__).parents[2]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)


def on_its_own_mount(place: Path, options: str, program: str, *arguments: object) -> list[str]:
    """The lines that a program prints whose `place` is a tmpfs with these options, gone with the process."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    given = " ".join(map(str, arguments))
    script = f"mount -t tmpfs -o {options} tmpfs {place} || exit 77\nexec {sys.executable} - {given} <<'PYTHON'\n"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{script}{textwrap.dedent(program)}\nPYTHON\n"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode in (1, 77) and not done.stdout and "Traceback" not in done.stderr:
        pytest.skip(f"no private mount here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def put(shared: SharedStore, path: str, content: bytes) -> None:
    shared.remote.write(path, iter((content,)))


KEY = {"model": "abc"}

NAME = digest(KEY)

ENTRY = f"v1/entries/artifact/{NAME[:2]}/{NAME}.json"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def file_of(content: bytes) -> str:
    return f"v1/files/{sha(content)[:2]}/{sha(content)}"


def published(team: Team, content: bytes = b"content", name: str = "one") -> None:
    store, said, _ = team.machine(name)
    store.get_or_build("artifact", KEY, Builder(content))
    store.close()
    assert said == []
