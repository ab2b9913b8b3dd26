"""A command in this process, on a console of 200 columns."""

import sys

import pytest
from typer.testing import CliRunner, Result

from workbench.commands.cli import app
from workbench.commands.console import out


def run(*words: object, **environment: str) -> Result:
    typed = [str(word) for word in words]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(out, "width", 200)  # it took its width when it was imported, from whatever ran first
        patch.setattr(sys, "argv", ["workbench", *typed])  # as in a process of its own
        return CliRunner().invoke(app, typed, env={"COLUMNS": "200", **environment})
