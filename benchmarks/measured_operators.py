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

from workbench.cann_emulator.om import Tensor
from workbench.values.modelled_times.device_data import DeviceData, load_device_data
from workbench.values.modelled_times.kernels import Dtype, KernelWork, operator_work, times_us

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


def work_us(work: KernelWork, device: DeviceData) -> float:
    """The whole kernel, started by the device."""
    start, _, _, rest = times_us(work, device)
    return start + rest


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
                        error_class=longest.error_class,
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
    if row["op"].startswith("foreach"):
        shapes = [shape for listed in shapes for shape in listed]
        dtypes = dtypes * len(shapes)
    elif row["op"] == "lstm":
        shapes, dtypes = shapes[:1], dtypes[:1]
    if any(shape and isinstance(shape[0], list) for shape in shapes):
        return ()
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
    *("scan", "elementwise_int", "attention_prolog", "matmul_grouped_int8"),
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
    small_one = _tensor([16], "fp16")
    small = work("Cast", [], [small_one])
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
        given = replace(first, shape=(*first.shape[:2], *_sides(first.shape[2:], inputs[1].shape[-2:], attrs)))
        yield work("TransData", [first], [_by_channels(first)])
        yield work("DepthwiseConv2D", [_by_channels(first)], [_by_channels(given)])
        yield work("TransData", [_by_channels(given)], [given])
    elif op == "softmax":
        yield work("Softmax", inputs, outputs, attributes={"axis": attrs["dim"]})
    elif op == "arg_max":
        if first.dtype == "int64":  # done number by number
            yield KernelWork(kind="aicpu", error_class="aicpu", aicpu_elements=math.prod(first.shape))
        else:
            yield work("ArgMax", inputs, [], attributes={"axis": attrs["dim"]})
        yield small
    elif op == "cross_entropy_loss":
        scores = _classes_last(first)
        if "Transpose" in kernels:
            yield work("Transpose", [_flat(first)], [_classes_last(_flat(first))], attributes={"perm": [0, 2, 1]})
        yield work("LogSoftmax", [scores], [scores])
        if "Cast" in kernels:
            yield work("Cast", [scores], [replace(scores, dtype="float32")])
            yield from (small,) * 3
        yield from (small,) * 2
        picked = replace(inputs[1], dtype="float32")
        yield work("GatherElementsV2", [picked, inputs[1]], [picked])
    elif op == "adaptive_avg_pool_3d":
        if "Transpose" in kernels:
            given = replace(first, shape=(*first.shape[:2], *attrs["output_size"]))
            yield work("Transpose", [_flat(first)], [_classes_last(_flat(first))], attributes={"perm": [0, 2, 1]})
            yield work("AdaptiveAvgPool3d", [first], [given])
            yield work("Transpose", [_classes_last(_flat(given))], [_flat(given)], attributes={"perm": [0, 2, 1]})
        else:
            yield work("ReduceMean", [first], [], attributes={"axes": [2, 3, 4]})
    elif op == "resize_bilinear":
        sides = attrs.get("output_size") or [
            round(a * b) for a, b in zip(first.shape[2:], attrs["scale_factor"], strict=True)
        ]
        if first.dtype == "bfloat16":
            single = replace(first, dtype="float32")
            yield work("Cast", [first], [single])
            first = single
        given = replace(first, shape=(*first.shape[:2], *sides))
        yield work("TransData", [first], [_by_channels(first)])
        yield work("Resize", [_by_channels(first)], [_by_channels(given)])
        yield work("TransData", [_by_channels(given)], [given])
        yield small
        if inputs[0].dtype == "bfloat16":
            yield work("Cast", [given], [replace(given, dtype="bfloat16")])
    elif op in ("roi_align", "grid_sampler_3d"):
        laid = _by_channels(first)
        if op == "roi_align":
            yield work("TransData", [first], [laid])
            given = replace(
                laid, shape=(inputs[1].shape[0], laid.shape[1], attrs["outputHeight"], attrs["outputWidth"])
            )
            yield work("ROIAlign", [laid, inputs[1]], [given], attributes=attrs)
            yield from [work("TransData", [given], [given])] * (kernels.count("TransData*3"))
        else:
            given = replace(first, shape=(*first.shape[:2], *inputs[1].shape[1:4]))
            yield work("Transpose", [_flat(first)], [_classes_last(_flat(first))], attributes={"perm": [0, 2, 1]})
            yield work("GridSample", inputs, [given], attributes={"mode": attrs["interpolation_mode"]})
    elif op == "lstm":
        layers, directions = attrs["numLayers"], 2 if attrs["bidirectional"] else 1
        counts = [int(part.partition("*")[2]) for part in kernels.split("+")]
        time, sides = first.shape[1 if attrs["batchFirst"] else 0], first.shape[-1] + attrs["hiddenSize"]
        product = (1, math.prod(first.shape) // first.shape[-1], sides, 4 * attrs["hiddenSize"])
        taken = replace(first, shape=(time * directions * layers, *first.shape[1:]))
        yield work("DynamicRNN", [taken], [first], products=(product,) * directions * layers, dtype=first.dtype)
        yield from (work("TransData", [small_one], [small_one]),) * (sum(counts) - 1)
    elif op in ("top_k", "moe_gating_top_k_softmax"):
        if first.dtype in ("int8", "int32", "int64"):
            looks = 1 if first.dtype == "int64" else math.log2(attrs["k"])
            yield KernelWork(kind="aicpu", error_class="aicpu", aicpu_elements=int(math.prod(first.shape) * looks))
        else:
            yield work("TopK", [first], [], attributes={"axis": attrs.get("dim", -1)})
    elif op == "unsorted_segment_sum":
        if "InplaceScatterAdd" in kernels:
            yield work("ZerosLike", [], [first])
            yield small
            yield work("InplaceScatterAdd", [first], [first])
    elif op in ("gather", "scatter"):
        axis = {"axis": attrs["dim"], "reduction": attrs.get("reduce", "none")}
        picked = replace(first, shape=inputs[1].shape)
        if attrs.get("reduce") in ("amax", "amin"):  # no kernel of the device does it
            return
        if "Transpose" in kernels:
            yield work("Transpose", [first], [first], attributes={})
        if op == "scatter":
            yield work("Mul", [first], [first])
            yield from (small,) * 2
        operator = "GatherElementsV2" if "V2" in kernels else "GatherElements"
        yield work("ScatterElements" if op == "scatter" else operator, [picked, inputs[1]], [picked], attributes=axis)
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
        elif op == "group_norm":  # a row is what one group holds
            groups = first.shape[0] * attrs["num_groups"]
            inputs = outputs = [replace(first, shape=(groups, math.prod(first.shape) // groups))]
        elif op == "moe_re_routing":
            inputs = outputs = [first]
        elif op == "foreach_addcdiv_scalar":
            outputs = inputs[: len(inputs) // 3]
        elif op == "foreach_norm":
            operator, outputs = "ForeachNorm" if "Foreach" in kernels else "LpNormReduceV2", []
            inputs = [replace(one, shape=(math.prod(one.shape),)) for one in inputs]
        yield work(operator, inputs, outputs)


_NO_COUNTERPART = ("apply_adam_w", "apply_rotary_pos_emb", "moe_finalize_routing")
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
    "foreach_addcdiv_scalar": "ForeachAddcdivScalar",
    "moe_re_routing": "MoeReRouting",
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


def _flat(tensor: Tensor) -> Tensor:
    return replace(tensor, shape=(*tensor.shape[:2], math.prod(tensor.shape[2:])))


def _by_channels(tensor: Tensor) -> Tensor:
    """As convolutions lay it out: channels by sixteen."""
    return replace(tensor, shape=(tensor.shape[0], -(-tensor.shape[1] // 16) * 16, *tensor.shape[2:]))


def _permuted(tensor: Tensor, order: Sequence[int]) -> list[Tensor]:
    return [replace(tensor, shape=tuple(tensor.shape[axis] for axis in order or range(len(tensor.shape))))]


def _tensor(shape: Sequence[int], dtype: str) -> Tensor:
    name: Any = _DTYPES.get(dtype, dtype)
    return Tensor(name="", dtype=name, shape=tuple(int(size) for size in shape))
