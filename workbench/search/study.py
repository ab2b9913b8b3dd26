"""The sweep's Optuna study: opened, or begun anew where a killed run left what cannot be read; and which sampler
proposes in it, with which seed.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.first_look import INT8_FIRST, first_int8
from workbench.search.outlook import outlook_of, why
from workbench.search.parts import FEWEST, Prior
from workbench.space.space import Assignment, Forbidden, build
from workbench.values.dimension import Scalar
from workbench.values.errors import ConfigError
from workbench.values.metrics import METRICS
from workbench.values.results import Evaluation

_SEED_STEP = 7919


def sampler_of(
    experiment: Experiment,
    told: int,
    known: Mapping[str, Evaluation],
    priors: Sequence[Prior] = (),
    in_flight: Collection[str] = (),
) -> BaseSampler:
    """The sampler an experiment names; `auto` is `parts`, which recorded tables speak for
    (`benchmarks/recorded/replay.py`). Made anew for every proposal: its seed depends on the number of trials told, so
    that a run that goes on draws what an undisturbed one would have drawn.

    Args:
        told: trials told, and those in flight.
        priors: what earlier sweeps let expect, for a sampler that can make use of it.
        in_flight: ids of candidates that are being evaluated: nobody else shall measure nearly the same meanwhile.
    """
    seed = experiment.seed + _SEED_STEP * told
    kind = "parts" if experiment.sampler == "auto" else experiment.sampler
    startup = 5 if len(experiment.space.presets) >= 5 else 10
    if kind == "gp":
        if importlib.util.find_spec("torch") is None:
            raise ConfigError(
                "the GP sampler needs torch, which is not installed.",
                file=experiment.path,
                key="sampler",
                hint="Install the [export] extra, or write sampler: tpe.",
            )
        return GPSampler(seed=seed, n_startup_trials=startup)
    if kind == "parts":
        return PartsSampler(experiment, known, seed, priors, in_flight)
    if kind == "nsga2":
        return NSGAIISampler(seed=seed, population_size=12)
    if kind == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, multivariate=True, n_startup_trials=startup)  # candidates in flight: its constant liar


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
        for place in outlook.ranking.order:
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


_log = logging.getLogger(__name__)


class UnreadableStudy(Exception):
    """The log is not one that Optuna wrote."""


def open_study(
    experiment: Experiment, path: Path, first: Sequence[tuple[Mapping[str, Scalar], str]] = ()
) -> optuna.Study:
    """Load the sweep's study, or create it; the baseline, the best bets on INT8 and the presets are enqueued first.

    Args:
        first: (assignment, why) of what comes after these.

    Raises:
        UnreadableStudy: Optuna cannot read its log.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _cut_torn_line(path)
    sampler = sampler_of(experiment, 0, {})
    try:
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=_HeldLock(str(path))))
        study = optuna.create_study(
            study_name=experiment.name,
            storage=storage,
            directions=[METRICS[o.metric].direction for o in experiment.objectives],
            load_if_exists=True,
            sampler=sampler,
        )
    except OSError:
        raise
    except Exception as error:  # Optuna replays the log unchecked: a line that makes no sense may raise anything
        raise UnreadableStudy(f"Optuna cannot read it ({type(error).__name__}: {error})") from error
    # each is looked for: a run may have been killed between two of them
    present = [trial.system_attrs.get("fixed_params") for trial in study.get_trials(deepcopy=False)]
    presets = [(preset.name, preset.assignment) for preset in experiment.space.presets]
    for name, assignment in [("baseline", experiment.baseline_assignment), *first_int8(experiment), *presets]:
        if dict(assignment) not in present:
            present.append(dict(assignment))
            study.enqueue_trial(dict(assignment), user_attrs={"preset": name} if name else {WHY: INT8_FIRST})
    for assignment, reason in first:
        if dict(assignment) not in present:
            present.append(dict(assignment))
            study.enqueue_trial(dict(assignment), user_attrs={WHY: reason})
    return study


class _HeldLock(JournalFileOpenLock):
    """The sweep's own flock already excludes other writers. Optuna's lock is a file that a kill -9 leaves behind,
    and waiting for it costs 30 s at the next start."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        return None


def _cut_torn_line(path: Path) -> None:
    """Drop the half line that a kill in the middle of an append leaves; Optuna refuses the whole file otherwise."""
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) != len(data):
        with path.open("r+b") as stream:
            stream.truncate(len(whole))


def sound_study(
    experiment: Experiment, bench: Bench, first: Sequence[tuple[Mapping[str, Scalar], str]] = ()
) -> optuna.Study:
    """The sweep's study, sound as far as it is read from here on.

    Only what a killed run wrote last is not covered by a digest; where Optuna cannot read it, the study begins anew and
    is told what is known.
    """
    journal = bench.journal
    try:
        study = open_study(experiment, journal.study, first)
    except UnreadableStudy as error:
        _log.warning("%s: %s. It is set aside, and what is known is told to a new one.", journal.study, error)
        journal.drop_study()
        study = open_study(experiment, journal.study, first)
    journal.keep_study()
    return study
