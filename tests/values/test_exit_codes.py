"""Every error has one exit code, whatever command or program it ends."""

import pytest

from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import BundleError, CompileError, ConfigError, ToolchainError
from workbench.values.exit_codes import FAILED, MACHINE, USER, exit_code_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong."), USER),
        (DecodeError("old."), USER),
        (ToolchainError("full."), MACHINE),
        (BundleError("damaged."), FAILED),
        (CompileError("refused."), FAILED),
    ],
)
def test_an_error_says_who_can_act_on_it(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code
