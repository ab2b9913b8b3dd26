"""How a running sweep shows itself: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from workbench.api.words import minutes
from workbench.inputs.experiment import Experiment
from workbench.report.scored import scored_by
from workbench.report.words import compiled_words, title
from workbench.values.candidate import Candidate
from workbench.values.metrics import metrics
from workbench.values.results import STAGES, Evaluation

_QUICK = ("check", "smoke")
"""Stages that are over before a line about them is read."""


def outcome_words(evaluation: Evaluation) -> str:
    """One evaluation in one phrase: its numbers, or why it has none."""
    numbers = metrics(evaluation)
    if evaluation.failure is not None:
        return f"failed at {evaluation.failure.stage}: {evaluation.failure.message.splitlines()[0]}"
    if evaluation.stop is not None:
        return f"stopped at {evaluation.stop.stage}: {evaluation.stop.reason}"
    accuracy = evaluation.measurement.accuracy
    assert accuracy is not None, "a complete evaluation has an accuracy"
    by = scored_by(accuracy)
    words = [f"{by.noun} {by.value_words(accuracy)}"]
    if by.drop_metric in numbers:
        words.append(f"drop {numbers[by.drop_metric]:+.2f} {by.drop_unit}")
    elif accuracy.proof:
        words.append(f"self-test: {accuracy.proof}")
    words.append(f"P50 {numbers['latency_p50_ms']:.2f} ms")
    words.append(f"{numbers['speedup']:.2f}x")
    service = evaluation.measurement.service
    if service is not None and service.best is not None:
        words.append(f"serves {service.best.throughput_per_s.value:.0f}/s ({service.best.settings})")
    elif service is not None:
        words.append(f"no service settings keep the limit (P99 {service.closest.p99_ms.value:.0f} ms at best)")
    return ", ".join([*words, *(["emulated"] if evaluation.toolchain.emulated else [])])


def interrupted_words(candidate: Candidate, stage: str) -> str:
    """Of a candidate that was in flight when its run ended."""
    return f"{candidate.short_id} was interrupted at {stage}; the same sweep begins with it when it goes on."


class Progress:
    """Hears what a sweep does. The live display lasts from `begin` to the end of the `with` block."""

    def __init__(
        self, experiment: Experiment, trials: int, console: Console, is_feasible: Callable[[Evaluation], bool]
    ) -> None:
        self.experiment, self.trials, self.console, self._is_feasible = experiment, trials, console, is_feasible
        self.began = time.monotonic()
        self.done = self.reused = 0
        self.best: Evaluation | None = None
        self._seconds: list[float] = []
        self._now: tuple[Candidate, str] | None = None
        self._confirming = False
        self._lines: list[str] = []
        self._live = Live(console=console, refresh_per_second=4, transient=True, get_renderable=self._render)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def begin(self) -> None:
        """The plan is said; from here on there is something to show."""
        if self.console.is_terminal:
            self._live.start()

    def stage(self, candidate: Candidate, stage: str) -> None:
        self._now = (candidate, stage)
        if not self.console.is_terminal and stage not in _QUICK:
            self._print(f"{'stage':>9}  {candidate.short_id}  {_stage_words(stage)}")

    def resumed(self, candidate: Candidate, stage: str | None) -> None:
        """It was in flight when an earlier run ended, and comes first now."""
        at = f" at {stage}" if stage is not None else ""
        self._tell(f"{'resumed':>9}  {candidate.short_id}  {self._words(candidate)}: was interrupted{at}, comes first")

    def in_flight(self) -> str:
        """What the search was evaluating when it was stopped; nothing where it was between two candidates."""
        return interrupted_words(*self._now) if self._now is not None and not self._confirming else ""

    def evaluated(self, evaluation: Evaluation, reused: bool) -> None:
        confirming = evaluation.split == "holdout"
        self._confirming = confirming
        if not confirming:
            self.done += 1
            self.reused += reused
            self._keep_best(evaluation)
        if reused:
            return
        self._now = None
        self._seconds.append(evaluation.seconds)
        count = "confirmed" if confirming else f"{self.done}/{self.trials}"
        what = f"{evaluation.candidate.short_id}  {self._words(evaluation.candidate)}"
        cut = f" (cut to the time: {', '.join(evaluation.cut)})" if evaluation.cut else ""
        files = compiled_words(evaluation.compiled, evaluation.shared)
        self._tell(
            f"{count:>9}  {what}: {outcome_words(evaluation)}{cut}{f' ({files})' if files else ''}",
            f" [{evaluation.seconds:.1f} s]",
        )

    def say(self, sentence: str) -> None:
        """Between evaluations: what happens to the front."""
        self._confirming = True
        self._tell(f"{'service':>9}  {sentence}")

    def _tell(self, line: str, more: str = "") -> None:
        """A line that stays, with something more where it is printed once."""
        if self.console.is_terminal:
            self._lines = [*self._lines[-5:], line]
        else:
            self._print(line + more)

    def _print(self, line: str) -> None:
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _words(self, candidate: Candidate) -> str:
        return title(candidate, self.experiment.baseline.id, engine=len(self.experiment.space.targets) > 1)

    def _keep_best(self, evaluation: Evaluation) -> None:
        if not self._is_feasible(evaluation):
            return
        if self.best is None or metrics(evaluation)["speedup"] > metrics(self.best)["speedup"]:
            self.best = evaluation

    def _left(self) -> str:
        if not self._seconds:
            return "not known yet"
        mean = sum(self._seconds) / len(self._seconds)
        return minutes((self.trials - self.done) * mean)

    def _render(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2))
        grid.add_row("experiment", Text(self.experiment.name, style="bold"))
        grid.add_row(
            "evaluated", f"{self.done} of {self.trials}" + (f" ({self.reused} from before)" if self.reused else "")
        )
        if self._now is not None:
            candidate, stage = self._now
            grid.add_row("candidate", f"{candidate.short_id}  {self._words(candidate)}")
            grid.add_row("stage", _stage_words(stage))
        if self.best is not None:
            grid.add_row("fastest so far", f"{self.best.candidate.short_id}  {outcome_words(self.best)}")
        grid.add_row("time", f"{minutes(time.monotonic() - self.began)} gone, at most {self._left()} left")
        return Group(*(Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in self._lines), grid)


def _stage_words(stage: str) -> str:
    return f"{stage} ({STAGES.index(stage) + 1} of {len(STAGES)})" if stage in STAGES else stage
