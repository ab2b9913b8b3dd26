"""Windows: what every kernel element of a convolution multiplies, padding and cropping included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from onnx import NodeProto

from workbench.graph.nodes import attributes_of
from workbench.quantization.integers.kernels import unfolded
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
    columns, _ = unfolded(values, kernel, attributes_of(node))
    _, groups, taps, _ = columns.shape
    return np.ascontiguousarray(columns.transpose(1, 0, 3, 2), np.float32).reshape(groups, -1, taps)


def _explicit(node: NodeProto, name: str, size: int, default: int) -> list[int]:
    values = attributes_of(node)
    if values.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or "output_shape" in values:
        raise CalibrationError(f"{node.name}: auto_pad and output_shape are not followed here. Export explicit pads.")
    return [int(value) for value in values.get(name, [default] * size)]


def _every(first: int, last: int, step: int) -> slice:
    return slice(first, last + 1, step) if last >= first else slice(0, 0)
