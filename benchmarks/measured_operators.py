"""Rows of measured operators → what their kernels ask for, in the form that the emulator times.

A row is one call of a library's operator; where the source says which kernels it ran, they follow one another, the
first reading what was flushed to HBM and the others what the one before left in L2.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.cann_emulator.device_data import DeviceData, load_device_data
from workbench.cann_emulator.om import Dtype, Tensor
from workbench.cann_emulator.timing import KernelWork, operator_work, work_us

_DTYPES: Mapping[str, Dtype] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int16": "float16"}
_CHIPS = {"910B1": "Ascend910B1", "910B2": "Ascend910B2", "910B4": "Ascend910B4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A row that the model has a counterpart of.

    Attributes:
        works: of the kernels that one call runs.
    """

    name: str
    file: str
    shape: str
    soc: str
    time_us: float
    works: tuple[KernelWork, ...]
    error_class: str


def read_cases(folder: Path) -> list[Case]:
    """All rows of operators that the model times, in the order of files and lines."""
    found: list[Case] = []
    devices: dict[str, DeviceData] = {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                soc = _soc(row["chip"])
                device = devices.setdefault(soc, load_device_data(soc)) if soc not in devices else devices[soc]
                works = works_of(row, device) if row["time_us"] and "at_or_below" not in row["flags"] else ()
                if not works:
                    continue
                longest = max(works, key=lambda work: work_us(work, device))
                found.append(
                    Case(
                        name=row["id"],
                        file=path.stem,
                        shape=row["in_shapes"],
                        soc=soc,
                        time_us=float(row["time_us"]),
                        works=works,
                        error_class=device.kinds[longest.kind].error_class,
                    )
                )
    return found


def _soc(chip: str) -> str:
    """Rows whose file alone says 910B2 are of 20 cores by what products reach, as 910B3."""
    return next((soc for name, soc in _CHIPS.items() if chip == name), "Ascend910B3")


def works_of(row: Mapping[str, str], device: DeviceData) -> tuple[KernelWork, ...]:
    """What the kernels of one call ask for; nothing for operators that ONNX has no counterpart of."""
    shapes, dtypes = json.loads(row["in_shapes"] or "[]"), json.loads(row["in_dtypes"] or "[]")
    attributes = json.loads(row["attrs"] or "{}")
    if any(shape and isinstance(shape[0], list) for shape in shapes) and row["op"] != "foreach_norm":
        return ()
    if row["op"] == "foreach_norm":
        shapes, dtypes = shapes[0], dtypes * len(shapes[0])
    pairs = [(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=False) if shape is not None]
    inputs = [_tensor(shape, dtype) for shape, dtype in pairs]
    if not inputs or row["family"] in _LEFT_OUT or row["window"] in ("HA", "GAP", "E2E", "HS"):
        return ()
    given = zip(json.loads(row["out_shapes"] or "[]"), json.loads(row["out_dtypes"] or "[]"), strict=False)
    outputs = [_tensor(shape, dtype) for shape, dtype in given if shape]
    steps = list(_steps(row, inputs, outputs or [inputs[0]], attributes, device))
    near = row["l2"] in ("in_situ", "warm")
    return tuple(
        replace(work, read_far=0, read_near=work.read_far) if near or index else work
        for index, work in enumerate(steps)
    )


_LEFT_OUT = (
    *("sort", "scan", "elementwise_int", "rnn", "attention_prolog", "moe", "matmul_grouped_int8"),
    *("gap", "host_api", "fixed_part", "launch_sync_wall", "collective"),
)
"""Families without a counterpart in ONNX, and what is no operator."""


def _steps(
    row: Mapping[str, str], inputs: list[Tensor], outputs: list[Tensor], attrs: dict[str, Any], device: DeviceData
) -> Iterator[KernelWork]:
    """The kernels of a call in order."""

    def work(operator: str, taken: Sequence[Tensor], given: Sequence[Tensor], **more: Any) -> KernelWork:
        return operator_work([operator], taken, given, device, **more)

    op, kernels, first = row["op"], row["kernels"], inputs[0]
    small = work("Cast", [], [_tensor([16], "fp16")])
    if row["m"]:
        batch, m, k, n = (int(float(row[name] or 1)) for name in ("batch", "m", "k", "n"))
        half = "fp16" if first.dtype == "int8" else row["in_dtypes"].split('"')[1]
        operator = row["kernel"] if device.kind_of(row["kernel"]) else "MatMul"
        result = outputs if row["out_shapes"] not in ("", "[]") else [_tensor([batch * m, n], half)]
        yield work(operator, inputs, result, products=((batch, m, k, n),), dtype=first.dtype)
    elif op == "grouped_matmul":
        ends = attrs["group_list"]
        k, n = first.shape[1], next((s for s in inputs[1].shape[1:] if s != first.shape[1]), first.shape[1])
        products = tuple((1, b - a, k, n) for a, b in zip([0, *ends], ends, strict=False))
        yield work("MatMul", inputs, [replace(first, shape=(first.shape[0], n))], products=products, dtype=first.dtype)
    elif row["family"] == "attention":
        yield from _attention(row, inputs, attrs, work)
    elif op == "conv_2d":
        yield from _convolution(inputs, attrs, work, casts=kernels.count("MemSet") + kernels.count("Cast"))
    elif op == "depthwise_conv_2d":
        size = _sides(first.shape[2:], inputs[1].shape[-2:], attrs)
        yield work("DepthwiseConv2D", [], [replace(first, shape=(*first.shape[:2], *size))])
    elif op == "softmax":
        yield work("Softmax", inputs, outputs, attributes={"axis": attrs["dim"]})
    elif op == "arg_max":
        yield work("ArgMax", inputs, [], attributes={"axis": attrs["dim"] if first.dtype != "int64" else 0})
        yield small
    elif op == "cross_entropy_loss":
        if "Transpose" in kernels:
            yield work("Transpose", [first], [first])
        yield work("LogSoftmax", [first] if len(first.shape) == 2 else [_classes_last(first)], [first])
        yield from (small,) * 3
        yield work("ReduceSum", [first], [])
    elif op == "adaptive_avg_pool_3d" and "Transpose" in kernels:
        given = replace(first, shape=(*first.shape[:2], *attrs["output_size"]))
        yield work("Transpose", [first], [first])
        yield work("AdaptiveAvgPool3d", [first], [_classes_last(given)])
        yield work("Transpose", [given], [given])
    elif op == "resize_bilinear":
        sides = attrs.get("output_size") or [
            round(a * b) for a, b in zip(first.shape[2:], attrs["scale_factor"], strict=True)
        ]
        given = replace(first, shape=(first.shape[0], -(-first.shape[1] // 16) * 16, *sides))
        yield work("TransData", [first], [first])
        yield work("Resize", [first], [given])
        yield work("TransData", [given], [given])
    elif op in ("gather", "scatter"):
        moved = replace(first, shape=inputs[1].shape)
        yield work(f"{op.title()}Elements", inputs if op == "scatter" else [moved, inputs[1]], [moved])
    elif op == "apply_rotary_pos_emb" and "Interleave" not in kernels:
        table = replace(first, shape=(inputs[2].shape[0], 2 * inputs[2].shape[1]))
        yield from (work("ConcatD", [table], [table]),) * 4
        if "Transpose" in kernels:
            yield from (work("Transpose", [first], [first], attributes={"perm": [0, 2, 1, 3]}),) * 4
        both = replace(first, shape=(2, *first.shape))
        yield work("ApplyRotaryPosEmb", [both], [both])
    elif op in ("exp", "masked_scale") and "+" in kernels:
        count = sum(int(name.partition("*")[2]) for name in kernels.split("+"))
        yield from (work("Mul", inputs if not index else [first], [first]) for index in range(count - 1))
        yield work("Exp" if op == "exp" else "Mul", [first], [first])
    elif op == "swi_glu":
        if "Slice" in kernels:
            yield work("Slice", [first], [first])
        axis = attrs["dim"] % len(first.shape)
        run = math.prod(first.shape[axis:]) // 2
        rows = math.prod(first.shape) // (2 * run)
        yield replace(work("SwiGlu", [replace(first, shape=(rows, 2 * run))], [replace(first, shape=(rows, run))]))
    elif op == "transpose":
        yield work("Transpose", inputs, _permuted(first, attrs.get("perm", ())), attributes=attrs)
    elif op == "maximum" and len(inputs) == 2 and math.prod(inputs[1].shape) != inputs[1].shape[-1] != first.shape[-1]:
        yield work("broadcast", inputs, outputs)
    elif op in _OPERATORS or (row["kernel"] and op not in _NO_COUNTERPART):
        operator = _OPERATORS.get(op) or row["kernel"]
        if op in ("dynamic_quant", "add_rms_norm_dynamic_quant"):
            outputs = [replace(first, dtype="int8")]
        elif op == "dequant_swiglu_quant":
            outputs = [replace(first, dtype="int8", shape=(*first.shape[:-1], first.shape[-1] // 2))]
        elif op == "group_norm":  # a row is what one channel holds
            inputs = [replace(first, shape=(math.prod(first.shape[:2]), math.prod(first.shape[2:])))]
            outputs = inputs
        elif op in ("foreach_norm", "adaptive_avg_pool_3d"):
            outputs = []
        yield work(operator, inputs, outputs)


_NO_COUNTERPART = ("apply_adam_w", "foreach_addcdiv_scalar", "roi_align", "grid_sampler_3d", "apply_rotary_pos_emb")
_OPERATORS = {
    "sigmoid": "Sigmoid",
    "gelu": "Gelu",
    "mish": "Mish",
    "exp": "Exp",
    "maximum": "Maximum",
    "masked_scale": "Mul",
    "rms_norm": "RmsNorm",
    "group_norm": "GroupNorm",
    "add_rms_norm_dynamic_quant": "AddRmsNormDynamicQuant",
    "dynamic_quant": "DynamicQuant",
    "dequant_swiglu_quant": "DequantSwigluQuant",
    "foreach_norm": "ForeachNorm",
    "adaptive_avg_pool_3d": "ReduceMean",
}
"""Sources' names → operators, where one kernel does it all; else the kernel's own name is taken."""


def _attention(
    row: Mapping[str, str], inputs: list[Tensor], attrs: dict[str, Any], work: Callable[..., KernelWork]
) -> Iterator[KernelWork]:
    query, key = inputs[0], inputs[2 if row["op"] == "mla" else 1]
    if row["op"] == "sparse_flash_attention" or len(query.shape) != 4:
        return
    order = (0, 2, 1, 3) if attrs.get("inputLayout") == "BNSD" else (0, 1, 2, 3)
    batch, length, heads, width = (query.shape[axis] for axis in order)
    keys, kept = (key.shape[axis] for axis in order[1:3])
    read = inputs[:4] if row["op"] == "mla" else inputs
    wide = width + (64 if row["op"] == "mla" else 0)
    products = ((batch * kept, length * heads // kept, wide, keys), (batch * kept, length * heads // kept, keys, width))
    found: KernelWork = work("FlashAttentionScore", read, [query], products=products, dtype=query.dtype)
    if attrs.get("is_causal") and length > 1:  # what is masked is left out, block by block
        found = replace(found, numbers=found.numbers * (1 + 1 / math.ceil(length / 128)) / 2)
    yield found


def _convolution(
    inputs: list[Tensor], attrs: dict[str, Any], work: Callable[..., KernelWork], *, casts: int
) -> Iterator[KernelWork]:
    image, weights = inputs[:2]
    sides = _sides(image.shape[2:], weights.shape[-2:], attrs)
    result = replace(image, shape=(image.shape[0], weights.shape[0], *sides))
    product = (1, image.shape[0] * math.prod(sides), math.prod(weights.shape[1:]), weights.shape[0])
    for tensor in (image, weights, result):
        yield work("TransData", [tensor], [tensor])
    yield from (work("Cast", [], [_tensor([16], "fp16")]),) * casts
    yield work("Conv2D", [image, weights], [result], products=(product,), dtype=image.dtype)


def _sides(image: Sequence[int], kernel: Sequence[int], attrs: dict[str, Any]) -> list[int]:
    steps = attrs.get("strides") or attrs["stride"]
    pads = attrs.get("pads") or attrs["padding"]
    apart = attrs.get("dilations") or attrs["dilation"]
    return [(image[axis] + 2 * pads[axis] - apart[axis] * (kernel[axis] - 1) - 1) // steps[axis] + 1 for axis in (0, 1)]


def _classes_last(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(tensor.shape[0], *tensor.shape[2:], tensor.shape[1]))


def _permuted(tensor: Tensor, order: Sequence[int]) -> list[Tensor]:
    return [replace(tensor, shape=tuple(tensor.shape[axis] for axis in order or range(len(tensor.shape))))]


def _tensor(shape: Sequence[int], dtype: str) -> Tensor:
    name: Any = _DTYPES.get(dtype, dtype)
    return Tensor(name="", dtype=name, shape=tuple(int(size) for size in shape))
