"""Which sweep of an experiment is gone on with, or a new one begun; and one process at a time that writes it."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from pathlib import Path

from workbench.evaluation.journal import CONTENTS, NOTHING, SWEEP, VERSION, Journal
from workbench.values.documents.sealed_json import Unsound, read_sealed, write_sealed
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import lock_file, writing
from workbench.values.system.scratch import scratch_folder


def current_journal(workspace: Path, experiment_name: str) -> Journal | None:
    """The newest sweep of an experiment, or None when there was none.

    Raises:
        ConfigError: another revision of the workbench wrote it.
    """
    numbers = _numbers(_folder(workspace, experiment_name))
    if not numbers:
        return None
    journal = Journal(root=_folder(workspace, experiment_name) / f"{numbers[-1]:04d}")
    with contextlib.suppress(Unsound):  # a damaged one says nothing
        if (version := read_sealed(journal.root / SWEEP)["version"]) != VERSION:
            raise ConfigError(
                f"the sweep in {journal.root} was written by another revision of the workbench (version {version!r} of "
                f"its files; this one reads {VERSION}, in which every file carries a digest).",
                hint="Start a new one with --fresh (the old results are kept), or use that revision.",
            )
    return journal


def open_journal(workspace: Path, experiment_name: str, identity: str, *, fresh: bool = False) -> Journal:
    """The sweep to go on with: the newest one, or a new one when there is none or `fresh` asks for it.

    Raises:
        ConfigError: the newest sweep answered another question (its identity differs), or another revision of the
            workbench wrote it; nothing is touched.
        ToolchainError: the workspace cannot be written, or it cannot be told what the newest sweep answered.
    """
    journal = None if fresh else current_journal(workspace, experiment_name)
    if journal is not None:
        if journal.sweep()["identity"] != identity:
            raise ConfigError(
                f"the sweep in {journal.root} was made with another model, data, space, objective or constraint.",
                key=experiment_name,
                hint="Start a new one with --fresh (the old results are kept), or give the experiment another name.",
            )
        return journal
    folder = _folder(workspace, experiment_name)
    numbers = _numbers(folder)
    root = folder / f"{(numbers[-1] + 1) if numbers else 1:04d}"
    # to the microsecond: sweeps of several machines that begin together are told apart by it on a shared server
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    with writing(root, "Check its owner and free space."):
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_folder("new", inside=folder) as made:
            draft = made / root.name
            draft.mkdir()
            sweep = {"version": VERSION, "identity": identity, "began": began}
            write_sealed(draft / SWEEP, sweep)
            write_sealed(draft / CONTENTS, {**NOTHING, "sweep": sweep})
            draft.rename(root)
    return Journal(root=root)


@contextlib.contextmanager
def exclusive(journal: Journal) -> Iterator[None]:
    """Hold the sweep's lock; the kernel releases it when the process dies, however it dies.

    Raises:
        ToolchainError: another process runs this sweep; the message names it.
    """
    with lock_file(journal.root / "lock", owner=str(os.getpid())) as lock:
        if not lock.held:
            raise ToolchainError(
                f"process {lock.holder or 'unknown'} is running this sweep already ({journal.root}). "
                "Wait for it, or stop it; its results are kept."
            )
        yield


def _folder(workspace: Path, experiment_name: str) -> Path:
    return workspace / ".workbench" / "sweeps" / experiment_name


def _numbers(folder: Path) -> list[int]:
    """Of the sweeps that are there, damaged ones too; a folder appears whole."""
    return sorted(int(p.name) for p in folder.glob("[0-9]*") if p.name.isdigit() and any(p.iterdir()))
