"""The float model observed over the calibration samples: one pass, kept in the store, shared by every recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

from onnx import ModelProto

from workbench.evaluation.bench import Bench, StageClock
from workbench.evaluation.carried import calibration_feeds
from workbench.inputs.experiment import Experiment
from workbench.quantization.observe import Feeds, observe
from workbench.quantization.statistics import Statistics, load_statistics, save_statistics
from workbench.values.system.source_closure import closure_digest


def statistics_of(
    experiment: Experiment, bench: Bench, clock: StageClock, *, proto: ModelProto | None = None, variant: str = ""
) -> Statistics:
    """One observing pass over the calibration samples; shared by every static candidate.

    Args:
        proto, variant: a changed graph and its name (a balanced one); the model itself without.
    """

    def build(to: Path) -> None:
        statistics = observe(experiment.model, calibration_batches(experiment)(), proto=proto, variant=variant)
        save_statistics(statistics, to / "statistics.npz")

    entry = bench.store.get_or_build("statistics", {**data_key(experiment), "variant": variant}, build)
    clock.cached = entry.cached
    return load_statistics(entry.path / "statistics.npz")


def observed_statistics(experiment: Experiment, bench: Bench) -> Statistics | None:
    """The float model's statistics where some candidate needed them already; never observes."""
    entry = bench.store.find("statistics", {**data_key(experiment), "variant": ""})
    return None if entry is None else load_statistics(entry.path / "statistics.npz")


def data_key(experiment: Experiment, *code: str) -> dict[str, object]:
    """What everything computed from the calibration samples depends on.

    Args:
        code: modules that compute it, beside the engine: they count without what they import.
    """
    return {
        "model": experiment.model.sha256,
        "data": experiment.dataset.digest("calibration"),
        "settings": experiment.calibration,
        "onnxruntime": version("onnxruntime"),  # it runs the float model, whatever the candidates' target
        "code": closure_digest(
            "workbench.quantization",
            "workbench.graph.groups",
            "workbench.inputs.dataset",
            alone=(__name__, "workbench.evaluation.carried", *code),
        ),
    }


def calibration_batches(experiment: Experiment) -> Callable[[], Iterator[Feeds]]:
    settings = experiment.calibration
    return lambda: calibration_feeds(
        experiment.dataset, experiment.model, batch=settings.batch, samples=settings.samples
    )


def calibration_line(statistics: Statistics) -> str:
    """Whether more calibration samples would change anything, in one sentence (`Statistics.stability`)."""
    unstable = statistics.unstable()
    if not unstable:
        return (
            f"calibration: {statistics.samples} samples are enough; two halves of them show the same ranges to within "
            f"{max(statistics.stability().values(), default=0.0):.0%}"
        )
    worst = unstable[0]
    return (
        f"calibration: {len(unstable)} of {len(statistics.tensors)} tensors have ranges that a few of the "
        f"{statistics.samples} samples decide (worst: {worst}, {statistics.stability()[worst]:.0%} apart between two "
        "halves). Raise calibration.samples, or prefer algorithms that clip."
    )
