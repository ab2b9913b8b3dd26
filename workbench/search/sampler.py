"""Which sampler proposes, and with which seed."""

from __future__ import annotations

import importlib.util
from collections.abc import Collection, Mapping, Sequence

from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from workbench.inputs.experiment import Experiment
from workbench.search.parts import Prior
from workbench.search.parts_sampler import PartsSampler
from workbench.values.errors import ConfigError
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
