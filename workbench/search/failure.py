"""A failed candidate as a value, with the command that runs it again."""

from __future__ import annotations

import datetime

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.values.candidate import Candidate
from workbench.values.errors import CandidateError
from workbench.values.measurement import Measurement, Split
from workbench.values.results import Evaluation, Failure


def failed_evaluation(
    experiment: Experiment, candidate: Candidate, bench: Bench, split: Split, error: CandidateError
) -> Evaluation:
    """What stands for an evaluation that could not tell its end: nothing measured, and why."""
    return Evaluation(
        candidate=candidate,
        status="failed",
        stage_reached=error.stage,
        split=split,
        measurement=Measurement(),
        stages=(),
        toolchain=bench.toolchain(candidate),
        started_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
        failure=failure_of(experiment, candidate, bench, split, error.stage, error),
    )


def failure_of(
    experiment: Experiment, candidate: Candidate, bench: Bench, split: Split, stage: str, error: CandidateError
) -> Failure:
    log, left = bench.journal.log(candidate.id, split), bench.journal.log(candidate.id)
    text = error.log_path.read_text(encoding="utf-8", errors="replace") if error.log_path is not None else ""
    log.write_text(f"{stage}: {type(error).__name__}: {error}\n{text}", encoding="utf-8")
    if error.log_path == left:
        left.unlink()  # the log of a failed build, which is in this one now
    return Failure(
        stage=stage,
        kind=type(error).__name__,
        message=str(error),
        reproduce=f"workbench evaluate {experiment.path} --candidate {candidate.short_id}"
        + (" --holdout" if split == "holdout" else ""),
        log_path=str(log),
        transient=error.transient,
    )
