"""How many multiply-accumulates an operator of msprof's table has, from the shapes beside it."""

from __future__ import annotations

import math
import re

from workbench.targets.ascend.profiles.tables import Row

PRODUCTS = re.compile(r"matmul|conv|fullyconnection|gemm", re.IGNORECASE)
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)
_SEVERAL = re.compile(r"attention", re.IGNORECASE)
_MOST = 1 << 61


def product_macs(op_type: str, row: Row) -> int:
    """-1 for an operator that is no product, and where the shapes do not tell.

    Of a [b, m, k] · [k, n] the elements of factors and result are bmk, kn and bmn, whose product is the square of the
    multiply-accumulates; of stacks of b products on both sides it is b times that square. It holds in ND and, with
    what is padded counted too, in NZ. Of a convolution every result takes a kernel's weights.
    """
    if not PRODUCTS.search(op_type) or _SEVERAL.search(op_type):
        return -1
    inputs, outputs = _shapes(row.cell("input_shapes")), _shapes(row.cell("output_shapes"))
    if len(inputs) < 2 or not outputs or not all((*inputs[:2], outputs[0])):
        return -1
    first, second, result = inputs[0], inputs[1], outputs[0]
    if _CONVOLUTION.search(op_type):
        channels = _output_channels(second, row.cell("input_formats"))
        macs = math.prod(result) * math.prod(second) // channels if channels else -1
    else:
        square = math.prod(first) * math.prod(second) * math.prod(result)
        macs = math.isqrt(square // _stacked(first, second, row.cell("input_formats")))
    return macs if macs < _MOST else -1


def _shapes(text: str) -> list[tuple[int, ...]]:
    """'1,128;128,64' of a table; () for a scalar and for what is no shape."""
    parts = text.split(";")[:16] if text else []
    return [
        tuple(int(size) for size in re.findall(r"\d{1,9}", part)) if re.fullmatch(r"[\[\]\d,\s]*", part) else ()
        for part in parts
    ]


def _stacked(first: tuple[int, ...], second: tuple[int, ...], formats: str) -> int:
    """Products in a stack: the axes in front of the matrices, where both factors have the same."""
    front = first[: len(first) - _axes(formats, 0)]
    return math.prod(front) if front == second[: len(second) - _axes(formats, 1)] else 1


def _axes(formats: str, factor: int) -> int:
    """Of one matrix: NZ cuts it into blocks, [n1, m1, m0, n0]."""
    return 4 if _layout(formats, factor).endswith("NZ") else 2


def _layout(formats: str, factor: int) -> str:
    layouts = formats.split(";")
    return layouts[factor].strip().upper() if factor < len(layouts) else ""


def _output_channels(weight: tuple[int, ...], formats: str) -> int:
    """0 where the weight's layout does not tell them: NCHW has them in front, FRACTAL_Z is [C1HW, N1, N0, C0]."""
    layout = _layout(formats, 1)
    if layout.startswith("FRACTAL_Z") and len(weight) == 4:
        return weight[1] * weight[2]
    return weight[0] if layout in ("NCHW", "NCDHW", "ND", "") else 0
