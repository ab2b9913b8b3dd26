"""A command in this process."""

from typer.testing import CliRunner, Result

from workbench.commands.cli import app


def run(*words: object, **environment: str) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200", **environment})
