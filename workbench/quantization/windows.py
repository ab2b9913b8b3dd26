"""Windows: what every kernel element of a convolution multiplies, padding and cropping included."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from workbench.graph.nodes import attributes_of
from workbench.values.errors import CalibrationError


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
