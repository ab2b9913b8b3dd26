"""A node that does not see the driver's disk: the experiment comes from the shared store, and the sweep's small files
travel with the tasks.

    driver ──► what changed in its journal ──► a copy beside the node's process
    driver ◄── what the process wrote there (outcomes, times, records, logs) ◄── node

A node that sees the very journal (the same machine, or a disk that is shared) uses it as it is. The driver's journal
alone is ever read by a later run.
"""

from __future__ import annotations

import base64
import platform
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from workbench.evaluation.journal import ANCHORS, SWEEP, Journal
from workbench.search.executors.messages import Message
from workbench.values.documents.canonical import file_digest
from workbench.values.documents.sealed_json import Unsound, read_sealed, unsealed, write_sealed
from workbench.values.errors import ToolchainError
from workbench.values.system.files import temporary_beside

Files = dict[str, bytes]
"""Name below the journal → content."""

_FOLDERS = ("evaluations", "confirmations", "outcomes", "latency", "records", "logs")
_NAME = r"[\w-][\w.-]*"  # no `..`, and nothing hidden
_DOWN = re.compile(rf"(?:{'|'.join(_FOLDERS)})/{_NAME}|[a-z_]+\.json")
_UP = re.compile(rf"(?:outcomes|latency|records|logs)/{_NAME}|anchors\.json")
_WORKSPACE = Path(".cache") / "workbench" / "cluster"


def elsewhere(journal: Journal, inputs: str) -> Message:
    """What an opening says besides, for nodes that see another disk. The seal tells this sweep's journal from any other
    folder of its name."""
    return {"seal": file_digest(journal.root / SWEEP), "inputs": inputs}


def placed(opening: Message, owner: str) -> tuple[Message, Copy | None]:
    """What a process of this node is told, and the copy of the journal where it does not see the driver's.

    Args:
        owner: whose copy it is; no other process of this node's has the name.

    Raises:
        ToolchainError: the experiment cannot be had here.
    """
    there = Path(opening["journal"]) / SWEEP
    if there.is_file() and file_digest(there) == opening["seal"]:
        return opening, None
    if not opening["inputs"]:
        raise ToolchainError(
            f"{platform.node()} does not see {opening['journal']}, and the cluster has no store to take the experiment "
            "from. Name one that all machines reach: `store:` in the cluster's file, or --store."
        )
    from workbench.evaluation.shared_inputs import materialize_inputs  # few nodes need it
    from workbench.evaluation.shared_store import open_shared_store

    workspace = Path.home() / _WORKSPACE
    experiment = materialize_inputs(open_shared_store(opening["shared"]), opening["inputs"], workspace)
    root = workspace / "journals" / opening["seal"][:16] / owner
    root.mkdir(parents=True, exist_ok=True)
    mine = {
        "experiment": str(experiment),
        "workspace": str(workspace),
        "journal": str(root),
        "store": str(workspace / ".workbench" / "store"),
    }
    return {**opening, **mine}, Copy(root)


class Copy:
    """A node's copy of the journal. For one process at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._known = _stamps(root, _UP)

    def take(self, files: Files) -> None:
        """What changed at the driver's."""
        for name, content in files.items():
            if _DOWN.fullmatch(name):
                _write(self.root / name, content)
        self._known = _stamps(self.root, _UP)

    def news(self) -> Iterator[Message]:
        """What the process has written since, as messages to the driver."""
        now = _stamps(self.root, _UP)
        for name in sorted(name for name, stamp in now.items() if self._known.get(name) != stamp):
            data = base64.b64encode((self.root / name).read_bytes()).decode("ascii")
            yield {"kind": "file", "name": name, "data": data}
        self._known = now


class Mirror:
    """The driver's side, for one process of a node."""

    def __init__(self, journal: Journal) -> None:
        self._root = journal.root
        self._sent: dict[str, tuple[int, int]] = {}

    def changes(self) -> Files:
        """What the node does not have yet."""
        now = _stamps(self._root, _DOWN)
        names = [name for name, stamp in now.items() if self._sent.get(name) != stamp]
        self._sent = now
        return {name: (self._root / name).read_bytes() for name in sorted(names)}

    def keep(self, message: Message) -> None:
        """A file of `Copy.news`. Of anchors, those that this journal has stay."""
        name, content = str(message["name"]), base64.b64decode(message["data"])
        if not _UP.fullmatch(name):
            return
        if name != ANCHORS:
            _write(self._root / name, content)
            return
        try:
            mine = read_sealed(self._root / ANCHORS)
        except Unsound:
            mine = {}
        theirs = {key: value for key, value in unsealed(content).items() if isinstance(value, int | float)}
        if theirs.keys() - mine.keys():
            write_sealed(self._root / ANCHORS, {**theirs, **mine})


def at_home(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    """A message with the driver's paths instead of the node's."""
    for there, here in pairs:
        text = text.replace(there, here)
    return text


def paths_of(opening: Message) -> list[str]:
    """Those that messages may name."""
    return [str(opening["journal"]), str(opening["experiment"])]


def _stamps(root: Path, names: re.Pattern[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, Any] = {}
    for file in (*root.glob("*.json"), *(one for folder in _FOLDERS for one in (root / folder).glob("*"))):
        name = file.relative_to(root).as_posix()
        if names.fullmatch(name):
            status = file.stat()
            found[name] = (status.st_size, status.st_mtime_ns)
    return found


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with temporary_beside(file, durable=False) as draft:
        draft.write_bytes(content)
