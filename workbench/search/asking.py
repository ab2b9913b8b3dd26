"""What is asked next, what the sampler is told, and how to go on with the study of a run that was ended.

A run may be killed between any two lines of Optuna's log, as often as it likes, and the sweep still asks what it would
have asked undisturbed: a proposal is drawn from the seed and the number of trials told so far, never from the state of
a generator that died with its process; a trial left open is gone on with under its own number, so that the order of the
queue stays.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import optuna
from optuna.samplers import RandomSampler
from optuna.trial import FrozenTrial, TrialState

from workbench.evaluation.reuse import doubtful
from workbench.inputs.experiment import Experiment
from workbench.search.front import predicted_numbers, with_baseline_drop
from workbench.search.outlook import proposal
from workbench.search.study import WHY
from workbench.space.space import (
    EXACT_LIMIT,
    Forbidden,
    SearchSpace,
    assignment_of,
    build,
    combinations,
    draw,
    raw_size,
)
from workbench.values.candidate import Candidate
from workbench.values.dimension import Scalar
from workbench.values.results import Evaluation
from workbench.values.reuse import Reuse

REPEAT, FORBIDDEN = "repeat", "forbidden"
"""Attributes of trials that led to no evaluation."""
CRASHES = "crashes"
"""Attribute of a trial: how often its candidate took the evaluation process down."""
_TOLD = (TrialState.COMPLETE, TrialState.PRUNED)
_SEED_STEP = 7919


def trials_left_open(study: optuna.Study) -> list[FrozenTrial]:
    """Trials to go on with, oldest first: an ended run had asked for them and not told them.

    One whose values were still being drawn is closed: the same seed draws it again.
    """
    found = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if "candidate" in trial.user_attrs or "fixed_params" in trial.system_attrs:
            found.append(trial)
        else:
            study.tell(trial.number, state=TrialState.FAIL)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """A candidate that comes once more, and why: it failed by no fault of its own, its evaluation is lost, it reused
    what an audit doubts since, or it is known and the study was not told.

    Attributes:
        candidate: None where nothing says its settings any more.
        attempts: made at it so far.
        doubted: what it had reused.
    """

    candidate_id: str
    candidate: Candidate | None
    why: Literal["failed", "lost", "reuse", "untold"]
    attempts: int = 0
    doubted: tuple[Reuse, ...] = ()

    @property
    def by_itself(self) -> bool:
        """Whether its own evaluation did not come to an end that stands."""
        return self.why in ("failed", "lost")


def comes_again(
    study: optuna.Study,
    known: Mapping[str, Evaluation],
    *,
    failed: Iterable[Evaluation] = (),
    lost: Mapping[str, Candidate | None] = MappingProxyType({}),
) -> list[Again]:
    """Everything that is evaluated, or told, once more. Read from the journal and the study alone, so that a kill in
    between loses none of it.

    Args:
        failed: of an earlier run, those that deserve another attempt.
        lost: ids whose evaluation is damaged or gone, with what is known of their settings.
    """

    def of(evaluation: Evaluation, why: Literal["failed", "reuse", "untold"]) -> Again:
        candidate, doubted = evaluation.candidate, evaluation.reuse if why == "reuse" else ()
        return Again(
            candidate_id=candidate.id, candidate=candidate, why=why, attempts=evaluation.attempt, doubted=doubted
        )

    told, wrong = told_candidates(study), {candidate.id for candidate in doubtful(tuple(known.values()))}
    return [
        *(of(e, "untold") for i, e in known.items() if i not in told and i not in wrong),
        *(of(e, "failed") for e in failed),
        *(Again(candidate_id=i, candidate=candidate, why="lost") for i, candidate in lost.items()),
        *(of(known[i], "reuse") for i in known if i in wrong),
    ]


def next_trial(
    study: optuna.Study,
    experiment: Experiment,
    left_open: list[FrozenTrial],
    known: Mapping[str, Evaluation],
    in_flight: Collection[str] = (),
) -> optuna.Trial:
    """The first of those left open or brought forward (taken from the list), else one that is queued, else a new
    proposal.

    Args:
        in_flight: ids of the candidates that are being evaluated.
    """
    seed = experiment.seed + _SEED_STEP * (len(study.get_trials(deepcopy=False, states=_TOLD)) + len(in_flight))
    study.sampler = RandomSampler(seed=seed)
    if left_open:
        trial = left_open.pop(0)
        if trial.state == TrialState.WAITING:
            study._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        return optuna.Trial(study, trial._trial_id)  # Optuna offers no other way to an open trial, nor past its queue
    found = None
    if experiment.sampler == "auto" and not queued(study):
        found = proposal(experiment, study, known, seed, in_flight)
    if found is not None:
        study.enqueue_trial(dict(found[0]), user_attrs={WHY: found[1]})
    return study.ask()


def why_now(trial: optuna.Trial) -> str:
    """Why a candidate is tried: what is expected of it, else where it comes from."""
    said = trial.user_attrs.get(WHY)
    if said:
        return str(said)
    preset = trial.user_attrs.get("preset")
    if preset == "baseline":
        return "the float baseline, which everything is compared with"
    if preset is not None:
        return f"preset {preset!r} of the space"
    return "drawn at random"


def queued(study: optuna.Study) -> bool:
    """Whether a trial waits to be asked for."""
    return bool(study.get_trials(deepcopy=False, states=(TrialState.WAITING,)))


def told_candidates(study: optuna.Study) -> set[str]:
    """Ids of the candidates whose result the sampler knows."""
    told = study.get_trials(deepcopy=False, states=_TOLD)
    return {trial.user_attrs["candidate"] for trial in told if "candidate" in trial.user_attrs}


def repeats_in_a_row(study: optuna.Study) -> int:
    """How many of the last proposals led to no evaluation."""
    count = 0
    for trial in reversed(study.get_trials(deepcopy=False, states=(*_TOLD, TrialState.FAIL))):
        if REPEAT in trial.user_attrs or FORBIDDEN in trial.user_attrs:
            count += 1
        elif trial.state in _TOLD:
            break
    return count


def queue(study: optuna.Study, space: SearchSpace, candidate_id: str, candidate: Candidate | None) -> bool:
    """Have a candidate asked for, unless it waits already; False where nothing says what its settings are."""
    trials = [t for t in study.get_trials(deepcopy=False) if t.user_attrs.get("candidate") == candidate_id]
    if any(not trial.state.is_finished() for trial in trials):
        return True
    assignment = trials[-1].params if trials else None
    if assignment is None and candidate is not None:
        assignment = assignment_of(space, candidate)
    if assignment is None:
        return False
    study.enqueue_trial(dict(assignment), user_attrs={"candidate": candidate_id})
    return True


def waiting(study: optuna.Study, candidate_id: str) -> list[FrozenTrial]:
    """The queued trials of a candidate, which are one or none."""
    trials = study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
    return [trial for trial in trials if trial.user_attrs.get("candidate") == candidate_id][:1]


def unfinished(study: optuna.Study, space: SearchSpace, candidate_id: str) -> int | None:
    """Optuna's id of the trial that is queued or left open for a candidate, whether it was asked for or not."""
    for trial in study.get_trials(deepcopy=False, states=(TrialState.WAITING, TrialState.RUNNING)):
        own = trial.user_attrs.get("candidate")
        if own is None and (fixed := trial.system_attrs.get("fixed_params")) is not None:
            with contextlib.suppress(Forbidden):
                own = build(space, fixed).id
        if own == candidate_id:
            return trial._trial_id
    return None


def crashes_of(study: optuna.Study, trial_id: int | None) -> int:
    """How often the candidate of a trial took its evaluation process down."""
    return 0 if trial_id is None else int(study._storage.get_trial(trial_id).user_attrs.get(CRASHES, 0))


def count_crashes(study: optuna.Study, trial_id: int | None, count: int) -> None:
    if trial_id is not None:
        study._storage.set_trial_user_attr(trial_id, CRASHES, count)  # of a queued trial Optuna offers no other way


def unseen(experiment: Experiment, known: Collection[str]) -> dict[str, Scalar] | None:
    """An assignment whose candidate is possible and not evaluated: any one of a small space, a draw of a large one.

    Args:
        known: ids of those that were evaluated or are in flight.
    """
    rng = random.Random(experiment.seed + len(known))
    if raw_size(experiment.space) <= EXACT_LIMIT:
        assignments = list(combinations(experiment.space))
        rng.shuffle(assignments)
    else:
        assignments = [draw(experiment.space, rng) for _ in range(EXACT_LIMIT)]
    for assignment in assignments:
        try:
            if build(experiment.space, assignment).id not in known:
                return assignment
        except Forbidden:
            continue
    return None


def tell(
    study: optuna.Study, trial: optuna.Trial, experiment: Experiment, evaluation: Evaluation, *, repeat: bool
) -> None:
    """With the objectives where each was measured, or predicted of a set that waits to be compiled."""
    numbers = with_baseline_drop(experiment, evaluation) | predicted_numbers(evaluation)
    names = [objective.metric for objective in experiment.objectives]
    if repeat:
        trial.set_user_attr(REPEAT, True)
    if evaluation.status != "failed" and all(name in numbers for name in names):
        study.tell(trial, [numbers[name] for name in names])
    else:
        study.tell(trial, state=TrialState.PRUNED)


def tell_forbidden(study: optuna.Study, trial: optuna.Trial, why: str) -> None:
    """The space excludes what was proposed: nothing was evaluated."""
    trial.set_user_attr(FORBIDDEN, why)
    study.tell(trial, state=TrialState.PRUNED)


def tell_in_flight(study: optuna.Study, trial: optuna.Trial) -> None:
    """What was proposed is being evaluated already: nothing can be told of it yet."""
    trial.set_user_attr(REPEAT, True)
    study.tell(trial, state=TrialState.FAIL)
