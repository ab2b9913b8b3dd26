"""A set of compiled files run in a process of its own: `python -m workbench.targets.ascend.dump.run FOLDER`.

The folder holds request.json and feeds.npz. What is dumped meanwhile is acl.json's to say (`process.ACL_CONFIG`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from workbench.targets.apart import run_apart
from workbench.targets.ascend.acl.process import ACL_CONFIG
from workbench.targets.ascend.acl.session import open_session
from workbench.targets.base import Array, Feeds
from workbench.values.artifact import Artifact
from workbench.values.documents.canonical import canonical_json, decode
from workbench.values.documents.json_reader import loads
from workbench.values.errors import MeasureError, WorkbenchError
from workbench.values.system.scratch import scratch_folder

TIMEOUT_S = 900.0
_REQUEST, _FEEDS = "request.json", "feeds.npz"


def run_set(directory: Path, artifact: Artifact, feeds: Sequence[Feeds], *, log: Path, config: Path) -> None:
    """Run the feeds once each.

    Args:
        config: acl.json.

    Raises:
        MeasureError: it fails or takes too long; carries the log.
    """
    with scratch_folder("device-run") as folder:
        request = {"directory": directory.resolve(), "artifact": artifact}
        (folder / _REQUEST).write_text(canonical_json(request), encoding="utf-8")
        arrays: dict[str, Any] = {f"{i}/{name}": array for i, feed in enumerate(feeds) for name, array in feed.items()}
        np.savez(folder / _FEEDS, **arrays)
        here = str(Path(__file__).parents[4])
        path = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), ACL_CONFIG: str(config)}
        command = [sys.executable, "-m", __spec__.name if __spec__ else __name__, str(folder)]
        ended = run_apart(command, environment=environment, timeout_s=TIMEOUT_S, log=log)
        if ended.code != 0:
            raise MeasureError(f"running {directory} on the device {ended.words}", log_path=log)


def _main(folder: Path) -> None:
    request = loads((folder / _REQUEST).read_bytes())
    feeds: dict[int, dict[str, Array]] = {}
    with np.load(folder / _FEEDS, allow_pickle=False) as arrays:
        for key in arrays.files:
            index, _, name = key.partition("/")
            feeds.setdefault(int(index), {})[name] = arrays[key]
    session = open_session(Path(request["directory"]), decode(Artifact, request["artifact"]))
    try:
        for index in sorted(feeds):
            session.run(feeds[index])
    finally:
        session.close()


if __name__ == "__main__":
    try:
        _main(Path(sys.argv[1]))
    except WorkbenchError as failed:
        sys.stderr.write(f"{failed}\n")
        sys.exit(1)
