"""A few samples before many: finite, not constant, not far from the float output."""

from __future__ import annotations

import hashlib

import numpy as np

from workbench.evaluation.carried import first_steps, whole_samples
from workbench.evaluation.reference import apart_from_baseline
from workbench.inputs.dataset import Batch
from workbench.inputs.metrics import (
    Outputs,
    agreement,
    cut_alike,
    not_by_distance,
)
from workbench.search.rungs.climb import Climb
from workbench.targets.base import Session
from workbench.values.errors import MeasureError
from workbench.values.results import Stop

SMOKE_SAMPLES = 8
SMOKE_STEPS = 32
"""Of each of them, where a state is carried."""
SMOKE_CONSTRAINT = "smoke_cosine"


def smoke(climb: Climb, session: Session, reference: Session) -> Stop | None:
    """A few samples: finite, not constant, not far from the float32 output, which `reference` gives."""
    batch, at = climb.candidate.serving.batch, (climb.experiment.dataset.interface, climb.experiment.model)
    runs, floats = whole_samples(session, *at), whole_samples(reference, *at)
    ours, theirs = (
        first_steps(data.batches(climb.split, batch, stop=SMOKE_SAMPLES), SMOKE_STEPS)
        for data in (climb.data, climb.baseline_data)
    )
    ignored = {use.name for use in climb.experiment.dataset.interface.outputs if use.meaning == "ignored"}

    def looked_at(outputs: Outputs) -> Outputs:
        return {name: array for name, array in outputs.items() if name not in ignored}

    seen_bits = hashlib.sha256()

    def ours_of(batch: Batch) -> Outputs:
        outputs = looked_at(runs.run(batch.feeds))
        for name, array in sorted(outputs.items()):
            seen_bits.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            seen_bits.update(np.ascontiguousarray(array).tobytes())
        return outputs

    seen = agreement(
        (
            cut_alike(ours_of(mine), mine, looked_at(floats.run(other.feeds)), other)
            for mine, other in zip(ours, theirs, strict=True)
        ),
        not_by_distance(climb.experiment.dataset),
    )
    climb.witness = seen_bits.hexdigest()
    if not seen.finite.all():
        row = int(seen.indices[~seen.finite][0])
        if climb.is_baseline:
            raise MeasureError(
                f"the float model's own output holds NaN or Inf for row {row} of {climb.split}{_on_the_target(climb)}. "
                "Look at the data; an output that does not matter can be `ignored` in the manifest."
            )
        raise MeasureError(
            f"the output holds NaN or Inf for row {row} of {climb.split}. Keep sensitive layers in float, or look "
            "at the calibration range of the first layers."
        )
    if seen.constant:
        raise MeasureError("every smoke sample gives the same output: the compiled model ignores its input.")
    mean, wanted = float(np.mean(seen.cosine)), climb.experiment.smoke_cosine
    if climb.gates and mean < wanted:
        return Stop(
            stage=climb.name,
            reason=f"mean cosine with the float32 output is {mean:.4f} over {SMOKE_SAMPLES} samples, not {wanted:g}",
            violations={SMOKE_CONSTRAINT: wanted - mean},
        )
    return None


def _on_the_target(climb: Climb) -> str:
    """Of a baseline in fewer bits: where an overflow may be its own."""
    if not apart_from_baseline(climb.experiment):
        return ""
    return f" where it computes in {climb.candidate.precision.mode} (in float32 it may not: `workbench fidelity` tells)"
