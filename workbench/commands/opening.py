"""What several commands say: what is damaged, and which commands follow a sweep."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.commands.console import tell
from workbench.values.errors import ConfigError

if TYPE_CHECKING:  # types only: these modules pull numpy, onnx and onnxruntime
    from workbench.evaluation.journal import Journal
    from workbench.report import Summary


def tell_damage(journal: Journal | None) -> None:
    """One warning on stderr for each damaged file of a sweep, for commands that show no report."""
    if journal is None:
        return
    for damage in journal.damage():
        words = f"warning: damaged sweep {journal.root}: {damage.words()}."
        tell(words, style="yellow")


def tell_damage_of_last(workspace: Path, name: str) -> None:
    """The same of an experiment's last sweep, for commands that need none."""
    from workbench.evaluation.sweep_folders import current_journal

    with contextlib.suppress(ConfigError):  # one of another revision says nothing of damage
        tell_damage(current_journal(workspace, name))


def next_lines(experiment: Path, workspace: Path | None, summary: Summary) -> list[str]:
    """The commands that follow a sweep: see its pages, ship what it recommends (nothing, where it recommends none)."""
    given = [str(experiment)] if workspace is None else [str(experiment), "--workspace", str(workspace)]
    found = [f"to open them:    {shlex.join(['workbench', 'ui', *given])}"]
    if summary.recommended is not None:
        emulated = ["--allow-emulated"] if summary.emulated else []
        found.append(f"to ship it:      {shlex.join(['workbench', 'export', *given, '--to', 'bundle', *emulated])}")
    return found
