"""The program that evaluates for a sweep: `workbench.search.executors.child` starts it and says what to do.

    evaluation_process DESCRIPTOR PARENT      (a socket it has inherited, and the process id of the sweep)

It ends when the sweep does, and by nothing that is meant for the sweep: Ctrl-C, SIGTERM and SIGHUP are the sweep's to
answer. Evaluations are told to the sweep, which alone writes them; what belongs to them (outcomes, times, records,
logs) is in the journal before.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from workbench.evaluation.bench import Bench, open_bench
from workbench.evaluation.journal import Journal
from workbench.evaluation.shared_store import STORE_VARIABLE, SharedStore
from workbench.evaluation.store import Store
from workbench.inputs.experiment import Experiment, read_experiment
from workbench.search.executors.base import Line, Message, answer, encode_error
from workbench.values.candidate import Candidate
from workbench.values.errors import ConfigError, ToolchainError
from workbench.values.system.files import lock_file
from workbench.values.system.lifeline import die_with

_WAIT_S = 60.0


def main(arguments: Sequence[str]) -> None:
    descriptor, parent = (int(argument) for argument in arguments)
    die_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # not SIG_IGN, which the compilers and services started here would inherit
        signal.signal(number, lambda *_: None)
    faulthandler.enable()
    os.set_inheritable(descriptor, False)  # the sweep must see it close, whatever of ours is still alive
    line = Line(socket.socket(fileno=descriptor))

    def report(candidate: Candidate, stage: str) -> None:
        line.send({"kind": "stage", "stage": stage})

    def say(text: str) -> None:
        line.send({"kind": "say", "text": text})

    with contextlib.suppress(BrokenPipeError), contextlib.ExitStack() as stack:  # where the sweep is gone
        if (opening := next(line, None)) is None:
            return
        with _raised_there(line):
            experiment, bench = opened(opening, report, stack)
            line.send({"kind": "ready"})
            _log_to(line, opening["level"])
            for task in line:
                line.send({"kind": "began"})
                with _raised_there(line):
                    line.send({"kind": "answer", "value": answer(task, experiment, bench, say)})


@contextlib.contextmanager
def _raised_there(line: Line) -> Iterator[None]:
    """The sweep raises as its own what is raised here. By dying for want of memory a process counts as what it is."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # of any kind
        line.send(encode_error(error))


def opened(
    opening: Message, report: Callable[[Candidate, str], None], stack: contextlib.ExitStack
) -> tuple[Experiment, Bench]:
    """What a sweep opened, opened again in another process; `stack` holds it.

    Raises:
        ConfigError: it is another experiment by now.
        ToolchainError: a process of an ended sweep still has its place.
    """
    journal, card = Journal(root=Path(opening["journal"])), str(opening["card"])
    lock = "-".join(filter(None, ("evaluation", str(opening["alone"]))))
    # a process that a killed sweep has left may take a moment to die, its device with it
    alone = stack.enter_context(
        lock_file(journal.root / f"{lock}.lock", wait_s=_WAIT_S, owner=f"process {os.getpid()}")
    )
    if not alone.held:
        raise ToolchainError(f"{journal.root}: {alone.holder} still evaluates for a sweep that has ended. End it.")
    experiment = read_experiment(Path(opening["experiment"]), Path(opening["workspace"]))
    if experiment.identity != opening["identity"]:
        raise ConfigError(
            "it, its data, its model or its space was changed while the sweep was running.",
            file=opening["experiment"],
            hint="What was measured is kept. Change it back, or start a new sweep with --fresh.",
        )
    url = opening["shared"] or os.environ.get(STORE_VARIABLE)
    store = Store(Path(opening["store"]), shared=SharedStore(url) if url else None)
    stack.callback(store.close)

    return replace(experiment, seed=opening["seed"]), open_bench(experiment, journal, store, report, card)


def _log_to(line: Line, level: int) -> None:
    """From here on, what is logged goes to the sweep; while it opened, the sweep had said the same."""

    class Forward(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            line.send({"kind": "log", "name": record.name, "level": record.levelno, "text": record.getMessage()})

    logging.basicConfig(level=level, handlers=[Forward()], force=True)
