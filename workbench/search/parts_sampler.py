"""`sampler: parts`: Optuna's interface to what is worth measuring next (`parts`, `outlook`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, RandomSampler
from optuna.trial import FrozenTrial

from workbench.inputs.experiment import Experiment
from workbench.search.outlook import outlook_of, why
from workbench.search.parts import FEWEST, Prior
from workbench.space.space import Assignment, Forbidden, build
from workbench.values.results import Evaluation

WHY = "why"
"""Attribute in which a sampler says, in a short sentence, what it expects of its proposal."""


class PartsSampler(BaseSampler):
    """Proposes the candidate with the greatest expected gain for its expected cost; before `FEWEST` candidates are
    known, any one. Deterministic for a seed and what is known. It never proposes what is known or forbidden while the
    pool holds anything else, nor what is in flight."""

    def __init__(
        self,
        experiment: Experiment,
        known: Mapping[str, Evaluation],
        seed: int,
        priors: Sequence[Prior] = (),
        in_flight: Collection[str] = (),
    ) -> None:
        self._experiment, self._known, self._seed, self._priors = experiment, known, seed, priors
        self._in_flight = in_flight
        self._independent = RandomSampler(seed=seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {p.name: CategoricalDistribution(p.choices) for p in self._experiment.space.parameters}

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if len(self._known) + sum(len(prior.seen) for prior in self._priors) < FEWEST:
            return {}
        tried = _assignments(study)
        flying = [tried[i] for i in self._in_flight if i in tried]
        outlook = outlook_of(self._experiment, self._known, tried, self._seed, self._priors, flying)
        for place in outlook.judged.order:
            assignment = outlook.pool[place]
            try:
                candidate_id = build(self._experiment.space, assignment).id
                if candidate_id not in self._known and candidate_id not in self._in_flight:
                    words = why(self._experiment, outlook, int(place))
                    # as `Trial.set_user_attr` does, which a sampler is not given: in the log, and for who asks next
                    study._storage.set_trial_user_attr(trial._trial_id, WHY, words)
                    trial.user_attrs[WHY] = words
                    return dict(assignment)
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
