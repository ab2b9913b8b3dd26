"""`workbench emulator`: starts the CANN emulator's own program. Nothing of the workbench imports the emulator.

eval "$(workbench emulator env)"
"""

from __future__ import annotations

import sys
from pathlib import Path

import typer

from workbench.values.system.lifeline import run_tied

_RUN = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('workbench.cann_emulator', run_name='__main__', alter_sys=True)"
)
"""This very workbench, wherever it lies: its folder goes to the child by argument, and PYTHONPATH stays as it is."""

emulator = typer.Typer(
    name="emulator",
    help="Rehearse on an emulated CANN 8.5.0 with a 910B3; every result says that it is emulated.",
    no_args_is_help=True,
    add_completion=False,
)
_PROGRAMS = {
    "env": 'Print the lines that switch it on, for eval "$(…)". Options: --root --devices --hbm-mb.',
    "fit": "Fit the emulator's model of time to an msprof summary of a real device.",
    "remove": "Delete what `env` wrote: --root DIR, or all of it in the user's cache.",
}


def _start(context: typer.Context) -> None:
    """Its words go through as they are; so does its exit code."""
    package, words = Path(__file__).parents[2], [str(context.info_name), *context.args]
    code = run_tied([sys.executable, "-P", "-c", _RUN, str(package), *words])
    if code:
        raise typer.Exit(code if code > 0 else 1)


for _name, _text in _PROGRAMS.items():
    given = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
    emulator.command(_name, help=_text, context_settings=given)(_start)
