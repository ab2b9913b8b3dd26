"""The command line: its headings, which command stands where, and one exit code for each kind of error.

A command is one door to one module; heavy libraries are imported inside it.
"""

from __future__ import annotations

import atexit
import faulthandler
import logging
import os
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from workbench import __version__
from workbench.commands import llm, prepare, release, search, ship, study
from workbench.commands.around import cache, cluster, emulator
from workbench.commands.baseline import baseline
from workbench.commands.capacity import plan_capacity
from workbench.commands.console import note, out
from workbench.commands.load import load
from workbench.commands.options import arranged
from workbench.commands.serve import api_key, keygen, serve, sign
from workbench.values.documents.canonical import DecodeError
from workbench.values.errors import ClusterLostError, WorkbenchError
from workbench.values.exit_codes import ended_by_signals, exit_code_of
from workbench.values.system.scratch import remove_abandoned

TASKS: dict[str, tuple[Callable[..., None], ...]] = {
    "Prepare": (*(prepare.doctor, prepare.inspect, prepare.space, prepare.init, prepare.convert, prepare.example),),
    "Search": (search.sweep, search.plan, search.show, search.evaluate, search.ui, search.log),
    "Ship": (
        *(ship.export, ship.verify, ship.agreement, serve, api_key, load, plan_capacity, ship.report),
        *(release.promote, release.rollback, release.releases, sign, keygen),
    ),
    "Study one model": (study.calibrate, study.sensitivity, study.compare, study.profile, study.repair, study.tune),
    "Language models": (llm.calibrate_llm, llm.evaluate_llm, llm.export_llm),
    "Around it": (cache, cluster),
}
"""What commands are for: the headings of `workbench --help`, in the order in which a user needs them."""

FORMER = {
    "fidelity": "agreement",
    "--fidelity": "--agreement",
    "judge-llm": "evaluate-llm",
    "--max-drop-pp": "--max-loss-pp",
    "--max-drop": "--max-loss",
}
"""What a command and an option were called before; still understood."""

app = typer.Typer(
    name="workbench",
    help="Find the fastest INT8, fusion and serving settings of an ONNX model that keep its accuracy, and ship them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command line; every error the workbench raises on purpose becomes one message and an exit code.

    The codes stand in `workbench.values.exit_codes`.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    faulthandler.enable()  # where a crash inside of a runtime came from; models of others are opened in a process apart
    with ended_by_signals():
        remove_abandoned()
        try:
            for place, written in enumerate(sys.argv):
                word, *value = written.split("=", 1)
                if word in FORMER and (place == 1 or word.startswith("--")):
                    sys.argv[place] = "=".join([FORMER[word], *value])
                    note("note", f"{word} is called {FORMER[word]} now")
            app()
        except (WorkbenchError, DecodeError) as error:
            said = f"a stored file does not fit this version: {error}" if isinstance(error, DecodeError) else str(error)
            note("error", said, "bold red")
            if isinstance(error, ClusterLostError):
                _leave(exit_code_of(error))
            raise SystemExit(exit_code_of(error)) from error


def _leave(code: int) -> NoReturn:
    """End without the destructors of C++ libraries: one of Ray's has crashed there (exit code -11),
    with its threads still waiting for a head that is gone."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="print the version")] = False) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit


for task, commands in TASKS.items():
    for command in commands:
        app.command(rich_help_panel=task)(arranged(command))
app.add_typer(baseline, rich_help_panel="Ship")
app.add_typer(emulator, rich_help_panel="Around it")
