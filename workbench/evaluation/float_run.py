"""The float model on a few samples of the user's: what it gives, and how long a call takes."""

from __future__ import annotations

import contextlib
import shlex
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.evaluation.carried import first_steps, whole_samples
from workbench.inputs.dataset import Batch, Dataset
from workbench.inputs.metrics.score import Outputs
from workbench.targets import REFERENCE, open_target
from workbench.values.errors import CompileError, ConfigError, MeasureError
from workbench.values.interface import OutputUse
from workbench.values.model import Model

_SAMPLES = 32
_LONGEST_S = 10.0
_STEPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatRun:
    """
    Attributes:
        outputs: by name, [n, ...]; of the first sample alone where samples differ in their shapes.
        rows: batches and what came of each.
        call_ms: median of single calls on one thread, of the model's own batch where that is fixed.
    """

    outputs: Outputs
    rows: tuple[tuple[Batch, Outputs], ...]
    samples: int
    call_ms: float


def run_float(model: Model, dataset: Dataset) -> FloatRun:
    """Run the reference engine over the first validation samples.

    Raises:
        ConfigError: it fails with them.
    """
    batch = model.fixed_batch or 1
    found: list[tuple[Batch, Outputs]] = []
    times_ms: list[float] = []
    given = model.origin.path if model.origin is not None else model.path
    try:
        session = open_target(REFERENCE).probe(model.path, ())
        with contextlib.closing(whole_samples(session, dataset.interface, model)) as whole:
            begin = time.perf_counter()
            rows = dataset.batches("validation", batch, stop=max(_SAMPLES, batch))
            for one in first_steps(rows, _STEPS):
                started = time.perf_counter()
                found.append((one, whole.run(one.feeds)))
                times_ms.append(1e3 * (time.perf_counter() - started))
                if time.perf_counter() - begin > _LONGEST_S:
                    break
    except CompileError as error:
        raise ConfigError(
            f"the float model cannot be run, and all that is calibrated and compared rests on running it. {error}",
            file=given,
            hint="Export it without what is named there, or in float32.",
        ) from error
    except MeasureError as error:
        raise ConfigError(
            f"the float model fails with the first samples of the validation: {error}",
            file=given,
            hint="Are the arrays what it was trained on: their order of axes, type and range?",
        ) from error
    steady = times_ms[1:] or times_ms
    return FloatRun(
        outputs={
            name: np.concatenate([each[name] for _, each in found if each[name].shape[1:] == first.shape[1:]])
            if first.ndim
            else first
            for name, first in found[0][1].items()
        },
        rows=tuple(found),
        samples=sum(len(one) for one, _ in found),
        call_ms=statistics.median(steady),
    )


def check_answers(run: FloatRun, uses: Sequence[OutputUse], file: Path) -> None:
    """Whether anything can be held against these answers.

    Args:
        uses: what outputs mean; those that are ignored are not looked at.

    Raises:
        ConfigError: they hold NaN or infinity, or are the same for every sample.
    """
    ignored = {use.name for use in uses if use.meaning == "ignored"}
    floats = {n: a for n, a in run.outputs.items() if a.dtype.kind == "f" and n not in ignored}
    for name, array in floats.items():
        rows = ~np.isfinite(array).reshape(len(array) if array.ndim else 1, -1).all(axis=1)
        if rows.any():
            raise ConfigError(
                f"the float model's output {name!r} holds NaN or infinity, first for sample {int(rows.argmax())} of "
                "the validation, so that nothing can be compared with it.",
                file=file,
                hint=f"Repair the data or the model; where it does not matter: --output {shlex.quote(name)}=ignored",
            )
    judged = {n: a for n, a in run.outputs.items() if n not in ignored and a.ndim and len(a) > 1}
    if floats and judged.keys() >= floats.keys() and all((a == a[:1]).all() for a in judged.values()):
        raise ConfigError(
            f"the float model gives the same answer to each of the {run.samples} first samples of the validation, so "
            "that no candidate could be told from another.",
            file=file,
            hint="Do the samples differ, and do the weights lie in the file?",
        )
