"""Answers kept as they come, so that a recording that was killed goes on where it was."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.values.documents.canonical import digest

Json = dict[str, Any]


class Parts:
    """JSON answers by content of their key, below one folder, and a line on screen for each that is made."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.began = folder, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, kind: str, key: object, make: Callable[[], Json], *, place: str = "") -> Json:
        """The answer of `key`, made now where it is not there; `place` says how far the recording is."""
        file = self.folder / f"{kind}-{digest(key)[:24]}.json"
        if file.exists():
            found: Json = json.loads(file.read_text(encoding="utf-8"))
            return found
        began = time.monotonic()
        made = make()
        aside = file.with_suffix(".tmp")
        aside.write_text(json.dumps(made), encoding="utf-8")
        aside.replace(file)
        now = time.monotonic()
        print(f"{now - self.began:7.0f} s  {kind:<10} {place:<12} {now - began:6.1f} s", flush=True)
        return made
