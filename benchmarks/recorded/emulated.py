"""What the emulated 910B3 says of one candidate, inside this process: its files, their times, and their answers.

The same compiler, clock and arithmetic as behind the emulated `atc` and `acl`, without a program's start, a second look
into each file and a device's memory for every shape. Times are modelled, never measured.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np

from benchmarks.recorded.measuring import Shape
from workbench.cann_emulator.atc.conversion import compiled_of
from workbench.cann_emulator.device_data import DeviceData, load_device_data
from workbench.cann_emulator.executable import Executable
from workbench.cann_emulator.om import OfflineModel, Tensor
from workbench.cann_emulator.timing import copy_us, execute_us, kernel_times
from workbench.evaluation.shared_shapes import only_shapes
from workbench.graph.read import read_model
from workbench.inputs.experiment import Experiment
from workbench.inputs.metrics import concatenate, per_sample, scorer_of
from workbench.targets.ascend.atc.command import compile_flags, shapes_of
from workbench.targets.ascend.interface import Interface, interface_of
from workbench.targets.ascend.om_set import write_config_files
from workbench.values.candidate import Candidate
from workbench.values.documents.canonical import digest
from workbench.values.measurement import BatchCurve, CurvePoint, Estimate

SOC = "Ascend910B3"


class _Quiet:
    """A screen that nobody looks at."""

    def line(self, text: str) -> None:
        """Nowhere."""

    def dot(self) -> None:
        """Nowhere."""

    def log(self, level: str, module: str, text: str) -> None:
        """Nowhere."""


def device() -> DeviceData:
    return load_device_data(SOC)


def compiled(lowered: Path, candidate: Candidate, shape: Shape) -> OfflineModel:
    """The file of one batch and length, by the flags that the target gives ATC."""
    one, interface = only_shapes(candidate, [shape]), _interface(lowered)
    (file,) = shapes_of(one.compile, interface)  # type: ignore[arg-type]  # Candidate checks it
    with tempfile.TemporaryDirectory(prefix="recorded-") as place, contextlib.chdir(place):
        folder = Path(place)
        flags = compile_flags(
            one,
            file,
            interface,
            soc_version=SOC,
            model=lowered,
            output=folder / file.name,
            files=write_config_files(one.compile, folder),  # type: ignore[arg-type]  # Candidate checks it
        )
        return compiled_of(flags, _Quiet()).model


@functools.lru_cache
def _interface(lowered: Path) -> Interface:
    """Of a file of the store, which never changes."""
    return interface_of(read_model(lowered))


def call_ms(model: OfflineModel, data: DeviceData) -> float:
    """One call by the device's clock: inputs to the device, execution, outputs back."""
    to_device = sum(copy_us(_bytes(tensor), "host_to_device", data) for tensor in model.inputs)
    to_host = sum(copy_us(_bytes(tensor), "device_to_host", data) for tensor in model.outputs)
    return (to_device + execute_us(model, 0, data) + to_host) / 1000


def _bytes(tensor: Tensor) -> int:
    return prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def form(model: OfflineModel, data: DeviceData) -> str:
    """Equal where the kernels and their times are: what else differs between two files costs nothing."""
    kernels = [kernel for kernel in model.gears[0].kernels if kernel.core != "none"]
    times = kernel_times(model, 0, data)
    return digest(
        [
            [k.op_type, k.core, k.dtype, [t.shape for t in k.inputs], [t.shape for t in k.outputs], t.duration_us]
            for k, t in zip(kernels, times, strict=True)
        ]
    )


def right(experiment: Experiment, models: Mapping[int, OfflineModel], threads: int) -> Sequence[bool]:
    """Which validation samples are right, each in the shortest of these files of batch 1 that holds it."""
    runs = {length: Executable(model, threads=threads) for length, model in models.items()}
    dataset = experiment.dataset.with_bins(tuple(sorted(models)))
    scorer = scorer_of(dataset, experiment.model)
    with contextlib.closing(scorer):
        parts = []
        for batch in dataset.batches("validation", 1):
            (length,) = {array.shape[1] for array in batch.feeds.values()}
            parts.append(scorer.score(runs[length].run(batch.feeds), batch, None))
    return [bool(value > 0.5) for value in np.asarray(per_sample(concatenate(parts)))]


def curve(times: Mapping[Shape, float]) -> BatchCurve:
    """The curve of a set of files, without spread: equal shapes have equal times on the emulated clock."""
    points = []
    for (batch, length), ms in sorted(times.items(), key=lambda item: item[0][::-1]):
        estimate = Estimate(value=ms, low=ms, high=ms)
        points.append(
            CurvePoint(batch=batch, length=length, calls=1, p50_ms=estimate, mean_ms=ms, quantiles_ms=(ms, ms))
        )
    return BatchCurve(points=tuple(points), stepped=True, threads=0, clock="modelled", verdict="modelled")
