"""`sampler: parts`: Optuna's interface to what is worth measuring next (`parts`)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from workbench.inputs.experiment import Experiment
from workbench.search.front import front_of, with_baseline_drop
from workbench.search.parts import FEWEST, Costs, Prior, Question, Seen, ranked
from workbench.search.surrogate import axes_of
from workbench.space.space import Assignment, Forbidden, SearchSpace, build, combinations, complete, draw, raw_size
from workbench.values.dimension import Scalar
from workbench.values.results import Evaluation

_POOL = 2000
"""Assignments that are looked at for one proposal: all of a small space, else drawn ones and the front's neighbours."""
_NUMERICS = ("calibrate", "lower", "accuracy_subset", "accuracy_full")
_TIME = ("latency_short", "latency_full", "service")


class PartsSampler(BaseSampler):
    """Proposes the candidate with the greatest expected gain for its expected cost; before `FEWEST` candidates are
    known, any one. Deterministic for a seed and what is known. It never proposes what is known or forbidden while the
    pool holds anything else."""

    def __init__(
        self, experiment: Experiment, known: Mapping[str, Evaluation], seed: int, priors: Sequence[Prior] = ()
    ) -> None:
        self._experiment, self._known, self._seed, self._priors = experiment, known, seed, priors
        self._independent = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {p.name: CategoricalDistribution(p.choices) for p in self._experiment.space.parameters}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if len(self._known) + sum(len(prior.seen) for prior in self._priors) < FEWEST:
            return {}
        space, rng = self._experiment.space, np.random.default_rng(self._seed)
        tried = _assignments(study)
        known = [(tried[i], e) for i, e in self._known.items() if i in tried]
        axes = axes_of(space)
        fronts = [tried[e.candidate.id] for e in front_of(self._experiment, self._known) if e.candidate.id in tried]
        pool = _pool(space, fronts, random.Random(self._seed))
        seen = [_seen(self._experiment, assignment, evaluation) for assignment, evaluation in known]
        question = Question(objectives=self._experiment.objectives, constraints=self._experiment.constraints)
        order = ranked(question, axes, axes.codes(pool), seen, _costs(self._known), rng, self._priors)
        for place in order:
            try:
                if build(space, pool[place]).id not in self._known:
                    return dict(pool[place])
            except Forbidden:
                continue
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._independent.sample_independent(study, trial, param_name, param_distribution)


def _assignments(study: optuna.Study) -> dict[str, Assignment]:
    """Candidate id → the choices it was made of."""
    return {
        str(trial.user_attrs["candidate"]): trial.params
        for trial in study.get_trials(deepcopy=False)
        if "candidate" in trial.user_attrs
    }


def _pool(space: SearchSpace, fronts: Sequence[Assignment], rng: random.Random) -> list[dict[str, Scalar]]:
    if raw_size(space) <= _POOL:
        found = list(combinations(space))
    else:
        found = [draw(space, rng) for _ in range(_POOL)]
        for member in fronts:
            found += [
                complete(space, {**member, p.name: choice}) for p in space.parameters if p.name in member
                for choice in p.choices if choice != member[p.name]
            ]  # fmt: skip
    return [a for a in found if not any(rule.matches(a) for rule in space.forbid)]


def _seen(experiment: Experiment, assignment: Assignment, evaluation: Evaluation) -> Seen:
    numbers = with_baseline_drop(experiment, evaluation)
    return Seen(
        assignment=assignment,
        numbers=numbers,
        errors=errors_of(evaluation, numbers),
        failed=evaluation.failure is not None and not evaluation.failure.transient,
    )


def errors_of(evaluation: Evaluation, numbers: Mapping[str, float]) -> dict[str, float]:
    """Standard errors of the figures that have intervals of 95 %."""
    found = {
        name: (numbers[f"{name}_high"] - numbers[f"{name}_low"]) / 3.92
        for name in numbers
        if f"{name}_low" in numbers and f"{name}_high" in numbers
    }
    m = evaluation.measurement
    if m.accuracy is not None:
        drop = found.get("accuracy_drop_pp")
        found["accuracy"] = drop / 100 if drop is not None else found.get("accuracy_drop", 0.0)
    if m.latency is not None:
        relative = (m.latency.p50_ms.high - m.latency.p50_ms.low) / m.latency.p50_ms.value / 3.92
        for name in ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms", "throughput_per_s"):
            if name in numbers:
                found[name] = relative * numbers[name]
    return found


def _costs(known: Mapping[str, Evaluation]) -> Costs:
    """Median seconds of what complete candidates took, stage by stage, where it did not come from the store."""

    def seconds(evaluation: Evaluation, stages: tuple[str, ...]) -> float:
        return sum(s.seconds for s in evaluation.stages if s.stage in stages and not s.cached)

    done = [e for e in known.values() if e.status == "complete"]
    if not done:
        return Costs()
    numerics, timed = (median(seconds(e, stages) for e in done) for stages in (_NUMERICS, _TIME))
    every = median(e.seconds for e in done)
    return Costs(each_s=max(every - numerics - timed, 0.1), numerics_s=numerics, time_s=timed)
