"""Memory: what a sweep takes at its peak, and a refusal before the machine would swap.

For every card one candidate is in flight at a time. Measured as the peak of a command and its children together, on
encoders (benchmarks/model_size.py): calibrating one of 0.44 GB took 1.02 GB, of 1.34 GB 2.46 GB, of 2.45 GB 2.74 GB, a
whole sweep of the last 4.42 GB. A session that runs takes 1.0 to 1.2 times the file, or 1.6 times, where 1.1 of them
are the mapped file; a process that serves INT8 of the 2.45 GB took 0.52 GB. Models below `apart.FROM_BYTES` are held
whole, several times over: 0.42 GB for one of 3 MB, 0.54 GB of 15 MB, 1.52 GB of 90 MB.
"""

from __future__ import annotations

from workbench.graph.apart import is_large
from workbench.inputs.experiment import Experiment
from workbench.values.errors import ConfigError
from workbench.values.system.cpu import available_memory_bytes

PROCESSES_BYTES = 500_000_000
"""Of this command and the process that evaluates, before they hold a model."""
CALIBRATION, CALIBRATION_OF_SMALL = 2.4, 12.0
"""Times the model's file, while its activations are observed."""
EXECUTED = 1.0
"""Times a language model's folder, while a checkpoint of it is executed beside the float model's head [inferred]."""
TORCH_BYTES = 400_000_000
SESSION = 1.3
"""Times the model's file, for every session that is open; two are while a candidate is timed beside the baseline."""
_FEEDS = 3
"""Calls' inputs held at once: the candidate's, the baseline's, and one that is being made."""
WORKER_BYTES = 250_000_000
"""Of a process that serves, beside its session."""


def memory_of(experiment: Experiment, cards: int = 1) -> int:
    """Bytes at the peak of a sweep.

    Of a language model, which is read block by block: its blocks may stay in memory while it is evaluated, and every
    run of the quantizer looks again at what it needs.

    Args:
        cards: of this machine, that candidates are measured on at once, each in a process of its own; 0 where other
            machines do everything.
    """
    size_bytes, choices = experiment.model.size_bytes, experiment.space.service
    if experiment.model.is_language_model:
        return PROCESSES_BYTES + TORCH_BYTES + int(EXECUTED * size_bytes)
    feeds = _FEEDS * _call_bytes(experiment)
    if cards == 0:
        return PROCESSES_BYTES + feeds
    workers = 0  # of a service that members of the front are loaded in
    if experiment.service is not None and experiment.service.confirm_s > 0:
        workers = max(choices.workers, default=1) if choices is not None else 1
        workers *= experiment.service.devices
    calibrating = (CALIBRATION if is_large(size_bytes) else CALIBRATION_OF_SMALL) * size_bytes
    evaluating = max(calibrating, 2 * SESSION * size_bytes)  # two sessions: the candidate's and the baseline's
    others = (cards - 1) * (evaluating + WORKER_BYTES)
    serving = workers * (SESSION * size_bytes + WORKER_BYTES)
    return PROCESSES_BYTES + int(max(evaluating + others, serving)) + feeds


def _call_bytes(experiment: Experiment) -> int:
    """The inputs of the largest call that a candidate may make."""
    batches = next((p.choices for p in experiment.space.parameters if p.name == "serving.batch"), (1,))
    largest = max(experiment.calibration.batch, *(int(batch or 1) for batch in batches))
    sample = next(experiment.dataset.batches("validation", 1, stop=1)).feeds
    return largest * sum(array.nbytes for array in sample.values())


def check_memory(experiment: Experiment, available_bytes: int | None = None, cards: int = 1) -> None:
    """Refuse a sweep that this machine could only make by swapping.

    Args:
        available_bytes: None to ask the system.

    Raises:
        ConfigError: it would need more than there is.
    """
    available = available_memory_bytes() if available_bytes is None else available_bytes
    needed = memory_of(experiment, cards)
    several = f" on {cards} cards at once" if cards > 1 else ""
    if available is None or needed <= available:
        return
    raise ConfigError(
        f"a sweep of this model ({experiment.model.size_bytes / 1e9:.2f} GB){several} takes up to "
        f"{needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB can be had before the machine swaps.",
        file=experiment.model.path,
        hint="End other programs, lower serving.batch or service.workers, raise the container's limit, or take a "
        "larger machine.",
    )
