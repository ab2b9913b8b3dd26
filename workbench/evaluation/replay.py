"""An artifact handed to another process: what to open and what to feed it, in a folder.

A process of its own is needed where a measurement is about the process (its memory), or where a vendor's tool runs a
program under its eyes (a profiler). `python -m workbench.evaluation.replay FOLDER CALLS` opens the artifact and runs
the feeds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets import open_target
from workbench.targets.base import Array, Feeds, Session
from workbench.values.artifact import Artifact
from workbench.values.candidate import Candidate, candidate_from_json
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.errors import WorkbenchError

REQUEST, FEEDS = "request.json", "feeds.npz"
FAILED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to open, and the batches to run."""

    directory: Path
    artifact: Artifact
    candidate: Candidate
    feeds: tuple[Feeds, ...]

    def open(self) -> Session:
        return open_target(self.candidate.target).open(self.artifact, self.directory, self.candidate)


def write_request(
    folder: Path, directory: Path, artifact: Artifact, candidate: Candidate, feeds: Sequence[Feeds]
) -> None:
    """Args: directory: where the artifact's files lie."""
    request = {"directory": directory.resolve(), "artifact": artifact, "candidate": candidate.to_json()}
    (folder / REQUEST).write_text(canonical_json(request), encoding="utf-8")
    arrays: dict[str, Any] = {f"{i}/{name}": array for i, feed in enumerate(feeds) for name, array in feed.items()}
    np.savez(folder / FEEDS, **arrays)


def read_request(folder: Path) -> Request:
    request = json.loads((folder / REQUEST).read_text(encoding="utf-8"))
    feeds: dict[int, dict[str, Array]] = {}
    with np.load(folder / FEEDS, allow_pickle=False) as arrays:
        for key in arrays.files:
            index, _, name = key.partition("/")
            feeds.setdefault(int(index), {})[name] = arrays[key]
    return Request(
        directory=Path(request["directory"]),
        artifact=decode(Artifact, request["artifact"]),
        candidate=candidate_from_json(request["candidate"]),
        feeds=tuple(feeds[index] for index in sorted(feeds)),
    )


def _run(folder: Path, calls: int) -> None:
    request = read_request(folder)
    session = request.open()
    try:
        for call in range(calls):
            session.run(request.feeds[call % len(request.feeds)])
    finally:
        session.close()


if __name__ == "__main__":
    try:
        _run(Path(sys.argv[1]), int(sys.argv[2]))
    except WorkbenchError as failed:
        sys.stderr.write(f"{failed}\n")
        sys.exit(FAILED)
