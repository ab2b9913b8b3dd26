"""What a sweep found, as one value, and as flat rows for a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench.api.opening import journal_of, read_experiment, summary_of
from workbench.inputs.experiment import Experiment
from workbench.report import Member, Recommendation, Summary, lines
from workbench.search.plan import Plan
from workbench.search.sweep import SweepEnd
from workbench.values.candidate import Candidate
from workbench.values.evidence import level_of
from workbench.values.results import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SweepResult:
    """The front, the recommendation and everything measured; `print` shows the report of `workbench show`.

    Attributes:
        summary: all of it, as the reports read it.
        end: why and with what the sweep ended; None where it was only read.
        calibration: whether more calibration samples would change anything, in a sentence; None where nothing was
            calibrated, or the sweep was only read.
        links: sentences with addresses in MLflow's UI.
        plan: what was forecast; None where the sweep was only read.
        took_s: the whole run.
    """

    experiment: Experiment
    summary: Summary
    end: SweepEnd | None = None
    calibration: str | None = None
    links: tuple[str, ...] = ()
    plan: Plan | None = None
    took_s: float = 0.0

    @property
    def front(self) -> tuple[Member, ...]:
        """Candidates that no other dominates, best first in the first objective."""
        return self.summary.front

    @property
    def recommendation(self) -> Recommendation | None:
        """Which candidate to ship and why; None where none meets every constraint."""
        return self.summary.recommended

    @property
    def recommended(self) -> Candidate | None:
        """The candidate of the recommendation."""
        if self.summary.recommended is None:
            return None
        found = self.summary.find(self.summary.recommended.candidate_id)
        return None if found is None else found.candidate

    def rows(self) -> list[Row]:
        """Every evaluation as a flat dict, all with the same keys: `pandas.DataFrame(result.rows())`.

        A confirmed candidate has two: `split` 'validation', and 'holdout'. The three `…_evidence` columns say how well
        its figures are known.
        """
        return search_rows(self.summary)

    def front_rows(self) -> list[Row]:
        """One such dict for each member of the front, best first, of the figures known best: those of the confirmation
        on held-out data where there is one."""
        pairs = ((member.confirmation, member.evaluation) for member in self.front)
        best = (sure if sure is not None and sure.status == "complete" else searched for sure, searched in pairs)
        return _rows(self.summary, best)

    def __str__(self) -> str:
        return lines(self.summary)

    def __repr__(self) -> str:
        counts = f"{len(self.summary.evaluations)} candidates, {len(self.front)} on the front"
        return f"<{type(self).__name__} of {self.experiment.name!r}: {counts}>"


def read_sweep(experiment: Experiment | Path | str, *, workspace: Path | str | None = None) -> SweepResult:
    """What the last sweep of an experiment found, whichever door it was started by; also while one runs.

    Raises:
        ConfigError: there was none yet, or its files are of another revision.
        ToolchainError: every evaluation of it is damaged.
    """
    question = read_experiment(experiment, workspace)
    return SweepResult(experiment=question, summary=summary_of(question, journal_of(question)))


Row = dict[str, str | int | float | bool | None]


def search_rows(summary: Summary) -> list[Row]:
    """Every evaluation of the search, each followed by its confirmation where it has one."""
    pairs = ((e, summary.confirmations.get(e.candidate.id)) for e in summary.evaluations)
    return _rows(summary, (one for pair in pairs for one in pair if one is not None))


def _rows(summary: Summary, evaluations: Iterable[Evaluation]) -> list[Row]:
    """The same columns in every row, None where a row has no such figure or setting."""
    known = [_row(summary, evaluation) for evaluation in evaluations]
    columns: Row = {name: None for row in known for name in row}
    return [{**columns, **row} for row in known]


def _row(summary: Summary, evaluation: Evaluation) -> Row:
    candidate, measured = evaluation.candidate, evaluation.measurement
    recommended = summary.recommended
    member = summary.member(candidate.id)
    searched = summary.find(candidate.id) or evaluation
    row: Row = {
        "candidate": candidate.id,
        "what": summary.title(candidate),
        "split": evaluation.split,
        "status": evaluation.status,
        "standing": summary.standing(searched),
        "recommended": recommended is not None and recommended.candidate_id == candidate.id,
        "baseline": candidate.id == summary.baseline_id,
        "same": member.letters if member is not None else "",
        "emulated": evaluation.toolchain.emulated,
        "accuracy_evidence": level_of(evaluation, "accuracy"),
        "latency_evidence": level_of(evaluation, "latency_p50_ms"),
        "service_evidence": level_of(evaluation, "service_p99_ms"),
    }
    row.update(summary.numbers(evaluation))
    if measured.latency is not None:
        row["quiet"] = measured.latency.quiet
    row["seconds"] = evaluation.seconds
    row.update(candidate.parameters())
    return row
