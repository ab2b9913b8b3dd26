"""How a running sweep shows itself, in lines: each candidate, and from time to time what is known."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console

from workbench.inputs.experiment import Experiment
from workbench.report.words import compiled_words, count_of, interval, p50_words, scored_by, title
from workbench.search.front import front_of, is_feasible
from workbench.values.candidate import Candidate
from workbench.values.evidence import SHORT, level_of, sources_of
from workbench.values.metrics import METRICS, metrics
from workbench.values.results import STAGES, Evaluation
from workbench.values.system.steps import Steps, minutes

FIRST_CANDIDATES = 3
"""What is known is first said after so many candidates."""
BETWEEN_S = 25.0


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
    if by.loss_metric in numbers:
        words.append(f"loss {numbers[by.loss_metric]:+.2f} {by.loss_unit}")
    elif accuracy.proof:
        words.append(f"self-test: {accuracy.proof}")
    latency = evaluation.measurement.latency
    assert latency is not None, "a complete evaluation has a latency"
    modelled = latency.modelled is not None
    language = evaluation.measurement.language is not None
    words.append(f"decode {p50_words(latency)} ms modelled" if language else f"P50 {p50_words(latency)} ms")
    words.append(interval(latency.speedup, "x", 2) if modelled else f"{numbers['speedup']:.2f}x")
    service = evaluation.measurement.service
    if service is not None and service.best is not None:
        serves = f"serves {service.best.throughput_per_s.value:.0f}/s"
        words.append(f"{serves}, {level_of(evaluation, 'service_throughput_per_s')} ({service.best.settings})")
    elif service is not None:
        words.append(f"no service settings keep the limit (P99 {service.closest.p99_ms.value:.0f} ms at best)")
    reused: dict[str, list[str]] = {}
    for kind, source in sources_of(evaluation).items():
        reused.setdefault(source, []).append(kind)
    words += [f"{' and '.join(kinds)} shared with {source[:SHORT]}" for source, kinds in reused.items()]
    return ", ".join([*words, *(["emulated"] if evaluation.toolchain.emulated else [])])


def look_words(look: Evaluation) -> str:
    """A first look at INT8 in one phrase: its times beside float's, what it loses; or why it has none."""
    latency, accuracy = look.measurement.latency, look.measurement.accuracy
    if latency is None:
        return outcome_words(look)
    float_ms = latency.baseline_p50_ms / latency.drift
    words = (
        f"{interval(latency.speedup, 'x', 2)} as fast as float, P50 {p50_words(latency)} ms against {float_ms:.2f} in "
        f"{latency.samples} calls"
    )
    drop = accuracy.comparison.drop_pp if accuracy is not None and accuracy.comparison is not None else None
    if accuracy is not None and drop is not None:
        words += f"; {scored_by(accuracy).loss_words(drop)} on the first {count_of(accuracy.samples, 'sample')}"
    return words + (", emulated" if look.toolchain.emulated else "")


def interrupted_words(candidate: Candidate, stage: str) -> str:
    """Of a candidate that was in flight when its run ended."""
    return f"{candidate.short_id} was interrupted at {stage}; the same sweep begins with it when it goes on."


class Progress:
    """Hears what a sweep does, and says it: one line where a candidate begins, one where it ends, a stage only where
    nothing was said for a while, and from time to time what is known so far."""

    def __init__(self, experiment: Experiment, trials: int, console: Console, *, limit_s: float | None = None) -> None:
        self.experiment, self.trials, self.console = experiment, trials, console
        self.limit_s = experiment.timeout_s if limit_s is None else limit_s
        self.began = self._stood = time.monotonic()
        self.reused = 0
        self._known: dict[str, Evaluation] = {}
        self._confirmed: dict[str, Evaluation] = {}
        self._seconds: list[float] = []
        self._now: tuple[Candidate, str] | None = None
        self._confirming = False
        self._candidate_s = self._after_s = 0.0
        self._steps = Steps(self._print, announced=False)
        self._front: list[Evaluation] = []

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._steps.__exit__(kind, error, tb)

    def begin(self, candidate_s: float = 0.0, after_s: float = 0.0) -> None:
        """The plan is said; from here on a silence is broken.

        Args:
            candidate_s, after_s: what the plan reckons with for a candidate, and for all that follows the search.
        """
        self._candidate_s, self._after_s = candidate_s, after_s
        self._steps.__enter__()

    def trying(self, candidate: Candidate, why: str) -> None:
        """The search turns to it, for this reason."""
        self._line("trying", f"{candidate.short_id}  {why}")

    def looked(self, look: Evaluation) -> None:
        """Figures before the first candidate is measured: INT8 beside float."""
        self._now = None
        after = f"after {time.monotonic() - self.began:.0f} s"
        self._print(f"provisional, {after}: {self._words(look.candidate)}: {look_words(look)} (measured in full next)")

    def stage(self, candidate: Candidate, stage: str) -> None:
        self._now = (candidate, stage)
        of = f" ({STAGES.index(stage) + 1} of {len(STAGES)})" if stage in STAGES else ""
        self._steps(f"{'stage':>9}  {candidate.short_id}  {stage}{of}")

    def resumed(self, candidate: Candidate, stage: str | None) -> None:
        """It was in flight when an earlier run ended, and comes first now."""
        at = f" at {stage}" if stage is not None else ""
        self._line("resumed", f"{self._words(candidate)}: was interrupted{at}, comes first")

    def in_flight(self) -> str:
        """What the search was evaluating when it was stopped; nothing where it was between two candidates."""
        return interrupted_words(*self._now) if self._now is not None and not self._confirming else ""

    def evaluated(self, evaluation: Evaluation, reused: bool) -> None:
        candidate, confirming = evaluation.candidate, evaluation.split == "holdout"
        self._confirming = confirming
        (self._confirmed if confirming else self._known)[candidate.id] = evaluation
        if reused:
            self.reused += not confirming
            return
        self._now = None
        if candidate.id != self.experiment.baseline.id and not confirming:  # the baseline measures the host too
            self._seconds.append(evaluation.seconds)
        cut = f" (cut to the time: {', '.join(evaluation.cut)})" if evaluation.cut else ""
        files = compiled_words(evaluation.compiled, evaluation.shared)
        self._line(
            "confirmed" if confirming else f"{len(self._known)}/{self.trials}",
            f"{self._words(candidate)}: {outcome_words(evaluation)}{cut}{f' ({files})' if files else ''} "
            f"[{evaluation.seconds:.1f} s{self._left()}]",
        )
        waits_s = BETWEEN_S if self._front else 0.0
        if len(self._known) >= FIRST_CANDIDATES and time.monotonic() - self._stood >= waits_s:
            self._say_standing()

    def say(self, sentence: str) -> None:
        """Between evaluations: what happens to the front."""
        self._confirming = True
        self._line("service", sentence)

    def _line(self, label: str, text: str) -> None:
        self._print(f"{label:>9}  {text}")

    def _print(self, line: str) -> None:
        self._steps.spoke = time.monotonic()
        self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _words(self, candidate: Candidate) -> str:
        engine = len(self.experiment.space.targets) > 1
        return f"{candidate.short_id}  {title(candidate, self.experiment.baseline.id, engine=engine)}"

    def _say_standing(self) -> None:
        """How far the search is, and the best so far, by what is measured and predicted; confirmed figures stand where
        there are any."""
        self._stood = time.monotonic()
        gone_s, count = self._stood - self.began, len(self._known)
        front = front_of(self.experiment, self._known)
        self._front = front[::-1] if METRICS[self.experiment.objectives[0].metric].direction == "maximize" else front
        self._line(
            "so far",
            f"{count} of {self.trials} candidates" + (f" ({self.reused} from before)" if self.reused else "") + ", "
            f"{minutes(gone_s)} of at most {minutes(self.limit_s)} ({100 * gone_s / max(self.limit_s, 1e-9):.0f} %)"
            f"{self._left()}; {count_of(len(self._front), 'candidate')} on the front",
        )
        if self._front:
            best = self._confirmed.get(self._front[0].candidate.id, self._front[0])
            baseline = self._confirmed.get(self.experiment.baseline.id) if best.split == "holdout" else None
            gain = gain_words(self.experiment, best, baseline or self._known.get(self.experiment.baseline.id))
            self._line("best", f"{self._words(best.candidate)}: {gain}")

    def _left(self) -> str:
        """Of the whole run, by what candidates took, or first by the plan; what follows the search by the plan."""
        each_s = sum(self._seconds) / len(self._seconds) if self._seconds else self._candidate_s
        if not each_s:
            return ""
        search_s = 0.0 if self._confirming else (self.trials - len(self._known)) * each_s
        after_s = self._after_s * max(0.0, 1 - len(self._confirmed) / (1 + len(self._front)))
        left_s = min(search_s + after_s, self.limit_s + self.began - time.monotonic())
        return f", about {minutes(max(0.0, left_s))} more"


def gain_words(experiment: Experiment, best: Evaluation, baseline: Evaluation | None) -> str:
    """'621/s predicted, 7.20 times the float baseline's'; without a factor where the baseline is the best."""
    name = experiment.objectives[0].metric
    said = f"{name} {_figure(best, name)}"
    if baseline is None or baseline.candidate.id == best.candidate.id:
        return said
    before, now = metrics(baseline).get(name), metrics(best)[name]
    if baseline.split == best.split and not is_feasible(experiment, baseline):
        return f"{said}; the float baseline breaks a limit, so no factor is given"
    return said if not before else f"{said}, {now / before:.2f} times the float baseline's"


def _figure(evaluation: Evaluation, metric: str) -> str:
    """'621/s predicted': the value, its unit, and the level of its evidence."""
    value = metrics(evaluation).get(metric)
    if value is None:
        return "none"
    number = f"{value:.4f}" if metric == "accuracy" else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
    unit = METRICS[metric].unit
    spaced = unit if unit in ("", "/s", "x") else f" {unit}"
    return f"{number}{spaced} {level_of(evaluation, metric) or ''}".rstrip()
