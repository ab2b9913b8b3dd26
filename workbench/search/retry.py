"""A candidate whose evaluation process dies is tried again, and given up when it dies of it too often."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.executors import Executor, Task
from workbench.search.failure import failed_evaluation
from workbench.values.errors import MAX_CRASHES, CrashError
from workbench.values.results import MAX_ATTEMPTS, Evaluation

_log = logging.getLogger(__name__)


def survived(
    experiment: Experiment,
    bench: Bench,
    executor: Executor,
    task: Task,
    *,
    crashes: int = 0,
    crashed: Callable[[int], None] = lambda crashes: None,
    until: float | None = None,
) -> Evaluation:
    """What became of a candidate, which takes its evaluation process down at most `MAX_CRASHES` times, and in a
    first look once.

    Args:
        crashes: of this candidate so far.
        crashed: told the new count before anything else is done, so that it survives this process.
        until: moment of `time.perf_counter` at which the evaluation is ended.

    Raises:
        TimeUp: it was ended.
    """
    while True:
        try:
            return executor.evaluate(task, until=until)
        except CrashError as crash:
            crashes += 1
            crashed(crashes)
            told = crash
            if crashes < MAX_CRASHES:
                _log.warning("%s, at %s: %s It is evaluated once more.", task.candidate.short_id, crash.stage, crash)
                if not task.look:
                    continue
            else:
                told = CrashError(f"it crashed {crashes} times; {crash}", stage=crash.stage, log_path=crash.log_path)
            failed = failed_evaluation(experiment, task.candidate, bench, task.split, told)
            return replace(failed, attempt=MAX_ATTEMPTS)
