"""The sweep's Optuna study: what is asked next, and how to go on with the study of a run that was ended.

A run may be killed between any two lines of Optuna's log, as often as it likes, and the sweep still asks what it would
have asked undisturbed: a proposal is drawn from the seed and the number of trials told so far, never from the state of
a generator that died with its process; a trial left open is gone on with under its own number, so that the order of the
queue stays.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Collection
from pathlib import Path

import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, TrialState

from workbench.inputs.experiment import Experiment
from workbench.values.errors import ConfigError
from workbench.values.objectives import METRICS

REPEAT, FORBIDDEN = "repeat", "forbidden"
"""Attributes of trials that led to no evaluation."""
_TOLD = (TrialState.COMPLETE, TrialState.PRUNED)
_SEED_STEP = 7919


class UnreadableStudy(Exception):
    """The log is not one that Optuna wrote."""


def open_study(experiment: Experiment, path: Path) -> optuna.Study:
    """Load the sweep's study, or create it; the baseline and the presets are enqueued first.

    Raises:
        UnreadableStudy: Optuna cannot read its log.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _cut_torn_line(path)
    sampler = _sampler(experiment, 0)
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
    for name, assignment in [("baseline", experiment.baseline_assignment), *presets]:
        if dict(assignment) not in present:
            present.append(dict(assignment))
            study.enqueue_trial(dict(assignment), user_attrs={"preset": name})
    return study


def trials_left_open(study: optuna.Study, known: Collection[str]) -> list[FrozenTrial]:
    """Trials to go on with, oldest first: an ended run had asked for them and not told them.

    One whose values were still being drawn is closed: the same seed draws it again. So is one that half of a result was
    told to which does not stand: Optuna keeps what it was told, so the next attempt is a trial of its own.

    Args:
        known: ids of candidates whose result stands.
    """
    found = []
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        candidate_id = trial.user_attrs.get("candidate")
        stale = bool(trial.constraints) and candidate_id not in known
        if (candidate_id is not None or "fixed_params" in trial.system_attrs) and not stale:
            found.append(trial)
        else:
            study.tell(trial.number, state=TrialState.FAIL)
    return found


def next_trial(study: optuna.Study, experiment: Experiment, left_open: list[FrozenTrial]) -> optuna.Trial:
    """The first of those left open (taken from the list), else one that is queued, else a new proposal."""
    study.sampler = _sampler(experiment, len(study.get_trials(deepcopy=False, states=_TOLD)))
    if left_open:
        return optuna.Trial(study, left_open.pop(0)._trial_id)  # Optuna offers no other way to an open trial
    return study.ask()


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
    for trial in reversed(study.get_trials(deepcopy=False, states=_TOLD)):
        if REPEAT not in trial.user_attrs and FORBIDDEN not in trial.user_attrs:
            break
        count += 1
    return count


def _sampler(experiment: Experiment, told: int) -> BaseSampler:
    """The sampler the figures speak for (optuna.md §4): TPE for a Pareto search of 30 to 100 trials, GP
    for one objective under constraints where torch is there. Made anew for every proposal: its seed depends on the
    number of trials told, so that a run that goes on draws what an undisturbed one would have drawn."""
    seed = experiment.seed + _SEED_STEP * told
    kind = experiment.sampler
    if kind == "auto":
        single = len(experiment.objectives) == 1
        kind = "gp" if single and importlib.util.find_spec("torch") is not None else "tpe"
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
    if kind == "nsga2":
        return NSGAIISampler(seed=seed, population_size=12)
    if kind == "random":
        return RandomSampler(seed=seed)
    return TPESampler(seed=seed, multivariate=True, n_startup_trials=startup)


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
