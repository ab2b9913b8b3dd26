"""Folders that a candidate is compiled with, custom operators and an operator bank, and that each is still what the
space named."""

from __future__ import annotations

import shutil
from pathlib import Path

from workbench.targets.ascend.atc.flags import BANK, CUSTOM_OPERATORS
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.documents.input_files import folder_digest
from workbench.values.errors import CompileError, ConfigError

VARIABLE = "ASCEND_CUSTOM_OPP_PATH"


def operators_environment(settings: AscendCompile) -> dict[str, str]:
    """The variable that ATC looks for custom operators in; nothing where the candidate names none.

    Raises:
        CompileError: the folder is gone, or holds something else than when the space was read.
    """
    folder = _named(settings, CUSTOM_OPERATORS)
    return {} if folder is None else {VARIABLE: str(folder)}


def copied_bank(settings: AscendCompile, to: Path) -> dict[str, Path]:
    """Flag → a copy of the operator bank below `to`, so that nothing changes it while ATC reads, and that its own path
    is not in the OM; nothing where the candidate names none.

    Raises:
        CompileError: as `operators_environment`.
    """
    folder = _named(settings, BANK)
    return {} if folder is None else {BANK: _named(settings, BANK, shutil.copytree(folder, to / BANK)) or folder}


def _named(settings: AscendCompile, option: str, copy: Path | None = None) -> Path | None:
    """The folder, or its copy, once it holds what was named."""
    named = dict(settings.options).get(option)
    if named is None:
        return None
    path, _, wanted = named.rpartition("@")
    try:
        found = folder_digest(copy or Path(path))
    except ConfigError as error:
        raise CompileError(f"compile.{option}: {error}") from error
    if found != wanted:
        raise CompileError(
            f"compile.{option}: {path} holds something else (sha256 {found[:12]}) than when the space was "
            f"read ({wanted[:12]}). Put it back, or begin a new sweep with --fresh."
        )
    return copy or Path(path)
