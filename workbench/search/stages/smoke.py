"""A few samples before many: finite, not constant, not far from the float output."""

from __future__ import annotations

import hashlib
from dataclasses import replace

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
from workbench.search.stages.request import Request, StageResult
from workbench.targets.base import Session
from workbench.values.errors import MeasureError

SMOKE_SAMPLES = 8
SMOKE_STEPS = 32
"""Of each of them, where a state is carried."""
SMOKE_CONSTRAINT = "smoke_cosine"


def smoke(request: Request, result: StageResult, session: Session, reference: Session) -> StageResult:
    """A few samples: finite, not constant, not far from the float32 output, which `reference` gives."""
    batch, at = request.candidate.serving.batch, (request.experiment.dataset.interface, request.experiment.model)
    runs, floats = whole_samples(session, *at), whole_samples(reference, *at)
    ours, theirs = (
        first_steps(data.batches(request.split, batch, stop=SMOKE_SAMPLES), SMOKE_STEPS)
        for data in (request.data, request.baseline_data)
    )
    ignored = {use.name for use in request.experiment.dataset.interface.outputs if use.meaning == "ignored"}

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
        not_by_distance(request.experiment.dataset),
    )
    result = replace(result, witness=seen_bits.hexdigest())
    if not seen.finite.all():
        row = int(seen.indices[~seen.finite][0])
        if request.is_baseline:
            raise MeasureError(
                f"the float model's own output holds NaN or Inf for row {row} of {request.split}"
                f"{_on_the_target(request)}. Look at the data; an output that does not matter can be `ignored` in the "
                "manifest."
            )
        raise MeasureError(
            f"the output holds NaN or Inf for row {row} of {request.split}. Keep sensitive layers in float, or look "
            "at the calibration range of the first layers."
        )
    if seen.constant:
        raise MeasureError("every smoke sample gives the same output: the compiled model ignores its input.")
    mean, wanted = float(np.mean(seen.cosine)), request.experiment.smoke_cosine
    if request.gated and mean < wanted:
        reason = f"mean cosine with the float32 output is {mean:.4f} over {SMOKE_SAMPLES} samples, not {wanted:g}"
        return result.stopped(reason, {SMOKE_CONSTRAINT: wanted - mean})
    return result


def _on_the_target(request: Request) -> str:
    """Of a baseline in fewer bits: where an overflow may be its own."""
    if not apart_from_baseline(request.experiment):
        return ""
    return (
        f" where it computes in {request.candidate.precision.mode} (in float32 it may not: `workbench fidelity` tells)"
    )
