"""INT8 models by other people's tools, on the sentences of `accuracy.py`: ONNX Runtime's own, NNCF, Neural Compressor.

NNCF and Neural Compressor run in interpreters of their own, given on the command line, which execute `peer_child.py`.
Made with `pip install nncf openvino onnx onnxruntime` and with `pip install onnx-neural-compressor prettytable scipy`
(1.0 does not name the last two among its needs).
"""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnxruntime.quantization import CalibrationMethod, QuantFormat, quantize_dynamic, quantize_static
from onnxruntime.quantization.calibrate import CalibrationDataReader
from onnxruntime.quantization.shape_inference import quant_pre_process

from workbench.quantization.observe import Feeds
from workbench.targets.onnxruntime.compiler import count_kernels

Floats = npt.NDArray[np.float32]

CHILD = Path(__file__).with_name("peer_child.py")
RUN_BATCH = 16
"""Sentences of one length in a call. A static model gives each the same answer alone or among others."""

LENGTH, BATCH = 64, 8
"""ONNX Runtime's histogram calibrators stack what they see, so all sentences must be of one length."""


def logits_of(run: Callable[[Feeds], Floats], sentences: Sequence[Feeds], *, batch: int) -> Floats:
    """Outputs [sentences, classes] in their order, `batch` sentences of one length at a time."""
    by_length: dict[int, list[int]] = {}
    for index, feeds in enumerate(sentences):
        by_length.setdefault(next(iter(feeds.values())).shape[1], []).append(index)
    found: dict[int, Floats] = {}
    for indices in by_length.values():
        for part in (indices[start : start + batch] for start in range(0, len(indices), batch)):
            feeds = {name: np.concatenate([sentences[i][name] for i in part]) for name in sentences[part[0]]}
            found |= dict(zip(part, run(feeds), strict=True))
    return np.stack([found[index] for index in range(len(sentences))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every peer gets.

    Attributes:
        calibration, validation: one sentence each, padded to its bin.
        skipped: names of layers that stay in float.
    """

    model: Path
    calibration: Sequence[Feeds]
    validation: Sequence[Feeds]
    skipped: tuple[str, ...]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """See `accuracy.Run`."""

    logits: Floats
    seconds: float | None = None
    int8: int | None = None
    layers: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Attributes:
    run: gives what it found, or in words why there is nothing.
    """

    name: str
    run: Callable[[Job], Found | str]


def all_peers(nncf_python: Path | None, inc_python: Path | None, *, linear_only: bool, slow: bool) -> list[Peer]:
    """In the order of the table; a dynamic product of two activations does not exist anywhere.

    Args:
        slow: ONNX Runtime's histogram calibrators too, which took minutes.
    """
    dynamic = [
        Peer(name="onnxruntime quantize_dynamic", run=partial(_dynamic, per_channel=False)),
        Peer(name="onnxruntime quantize_dynamic per channel", run=partial(_dynamic, per_channel=True)),
    ]
    static = [
        Peer(name=f"onnxruntime quantize_static {method}", run=partial(_static, method=method))
        for method in (("MinMax", "Percentile", "Entropy") if slow else ("MinMax",))
    ]
    children = [
        Peer(name=name, run=partial(_in_child, python=python, tool=tool, option=option))
        for name, python, tool, option in (
            ("NNCF of ONNX, on ONNX Runtime", nncf_python, "nncf-onnx", "--nncf-python"),
            ("NNCF on OpenVINO", nncf_python, "nncf-openvino", "--nncf-python"),
            ("Neural Compressor, on ONNX Runtime", inc_python, "inc", "--inc-python"),
        )
    ]
    return [*(dynamic if linear_only else []), *static, *children]


# --- ONNX Runtime's own --------------------------------------------------------------------------------------------


def _dynamic(job: Job, *, per_channel: bool) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "dynamic.onnx"
        began = time.perf_counter()
        with _quiet():
            quantize_dynamic(job.model, file, per_channel=per_channel)
        # one at a time: a dynamic scale is that of the whole batch
        return _run(file, job.validation, time.perf_counter() - began, batch=1)


def _static(job: Job, *, method: str) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        cleaned, file = Path(folder) / "cleaned.onnx", Path(folder) / "static.onnx"
        began = time.perf_counter()
        with _quiet():
            # its symbolic shape inference gives up on this export ("Incomplete symbolic shape inference")
            quant_pre_process(str(job.model), str(cleaned), skip_symbolic_shape=True)
            quantize_static(
                cleaned,
                file,
                _Reader(job.calibration),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=["MatMul", "Gemm"],
                per_channel=True,
                calibrate_method=CalibrationMethod[method],
                extra_options={"MatMulConstBOnly": bool(job.skipped)},
            )
        return _run(file, job.validation, time.perf_counter() - began)


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
    """Sentences in batches of BATCH, all padded to LENGTH."""

    def __init__(self, sentences: Sequence[Feeds]) -> None:
        padded = [{name: _padded(array) for name, array in feeds.items()} for feeds in sentences]
        parts = [padded[start : start + BATCH] for start in range(0, len(padded), BATCH)]
        self._batches = iter([{n: np.concatenate([feeds[n] for feeds in part]) for n in part[0]} for part in parts])

    def get_next(self) -> Feeds | None:
        return next(self._batches, None)


def _padded(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.pad(array, ((0, 0), (0, LENGTH - array.shape[1])))


def _run(file: Path, validation: Sequence[Feeds], seconds: float, *, batch: int = RUN_BATCH) -> Found:
    """By the runtime with all its optimizations, counted in the graph they leave."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    optimized = file.with_suffix(".optimized.onnx")
    options.optimized_model_filepath = str(optimized)
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    int8, in_float, _ = count_kernels(onnx.load(optimized))
    logits = logits_of(lambda feeds: session.run(["logits"], dict(feeds))[0], validation, batch=batch)
    return Found(logits=logits, seconds=seconds, int8=int8, layers=int8 + in_float)


@contextlib.contextmanager
def _quiet():  # type: ignore[no-untyped-def]
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


# --- in interpreters of their own ----------------------------------------------------------------------------------


def _in_child(job: Job, *, python: Path | None, tool: str, option: str) -> Found | str:
    if python is None:
        return f"not run; give it an interpreter with {option}"
    job.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=job.folder) as temporary:
        folder = Path(temporary)
        for name, sentences in (("calibration", job.calibration), ("validation", job.validation)):
            np.savez(
                folder / f"{name}.npz",
                widths=np.array([next(iter(feeds.values())).shape[1] for feeds in sentences]),
                **{key: np.concatenate([_padded(feeds[key]) for feeds in sentences]) for key in sentences[0]},
            )
        done = subprocess.run(
            # not resolved: a virtual environment's interpreter is a link that must be called by its own name
            [str(python.absolute()), str(CHILD), tool, str(job.model), str(folder), *job.skipped],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode != 0:
            return f"failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        with np.load(folder / "found.npz") as found:
            seconds = float(found["seconds"])
            if "logits" in found:
                return Found(
                    logits=found["logits"],
                    seconds=seconds,
                    int8=int(found["int8"]),
                    layers=int(found["int8"] + found["in_float"]),
                )
        return _run(folder / "quantized.onnx", job.validation, seconds)
