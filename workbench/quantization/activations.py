"""The float activations of a model, run by run: what every pass over the calibration data is made of.

Batches with a symbolic batch dimension are run a few samples at a time, several runs at once (each on one core), so
memory depends on neither the batch nor the number of samples.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import ModelProto, NodeProto

from workbench.graph.apart import is_large
from workbench.graph.nodes import attributes_of
from workbench.graph.runtime_errors import RUNTIME_ERRORS
from workbench.quantization.sessions import open_session
from workbench.values.errors import CalibrationError
from workbench.values.model import Model

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
"""Input name → array of shape [batch, ...]; the same type as `workbench.targets.base.Feeds`."""
_Floats = npt.NDArray[np.float32]

ROWS_PER_RUN, VALUES_PER_RUN = 4, 256
"""A forward pass takes 4 samples, or more where that many have fewer than 256 values (such as short texts: more of
them at once share the cost of a run). Bounds the activations in memory; more rows are no faster on a CPU."""

RUN_BYTES = 64 << 20
"""Of a large model's tensors in one run. Two runs are made ahead and held besides."""

MASSIVE = 4.0
"""A row is left out of means and moments when its largest |x| is this many times that of the run's median row."""

_WIDE = 64  # channels; in a narrow layer a few large rows are nothing special


class NotFiniteError(ValueError):
    """A tensor holds NaN or infinity; `tensor` is its name."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"tensor {tensor!r} holds NaN or infinity")
        self.tensor = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One forward pass.

    Attributes:
        first_sample, samples: which samples it was, counted from 0 over the whole data.
        values: tensor → float32 values; finite, where nothing was done with them in the run itself.
    """

    first_sample: int
    samples: int
    feeds: Feeds
    values: Mapping[str, _Floats]


def activations(
    model: Model,
    proto: ModelProto | None,
    tensors: Sequence[str],
    batches: Iterable[Feeds],
    *,
    threads: int = 2,
    whole: bool = False,
    work: Callable[[Run], None] | None = None,
) -> Iterator[Run]:
    """The values of tensors, one run after another in the order of the batches.

    A few runs are computed ahead on `threads` cores; no more than `threads` + 1 of them are held.

    Args:
        proto: the graph to run, with the model's inputs and outputs; None for the model's own.
        whole: a batch is one run, as it is fed; otherwise a few samples are.
        work: what is done with a run on its own core; its values are gone then. It raises NotFiniteError.

    Raises:
        CalibrationError: no samples, feeds the model refuses, or a tensor that is not float32 or not finite (names it
            and the sample).
    """
    fed = {spec.name for spec in model.inputs}
    wanted = [tensor for tensor in dict.fromkeys(tensors) if tensor not in fed]
    session = open_session(model, wanted, proto)

    def run(feeds: Feeds, first_sample: int) -> Run:
        try:
            outputs = session.run(wanted or None, dict(feeds))[: len(wanted)]
        except RUNTIME_ERRORS as error:
            raise CalibrationError(f"the float model failed at calibration sample {first_sample}: {error}") from error
        seen = {**feeds, **dict(zip(wanted, outputs, strict=True))}
        values = {tensor: seen[tensor] for tensor in tensors}
        done = Run(first_sample=first_sample, samples=_rows(feeds), feeds=feeds, values=values)
        for name, array in values.items():
            if array.dtype != np.float32:
                raise CalibrationError(f"tensor {name!r} is {array.dtype}; only float32 activations can be calibrated.")
        try:
            if work is None:
                for tensor, array in values.items():
                    if array.size and not np.isfinite([array.min(), array.max()]).all():
                        raise NotFiniteError(tensor)
                return done
            work(done)
        except NotFiniteError as error:
            raise _not_finite(error.tensor, done) from error
        return Run(first_sample=first_sample, samples=done.samples, feeds=feeds, values={})

    samples, most_rows = 0, None
    pending: collections.deque[Future[Run]] = collections.deque()
    with ThreadPoolExecutor(max_workers=threads) as pool:
        try:
            for feeds in batches:
                if samples == 0 and not whole:
                    most_rows = _rows_that_fit(model, session, wanted, feeds)
                for part in [feeds] if whole else parts(model, feeds, most_rows=most_rows):
                    pending.append(pool.submit(run, part, samples))
                    samples += _rows(part)
                    if len(pending) > threads:
                        yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
    if samples == 0:
        raise CalibrationError("there are no calibration samples. Check the dataset's `calibration` file.")


def parts(model: Model, feeds: Feeds, *, most_rows: int | None = None) -> Iterator[Feeds]:
    """A batch in pieces of a few samples (`ROWS_PER_RUN`), where the model takes any batch size.

    Args:
        most_rows: samples whose activations fit into memory.
    """
    rows = _rows(feeds)
    sizes = {array.shape[0] if array.ndim else None for array in feeds.values()}
    fixed = any(not spec.shape or isinstance(spec.shape[0], int) for spec in model.inputs)
    if fixed or sizes != {rows}:
        yield feeds
        return
    if rows == 0:
        return
    values = max(array.size // rows for array in feeds.values())
    step = max(ROWS_PER_RUN, VALUES_PER_RUN // max(values, 1))
    if most_rows is not None:
        step = min(step, most_rows)
    for start in range(0, rows, step):
        yield {name: array[start : start + step] for name, array in feeds.items()}


def _rows(feeds: Feeds) -> int:
    first = next(iter(feeds.values()), None)
    return 1 if first is None or first.ndim == 0 else int(first.shape[0])


def _rows_that_fit(
    model: Model, session: onnxruntime.InferenceSession, wanted: Sequence[str], feeds: Feeds
) -> int | None:
    """How many samples like the batch's first one have tensors of `RUN_BYTES` in all: one run of it tells.

    None for models that are small themselves, whose activations are not worth a run.
    """
    if not is_large(model.size_bytes) or not wanted:
        return None
    one = next(parts(model, feeds, most_rows=1), feeds)
    try:
        held: int = sum(array.nbytes for array in session.run(list(wanted), dict(one)))
    except RUNTIME_ERRORS:
        return None  # the run that counts says so, with the sample
    return max(1, RUN_BYTES // max(held // max(_rows(one), 1), 1))


def _not_finite(tensor: str, run: Run) -> CalibrationError:
    values, rows = run.values[tensor], run.samples
    position = np.argwhere(~np.isfinite(values))[0]
    leading = values.shape[0] if values.ndim else 1
    sample = f"sample {run.first_sample}"
    if leading % rows == 0:  # [batch, ...], or batch and positions in one dimension
        sample = f"sample {run.first_sample + int(position[0]) * rows // leading}"
    elif rows > 1:
        sample = f"one of samples {run.first_sample} to {run.first_sample + rows - 1}"
    return CalibrationError(
        f"activation {tensor!r} holds {values[tuple(position)]} at {sample}. Look at that sample, or at the float "
        "model with it."
    )


def ordinary_rows(values: _Floats) -> _Floats:
    """The rows (tokens) of [..., C] as [rows, C], without those of massive activations (see `MASSIVE`).

    Encoders park large values on a token or two per sentence (Sun et al. 2024, "Massive Activations in Large Language
    Models", arXiv:2402.17762), and the normalization behind takes them out again. A mean over all tokens is theirs:
    in MiniLM's first block one channel has a mean error of 10.8 and a median one of 0.01, and correcting the mean
    cost 0.73 of 0.94 accuracy.

    Layers of fewer than 64 channels keep every row.
    """
    rows = values.reshape(-1, values.shape[-1])
    if rows.shape[1] < _WIDE:
        return rows
    largest = np.abs(rows).max(axis=1)
    ordinary = largest <= MASSIVE * np.median(largest)
    return rows if ordinary.all() else rows[ordinary]


# --- what every kernel element of a convolution multiplies, padding and cropping included ----------------------------


def windows(node: NodeProto, input_shape: Sequence[int], kernel: Sequence[int]) -> tuple[int, list[tuple[slice, ...]]]:
    """Output positions per channel of a Conv or ConvTranspose, and the input positions of each kernel element.

    The kernel elements come in C order. Each selected input position adds to one output position; what is missing
    meets padding, or falls off a ConvTranspose's cropped edge.

    Args:
        input_shape, kernel: spatial sizes only.

    Raises:
        CalibrationError: `auto_pad` or `output_shape`, which leave the padding to the runtime.
    """
    rank = len(kernel)
    strides, dilations = _explicit(node, "strides", rank, 1), _explicit(node, "dilations", rank, 1)
    pads, extra = _explicit(node, "pads", 2 * rank, 0), _explicit(node, "output_padding", rank, 0)
    positions = 1
    per_axis: list[list[slice]] = []
    for axis, (size, stride) in enumerate(zip(input_shape, strides, strict=True)):
        padding = pads[axis] + pads[axis + rank]
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        forward = node.op_type == "Conv"
        outputs = (size + padding - reach) // stride + 1 if forward else (size - 1) * stride + reach - padding
        outputs += 0 if forward else extra[axis]
        positions *= outputs
        slices = []
        for at in range(kernel[axis]):
            offset = at * dilations[axis] - pads[axis]
            first = -(-max(0, -offset) // stride)
            if forward:  # output o reads input o * stride + offset
                last = min(outputs - 1, (size - 1 - offset) // stride)
                slices.append(_every(first * stride + offset, last * stride + offset, stride))
            else:  # input i adds to output i * stride + offset
                slices.append(_every(first, min(size - 1, (outputs - 1 - offset) // stride), 1))
        per_axis.append(slices)
    elements = np.ndindex(*kernel)
    return positions, [tuple(per_axis[axis][at] for axis, at in enumerate(element)) for element in elements]


def patches(node: NodeProto, values: npt.NDArray[np.float32], kernel: Sequence[int]) -> npt.NDArray[np.float32]:
    """The input of a Conv, unfolded: float32 [groups, batch · output positions, Cin / groups · kernel elements].

    A row times a group's weights of one output channel, in C order, is one output value without the bias.

    Args:
        values: float32 [batch, Cin, ...].
        kernel: spatial sizes only.
    """
    attributes, rank = attributes_of(node), len(kernel)
    strides, dilations = (attributes.get(name, [1] * rank) for name in ("strides", "dilations"))
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    pads = _pads(attributes, values.shape[2:], reach, strides)
    padded = np.pad(values, [(0, 0), (0, 0), *pads])
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=tuple(range(2, values.ndim)))
    steps = [slice(None, None, step) for step in (*strides, *dilations)]
    view = view[(slice(None), slice(None), *steps)]  # [batch, Cin, positions..., kernel...]
    groups = int(attributes.get("group", 1))
    split = view.reshape(len(values), groups, values.shape[1] // groups, *view.shape[2:])
    axes = (1, 0, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank))
    rows = split.transpose(axes).reshape(groups, -1, values.shape[1] // groups * math.prod(kernel))
    return np.ascontiguousarray(rows, np.float32)


def _pads(
    attributes: Mapping[str, Any], sizes: Sequence[int], reach: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    mode = attributes.get("auto_pad", b"NOTSET")
    if mode in (b"NOTSET", b"VALID"):
        pads = attributes.get("pads", [0] * 2 * len(reach)) if mode == b"NOTSET" else [0] * 2 * len(reach)
        return list(zip(pads[: len(reach)], pads[len(reach) :], strict=True))
    totals = [max(0, (-(-n // s) - 1) * s + r - n) for n, r, s in zip(sizes, reach, strides, strict=True)]
    halves = [(total // 2, total - total // 2) for total in totals]
    return halves if mode == b"SAME_UPPER" else [(large, small) for small, large in halves]


def _explicit(node: NodeProto, name: str, size: int, default: int) -> list[int]:
    values = attributes_of(node)
    if values.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or "output_shape" in values:
        raise CalibrationError(f"{node.name}: auto_pad and output_shape are not followed here. Export explicit pads.")
    return [int(value) for value in values.get(name, [default] * size)]


def _every(first: int, last: int, step: int) -> slice:
    return slice(first, last + 1, step) if last >= first else slice(0, 0)
