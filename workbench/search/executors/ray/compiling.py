"""Compiling as plain tasks: anywhere with free processors, started again when a worker or node dies over it."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors.base import TimeUp
from workbench.search.executors.child import ChildProcess
from workbench.search.executors.lifecycle import log_again
from workbench.search.executors.messages import Message, decode_error
from workbench.search.executors.ray.connection import Watch, imported_ray, within
from workbench.search.executors.ray.elsewhere import elsewhere
from workbench.search.executors.ray.host import compiled
from workbench.search.executors.ray.nodes import Need
from workbench.search.executors.ray.settings import ClusterSettings
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import decode
from workbench.values.errors import CrashError, ToolchainError
from workbench.values.results import StageTiming

_log = logging.getLogger(__name__)

_POLLED_S = 2.0
"""An answer ends the wait at once; this is how often the head is looked at."""
_RETRIES = 3


class TaskCompiler:
    """A `Compiler` on the cluster: one candidate at a time, each a task."""

    def __init__(
        self, experiment: Experiment, bench: Bench, need: Need, settings: ClusterSettings, watch: Watch
    ) -> None:
        self._bench, self._watch, self._limit_s = bench, watch, settings.silent_s
        opening = ChildProcess(experiment, bench, compiler=0).opening()  # whoever compiles puts its own number
        self._opening = opening | elsewhere(bench.journal, need.inputs)
        self._environment = dict(need.environment)
        self._ray = imported_ray()
        label = settings.compile_label
        self._task: Any = self._ray.remote(compiled).options(
            num_cpus=settings.compile_processors,
            resources={label: 1} if label else {},
            max_retries=_RETRIES,
            retry_exceptions=False,
        )

    def compile(self, candidate: Candidate, *, until: float | None = None) -> tuple[StageTiming, ...]:
        """As `Compiler.compile`; nothing where no node can do it, which the evaluation then meets itself."""
        self._bench.report(candidate, "compile")
        task = json.dumps({"task": "compile", "candidate": candidate.to_json()})
        asked = within(self._watch, lambda: self._task.remote(json.dumps(self._opening), task, self._environment))
        began = time.monotonic()
        try:
            while not self._ray.wait([asked], timeout=_patience_s(until))[0]:
                self._watch.check()
                if until is not None and time.perf_counter() >= until:
                    raise TimeUp("compile")
                if time.monotonic() - began > self._limit_s:
                    raise CrashError(f"nothing was heard of its compile for {self._limit_s:g} s.", stage="compile")
            return self._answer([json.loads(text) for text in self._ray.get(asked)], candidate)
        except self._ray.exceptions.RayTaskError:
            raise  # a mistake of ours, and no bad luck: it is not tried again
        except self._ray.exceptions.RayError as error:
            raise CrashError(f"what compiled it died {_RETRIES + 1} times: {error}", stage="compile") from error
        except BaseException:
            if not self._watch.gone:
                self._ray.cancel(asked, force=True)
            raise

    def _answer(self, said: list[Message], candidate: Candidate) -> tuple[StageTiming, ...]:
        for message in said:
            match message["kind"]:
                case "log":
                    log_again(message)
                case "answer":
                    return decode(tuple[StageTiming, ...], message["value"])
                case "error":
                    error = decode_error(message)
                    if not isinstance(error, ToolchainError):
                        raise error
                    _log.warning("%s is not compiled ahead: %s", candidate.short_id, error)
                    return ()
        raise CrashError(f"the process that compiled it died. {said[-1].get('last', '')}", stage="compile")


def _patience_s(until: float | None) -> float:
    return _POLLED_S if until is None else max(0.0, min(_POLLED_S, until - time.perf_counter()))
