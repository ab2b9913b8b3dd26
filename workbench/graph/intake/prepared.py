"""The door to prepared models: made once for a source, an interface and this code, in a process with limits.

model = prepared(source, interface, folder)      # source itself where nothing is needed
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.graph.door import call_apart, libraries, open_foreign, user_cache
from workbench.graph.intake.preparation import prepare, wanted
from workbench.graph.read import read_model
from workbench.values.documents.canonical import decode, digest, encode
from workbench.values.errors import ConfigError
from workbench.values.interface import NOTHING_DECLARED, Interface
from workbench.values.model import Model, Origin
from workbench.values.system.files import lock_file, write_json_atomically, writing
from workbench.values.system.scratch import scratch_folder
from workbench.values.system.source_closure import closure_digest

PROVENANCE = "provenance.json"
_EFFORT = 10.0
"""Times what opening takes: several sessions, some hundred tries to find feeds, and the copies between steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What lies beside a prepared file; `file` is empty where the source needs nothing."""

    file: str
    sha256: str
    origin: Origin


def workspace_folder(workspace: Path) -> Path:
    return workspace / ".workbench" / "models"


def prepared(
    source: Model,
    interface: Interface = NOTHING_DECLARED,
    folder: Path | None = None,
    *,
    declared_in: Path | None = None,
) -> Model:
    """The model that everything works on: `source` itself where it needs nothing.

    Args:
        source: from `open_foreign`.
        folder: where prepared models are kept; the user's cache when None.
        declared_in: the file that the interface stands in, for messages about it.

    Raises:
        ConfigError: what only the user can know or change, with what to write.
        ToolchainError: the folder cannot be written.
    """
    try:
        if not wanted(source, interface):
            return source
        asked = [encode(part) for part in (interface.inputs, interface.axes, interface.state)]
        by = [closure_digest("workbench.graph.intake.preparation"), *libraries()]
        place = (folder or user_cache() / "models") / digest([source.sha256, *asked, *by])[:32]
        return _kept(source, place) or _made(source, interface, place)
    except ConfigError as error:
        if error.file is not None:
            raise
        file = declared_in if declared_in is not None and error.key is not None else source.path
        raise ConfigError(error.rule, file=file, key=error.key, hint=error.hint) from error


def _opened(source: Model, place: Path) -> Model:
    found = decode(Provenance, json.loads((place / PROVENANCE).read_text(encoding="utf-8")))
    if not found.file:
        return source
    model = open_foreign(place / found.file)
    if model.sha256 != found.sha256:
        raise ConfigError("is not the file that was prepared.", file=model.path)
    return replace(model, origin=replace(found.origin, path=source.path))


def _kept(source: Model, place: Path) -> Model | None:
    """What an earlier call made; None where it did not, or where a file is not what it was."""
    try:
        return _opened(source, place)
    except (OSError, ValueError, ConfigError):
        return None


def _made(source: Model, interface: Interface, place: Path) -> Model:
    with writing(place, "Free space or choose another workspace."):
        place.parent.mkdir(parents=True, exist_ok=True)
        with lock_file(place.with_suffix(".lock"), wait=True, remove=True):
            if (found := _kept(source, place)) is not None:
                return found
            with scratch_folder("prepare", inside=place.parent) as draft:
                (inside := draft / "model").mkdir()
                request = {"path": str(source.path), "interface": encode(interface), "folder": str(inside)}
                about = "preparing it (proofs by running included)"
                call_apart(source.path, source.size_bytes, prepare_here, request, about=about, effort=_EFFORT)
                if place.exists():  # of an earlier make that was damaged
                    place.rename(draft / "damaged")
                inside.rename(place)
            return _opened(source, place)


def prepare_here(path: str, interface: Any, folder: str) -> None:
    """`prepare`, as the process with limits is asked for it, with what was done beside the file."""
    source, to = read_model(Path(path)), Path(folder)
    done = prepare(source, decode(Interface, interface), to)
    kept = ("path", "sha256", "size_bytes", "opset", "inputs", "outputs")
    origin = Origin(**{name: getattr(source, name) for name in kept}, steps=() if done is None else done[1])
    file = "" if done is None else done[0].name
    model = read_model(to / file) if file else source
    write_json_atomically(to / PROVENANCE, Provenance(file=file, sha256=model.sha256, origin=origin))
