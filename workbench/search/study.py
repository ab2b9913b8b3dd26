"""The sweep's Optuna study: opened, or begun anew where a killed run left what cannot be read."""

from __future__ import annotations

import logging
from pathlib import Path

import optuna
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

from workbench.evaluation.bench import Bench
from workbench.inputs.experiment import Experiment
from workbench.search.first_look import INT8_FIRST, first_int8
from workbench.values.metrics import METRICS

WHY = "why"
"""Attribute of a trial: why its candidate is tried, in a short sentence."""
_log = logging.getLogger(__name__)


class UnreadableStudy(Exception):
    """The log is not one that Optuna wrote."""


def open_study(experiment: Experiment, path: Path) -> optuna.Study:
    """Load the sweep's study, or create it; the baseline, the best bets on INT8 and the presets are enqueued first.

    Raises:
        UnreadableStudy: Optuna cannot read its log.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _cut_torn_line(path)
    try:
        storage = JournalStorage(JournalFileBackend(str(path), lock_obj=_HeldLock(str(path))))
        study = optuna.create_study(
            study_name=experiment.name,
            storage=storage,
            directions=[METRICS[o.metric].direction for o in experiment.objectives],
            load_if_exists=True,  # with other directions it would keep the stored ones (optuna.md §2)
            sampler=RandomSampler(seed=experiment.seed),  # `asking.next_trial` gives each trial its own
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


def sound_study(experiment: Experiment, bench: Bench) -> optuna.Study:
    """The sweep's study, sound as far as it is read from here on.

    Only what a killed run wrote last is not covered by a digest; where Optuna cannot read it, the study begins anew and
    is told what is known.
    """
    journal = bench.journal
    try:
        study = open_study(experiment, journal.study)
    except UnreadableStudy as error:
        _log.warning("%s: %s. It is set aside, and what is known is told to a new one.", journal.study, error)
        journal.drop_study()
        study = open_study(experiment, journal.study)
    journal.keep_study()
    return study
