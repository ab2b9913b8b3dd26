"""The emulator's times against the figures that users published for BERT-Small on Ascend 910B3. Run by hand.

    python -m benchmarks.published_910b3 [--kernels]

FP16 with ATC's defaults, and INT8 of every MatMul (those of two activations too, as AMCT does on this chip). The
figures were measured through a service; how one follows from the device's time is in `through_service`. Nothing was
fitted to any of them: what the model is off by is what it says of host, service and what a compiler fuses away.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from benchmarks.bert import BERT_SMALL, bert, in_int8, tokens
from workbench.cann_emulator.om import OfflineModel, Tensor, load_om
from workbench.cann_emulator.timing import copy_us, execute_us, kernel_times
from workbench.values.modelled_times.device_data import DeviceData, load_device_data

LENGTH = 512
SOC = "Ascend910B3"
BATCH, WORKERS = 16, 2
"""LitServe's max_batch_size and processes with a model each on the one device, as published with the figures."""
REQUEST_MS, REQUEST_WORKER_MS = 1.0, 0.05
"""What a request waits for besides the device, and of the worker's own time for it [inferred]: loopback HTTP, JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One published figure beside the emulator's."""

    name: str
    published: float
    emulated: float

    @property
    def deviation(self) -> float:
        return self.emulated / self.published - 1


def figures(fp16: dict[int, OfflineModel], int8: OfflineModel, device: DeviceData) -> list[Figure]:
    """The three published figures.

    Args:
        fp16: by batch: 1, and the service's own.
        int8: at the service's batch.
    """
    rates = {name: through_service(model, BATCH, device) for name, model in (("fp16", fp16[BATCH]), ("int8", int8))}
    return [
        Figure(name="FP16 P50, batch 1, length 512 (ms)", published=5.38, emulated=latency_ms(fp16[1], device)),
        Figure(name="FP16 requests/s, concurrency 100", published=1659, emulated=rates["fp16"]),
        Figure(name="INT8 over FP16 throughput", published=1.76, emulated=rates["int8"] / rates["fp16"]),
    ]


def latency_ms(model: OfflineModel, device: DeviceData) -> float:
    """One request alone in the service: what it waits for there, the copies, one execution."""
    return REQUEST_MS + device_ms(model, device)


def through_service(model: OfflineModel, batch: int, device: DeviceData) -> float:
    """Requests/s of workers that are never short of requests: each fills a batch, then runs it, and the device runs one
    call after the other, so that it is idle only where all workers fill batches at once."""
    alone_ms = batch * REQUEST_WORKER_MS + device_ms(model, device)
    return batch / max(alone_ms / WORKERS, device_ms(model, device)) * 1000


def device_ms(model: OfflineModel, device: DeviceData) -> float:
    """Copies in, execution, copies out."""
    copies = [(tensor, "host_to_device") for tensor in model.inputs]
    copies += [(tensor, "device_to_host") for tensor in model.gears[0].outputs]
    return (execute_us(model, 0, device) + sum(copy_us(_bytes(t), kind, device) for t, kind in copies)) / 1000


def compile_models(folder: Path, batches: Sequence[int], *, int8: bool) -> dict[int, OfflineModel]:
    """Offline models by batch, from the emulated atc with its defaults."""
    proto = bert(length=LENGTH)
    if int8:
        proto = in_int8(proto, bert(batch=1, length=64), tokens(BERT_SMALL, 1, 64))
    models = {}
    for batch in batches:
        shapes = ";".join(f"{name}:{batch},{LENGTH}" for name in ("input_ids", "attention_mask"))
        models[batch] = compiled(proto, folder, shapes, SOC)
    return models


def compiled(proto: onnx.ModelProto, folder: Path, input_shape: str, soc: str, *flags: str) -> OfflineModel:
    """By the emulated atc."""
    onnx.save(proto, folder / "model.onnx")
    output = folder / "compiled"
    options = [f"--model={folder / 'model.onnx'}", "--framework=5", f"--soc_version={soc}", f"--output={output}"]
    done = subprocess.run(
        [sys.executable, "-m", "workbench.cann_emulator.atc", *options, f"--input_shape={input_shape}", *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode:
        raise RuntimeError(f"atc failed:\n{done.stdout}{done.stderr}")
    return load_om(output.with_suffix(".om"))


def _bytes(tensor: Tensor) -> int:
    size = 8 if tensor.dtype == "int64" else 4
    for dim in tensor.shape:
        size *= dim
    return size


def _print_kernels(name: str, model: OfflineModel, device: DeviceData) -> None:
    sums: dict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0, 0.0, 0.0])
    times = kernel_times(model, 0, device)
    for time in times:
        parts = (1, time.duration_us, time.compute_us, time.memory_us, time.launch_us)
        row = sums[time.kernel.op_type, time.kernel.dtype, time.kernel.core]
        row[:] = [a + b for a, b in zip(row, parts, strict=True)]
    print(f"\n{name}: {len(times)} kernels, {execute_us(model, 0, device) / 1000:.3f} ms an execution")
    print(f"  {'type':28} {'dtype':9} {'core':7} {'count':>5} {'µs':>9} {'compute':>9} {'memory':>9} {'launch':>7}")
    for (kind, dtype, core), (count, *spent) in sorted(sums.items(), key=lambda item: -item[1][1]):
        shown = "".join(f" {value:9.1f}" for value in spent[:3])
        print(f"  {kind:28} {dtype:9} {core:7} {count:5.0f}{shown} {spent[3]:7.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", action="store_true", help="time by operator type as well")
    chosen = parser.parse_args()
    device = load_device_data(SOC)
    batches = tuple(sorted({1, 8, BATCH}))
    with tempfile.TemporaryDirectory() as folder:
        fp16 = compile_models(Path(folder), batches, int8=False)
        int8 = compile_models(Path(folder), batches, int8=True)
    print(f"{'BERT-Small on ' + SOC + ', EMULATED':40} {'published':>10} {'emulated':>10} {'deviation':>10}")
    for figure in figures(fp16, int8[BATCH], device):
        print(f"{figure.name:40} {figure.published:10.2f} {figure.emulated:10.2f} {figure.deviation:+10.1%}")
    print(f"\nThe service: batches of {BATCH}, {WORKERS} workers. Device alone, sequences/s:")
    for batch in batches:
        alone = {name: batch / device_ms(m[batch], device) * 1000 for name, m in (("FP16", fp16), ("INT8", int8))}
        print(f"  batch {batch:3}: " + ", ".join(f"{name} {rate:7.0f}" for name, rate in alone.items()))
    if chosen.kernels:
        for name, models in (("FP16", fp16), ("INT8", int8)):
            for batch in batches:
                _print_kernels(f"{name}, batch {batch}", models[batch], device)


if __name__ == "__main__":
    main()
