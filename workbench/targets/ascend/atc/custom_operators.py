"""Custom operators that a candidate is compiled with: their folder, and that it is still what the space named."""

from __future__ import annotations

from pathlib import Path

from workbench.targets.ascend.atc.passed import CUSTOM_OPERATORS
from workbench.targets.ascend.settings import AscendCompile
from workbench.values.documents.input_files import folder_digest
from workbench.values.errors import CompileError, ConfigError

VARIABLE = "ASCEND_CUSTOM_OPP_PATH"


def operators_environment(settings: AscendCompile) -> dict[str, str]:
    """The variable that ATC looks for custom operators in; nothing where the candidate names none, and then what the
    user's environment says stays.

    Raises:
        CompileError: the folder is gone, or holds something else than when the space was read.
    """
    named = dict(settings.options).get(CUSTOM_OPERATORS)
    if named is None:
        return {}
    path, _, wanted = named.rpartition("@")
    try:
        found = folder_digest(Path(path))
    except ConfigError as error:
        raise CompileError(f"compile.{CUSTOM_OPERATORS}: {error}") from error
    if found != wanted:
        raise CompileError(
            f"compile.{CUSTOM_OPERATORS}: {path} holds something else (sha256 {found[:12]}) than when the space was "
            f"read ({wanted[:12]}). Put it back, or begin a new sweep with --fresh."
        )
    return {VARIABLE: path}
