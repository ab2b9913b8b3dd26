"""What a served model weighs on a card, and what a prompt and a token would take: modelled, never measured.

    kernel  = launch + max(cube, vector, memory)
    cube    = 2 · rows · in · out / (peak of the type × what large products reach of it)
    memory  = weights and cached keys and values from HBM, activations from L2, each / (bandwidth × what streams reach)
    vector  = bytes × instructions per element / (256 bytes × vector cores × clock × what kernels reach)

A linear is one kernel, q, k and v together and gate and up together, as engines load them (msmodelslim.md §8); a
dynamic or static input is quantized by a kernel before it. Attention is one kernel. Nothing is added for an engine's
scheduler, sampling or network, nor for several cards. Times come with 95 % of what errors leave open, about the chip's
platform file and its data sheet (`values.modelled_times`). In a ratio of two recipes the errors of what both have
cancel, so that it is much surer than times.

A float32 model is priced in float16, which is what vLLM's `dtype: auto` makes of it.

Rates come from the platform file (atc.md §7.2) and, as a second centre, from the published data sheet: 313 TFLOPS in
float16, 626 TOPS in INT8, 1.6 TB/s. Unknowns have the names and units of the vendor's card elsewhere here, so that
`python -m workbench.targets.ascend.microbenchmarks` measures them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from workbench.quantization.llm.checkpoint import LlmModel, block_shapes, tensor_shapes
from workbench.quantization.llm.config import LlmConfig
from workbench.targets.ascend.chip import chip_of, peak_tops
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.settings import GROUPS
from workbench.values.measurement import Estimate
from workbench.values.modelled_times.costs import at_errors, interval
from workbench.values.modelled_times.statement import CallCosts, TimingModel, Unknown, Work, summed

CHIP = "Ascend910B3"
_WIDE = 4
"""Bytes of an element in the vector unit, float32 [inferred]."""
_INSTRUCTIONS: Mapping[str, int] = {
    "norm": 13,
    "rotate": 4,
    "softmax": 12,
    "gate": 10,
    "quantize": 4,
    "quantize_by_token": 6,
    "dequantize_by_token": 2,
    "dequantize_weight": 2,
    "dequantize_cache": 2,
}
"""Vector instructions per element, counted from formulas [inferred]; a norm adds the residual before it, as engines'
kernels do."""
_CUBE_SIDE = 16
"""The cube multiplies blocks of 16 rows (atc.md §7.2): one token costs as much as 16."""
_FLOAT_BYTES = 2
_SCALE_BYTES: Mapping[str, int] = {"W8A8": 4 + 4 + 2 + 2, "W8A8_MIX": 4 + 4 + 2 + 2}
"""Bytes for each output channel beside the weights: quant_bias, deq_scale, weight_scale, weight_offset (msmodelslim.md
§8); the other types have the last two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedShape:
    """What a service does at once.

    Attributes:
        batch: prompts, or sequences that get a token each.
        prompt_tokens: of each prompt.
        context: tokens in the cache when a token is made.
    """

    batch: int = 1
    prompt_tokens: int = 512
    context: int = 1024

    def __post_init__(self) -> None:
        if min(self.batch, self.prompt_tokens, self.context) < 1:
            raise ValueError("batch, prompt and context have at least one element each")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedSize:
    """Attributes:
    weights_bytes: in the card's memory, one card; embedding and scales included.
    kv_bytes_per_token: of keys and values of all layers, one sequence.
    """

    weights_bytes: int
    kv_bytes_per_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledTimes:
    """Times under the clock that is run, with 95 % of those that may be right; modelled.

    Attributes:
        prefill_ms: until the first token, all prompts of the batch at once.
        decode_ms: of one further token of every sequence.
        prefill, decode: what they are made of.
    """

    prefill_ms: Estimate
    decode_ms: Estimate
    prefill: CallCosts
    decode: CallCosts


def served_size(config: LlmConfig, types: Mapping[str, str], *, quantized_cache: bool) -> ServedSize:
    """What a card holds.

    Args:
        types: full name of every linear of the blocks → its type in the description ('FLOAT', 'W8A8' …).
        quantized_cache: keys and values are int8 (C8), with a scale and an offset by channel.
    """
    total = 0
    for name, shape in tensor_shapes(config).items():
        if name == "lm_head.weight" and config.tied:
            continue
        kind = types.get(name.removesuffix(".weight"), "FLOAT")
        elements = math.prod(shape)
        total += elements * _FLOAT_BYTES if kind == "FLOAT" else elements + shape[0] * _SCALE_BYTES.get(kind, 4)
    channels = 2 * config.layers * config.kv_heads * config.head_dim
    if quantized_cache:
        return ServedSize(weights_bytes=total + channels * 2 * _FLOAT_BYTES, kv_bytes_per_token=channels)
    return ServedSize(weights_bytes=total, kv_bytes_per_token=channels * _FLOAT_BYTES)


def modelled_times(
    config: LlmConfig,
    types: Mapping[str, str],
    *,
    quantized_cache: bool,
    shape: ServedShape | None = None,
) -> ModelledTimes:
    """Prefill and decode of a served model.

    Deterministic. Only times of one shape should be compared with each other.

    Args:
        types, quantized_cache: as for `served_size`. The linears of a fused group are priced each by its own type.
        shape: one prompt of 512 tokens, a context of 1024, when None.
    """
    shape = shape or ServedShape()
    clocks = at_errors(roofline_clock(CHIP))
    prefill = summed(_works(config, types, quantized_cache, shape, decode=False))
    decode = summed(_works(config, types, quantized_cache, shape, decode=True))
    times = clocks.call_ms([prefill, decode])
    return ModelledTimes(prefill_ms=interval(times[0]), decode_ms=interval(times[1]), prefill=prefill, decode=decode)


def time_ratio(ours: CallCosts, theirs: CallCosts) -> Estimate:
    """How long ours takes over theirs, with 95 % of what errors leave open; modelled."""
    times = at_errors(roofline_clock(CHIP)).call_ms([ours, theirs])
    return interval(times[0] / times[1])


def _works(
    config: LlmConfig, types: Mapping[str, str], quantized_cache: bool, shape: ServedShape, *, decode: bool
) -> Iterator[Work]:
    rows = shape.batch * (1 if decode else shape.prompt_tokens)
    yield _kernel(near=2 * _FLOAT_BYTES * rows * config.hidden)  # rows of the embedding
    for index in range(config.layers):
        yield _elementwise("norm", rows * config.hidden)
        yield from _linears(config, types, index, GROUPS["qkv"], rows, decode=decode)
        heads = config.heads + config.kv_heads
        if config.qk_norm:
            yield _elementwise("norm", rows * heads * config.head_dim)
        yield _elementwise("rotate", rows * heads * config.head_dim)
        yield _attention(config, quantized_cache, shape, decode=decode)
        yield from _linears(config, types, index, GROUPS["o"], rows, decode=decode)
        yield _elementwise("norm", rows * config.hidden)
        yield from _linears(config, types, index, GROUPS["gate_up"], rows, decode=decode)
        yield _elementwise("gate", rows * config.intermediate)
        yield from _linears(config, types, index, GROUPS["down"], rows, decode=decode)
    # logits are made of the last place of each sequence alone
    yield _elementwise("norm", shape.batch * config.hidden)
    yield from _product("FLOAT", shape.batch, config.hidden, config.vocabulary)


def _linears(
    config: LlmConfig, types: Mapping[str, str], index: int, names: tuple[str, ...], rows: int, *, decode: bool
) -> Iterator[Work]:
    """The kernels of linears that read one tensor; those of one type are one product."""
    shapes = block_shapes(config)
    by_type: dict[str, int] = {}
    for name in names:
        kind = types.get(f"model.layers.{index}.{name}", "FLOAT")
        if kind == "W8A8_MIX":  # pdmix: dynamic in prefill, static in decode (msmodelslim.md §8)
            kind = "W8A8" if decode else "W8A8_DYNAMIC"
        by_type[kind] = by_type.get(kind, 0) + shapes[f"{name}.weight"][0]
    inner = shapes[f"{names[0]}.weight"][1]
    for kind, outer in by_type.items():
        yield from _product(kind, rows, inner, outer)


def _product(kind: str, rows: int, inner: int, outer: int) -> Iterator[Work]:
    """[rows, inner] × [inner, outer], with the kernel that quantizes its input where it has one."""
    padded = math.ceil(rows / _CUBE_SIDE) * _CUBE_SIDE
    flops = 2 * padded * inner * outer
    given, gives = rows * inner, rows * outer
    if kind == "FLOAT":
        yield _kernel(
            cube=("matrix_float16", flops), far=_FLOAT_BYTES * inner * outer, near=_FLOAT_BYTES * (given + gives)
        )
    elif kind == "W8A8":
        yield _elementwise("quantize", given, gives=1)
        yield _kernel(cube=("matrix_int8", flops), far=inner * outer, near=given + _FLOAT_BYTES * gives)
    elif kind == "W8A8_DYNAMIC":
        yield _elementwise("quantize_by_token", given, gives=1)
        yield _kernel(
            cube=("matrix_int8", flops),
            far=inner * outer,
            near=given + _FLOAT_BYTES * gives,
            vector=_INSTRUCTIONS["dequantize_by_token"] * _WIDE * gives,
        )
    elif kind == "W8A16":
        yield _kernel(
            cube=("matrix_float16", flops),
            far=inner * outer,
            near=_FLOAT_BYTES * (given + gives),
            vector=_INSTRUCTIONS["dequantize_weight"] * _WIDE * inner * outer,
        )
    else:
        raise ValueError(f"{kind!r} is no type of a linear that has a price")


def _attention(config: LlmConfig, quantized_cache: bool, shape: ServedShape, *, decode: bool) -> Work:
    """Both products and the softmax of all heads, without writing scores; a prompt sees half of its square."""
    seen = shape.context if decode else (shape.prompt_tokens + 1) / 2
    rows = shape.batch * (1 if decode else shape.prompt_tokens)
    # the query heads of a group are rows of one product, so a decoded token fills the cube's rows in part only
    filled = math.ceil(config.group / _CUBE_SIDE) * _CUBE_SIDE / config.group if decode else 1.0
    scores = rows * config.heads * seen
    cached = 2 * shape.batch * config.kv_heads * config.head_dim * (shape.context if decode else 0)
    vector = _INSTRUCTIONS["softmax"] * _WIDE * scores
    if quantized_cache:
        vector += _INSTRUCTIONS["dequantize_cache"] * _WIDE * cached
    return _kernel(
        cube=("matrix_float16", 4 * scores * config.head_dim * filled),
        far=cached * (1 if quantized_cache else _FLOAT_BYTES),
        near=_FLOAT_BYTES * rows * config.head_dim * 2 * (config.heads + config.kv_heads),
        vector=vector,
    )


def _elementwise(what: str, elements: float, *, gives: int = _FLOAT_BYTES) -> Work:
    return _kernel(near=elements * (_FLOAT_BYTES + gives), vector=_INSTRUCTIONS[what] * _WIDE * elements)


def _kernel(*, cube: tuple[str, float] | None = None, far: float = 0.0, near: float = 0.0, vector: float = 0.0) -> Work:
    """One launch, then the longest of what cube, vector unit and the two memories do."""
    parts = [("far_memory", far), ("near_memory", near), ("vector", vector), *([cube] if cube else [])]
    beside = tuple(((name, round(amount / 1e6, 9)),) for name, amount in parts if amount)
    return Work(count=1, before=(("kernel_launch", 1.0),), beside=beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    """What serving a model would take.

    Attributes:
        disk_bytes: of its weight files, as they are.
        size: of one card's memory, by shapes and types.
        prefill_ms, decode_ms: modelled.
        prefill_ratio, decode_ratio: over the float model's times, modelled; None of the float model.
    """

    disk_bytes: int
    size: ServedSize
    prefill_ms: Estimate
    decode_ms: Estimate
    prefill_ratio: Estimate | None = None
    decode_ratio: Estimate | None = None


def served_figures(model: LlmModel, served: Served | None, shape: ServedShape) -> ServedFigures:
    """Of a checkpoint of the model; of the model itself when None."""
    types, cached = (served.types, bool(served.cached)) if served else ({}, False)
    files = {held.file for held in served.tensors.values()} if served else set(model.places.values())
    times = modelled_times(model.config, types, quantized_cache=cached, shape=shape)
    figures = ServedFigures(
        disk_bytes=sum(file.stat().st_size for file in files),
        size=served_size(model.config, types, quantized_cache=cached),
        prefill_ms=times.prefill_ms,
        decode_ms=times.decode_ms,
    )
    if served is None:
        return figures
    base = modelled_times(model.config, {}, quantized_cache=False, shape=shape)
    return replace(
        figures,
        prefill_ratio=time_ratio(times.prefill, base.prefill),
        decode_ratio=time_ratio(times.decode, base.decode),
    )


# --- the clock: rates of the chip, what kernels reach of them, and what nobody knows of either ------------------------


_CUBE_REACHED = 0.6
"""Of the cube's peak by large products [inferred]: 216 of 256 TFLOPS were reached on the 910 before it (AIBench, doi
10.1007/s42514-024-00187-x); products of one prompt are smaller."""
_MEMORY_REACHED = 0.8
"""What a streaming kernel usually reaches of a bandwidth [inferred]."""
_VECTOR_REACHED = 0.5
"""Loads, stores and synchronization between instructions [inferred]."""
_LAUNCH_US = 2.0
"""Start of a task of a graph that is on the device as a whole [inferred]."""
_VECTOR_BYTES = 256
"""One instruction handles 256 bytes [inferred: width of a repeat in Ascend C]; a core has two vector units."""
_NEAR_BYTES, _FAR_BYTES = 110, 32
"""Bytes a cycle and core from L2 and from HBM (atc.md §7.2)."""
_SHEET_TB_S = 1.6
_SHEET_TFLOPS = 313.0
_SHEET_INT8_GAIN = 1.5
"""626 TOPS are twice 313; narrower operands leave loads, scaling and hand-on as they are [inferred]."""
_UNKNOWNS: Mapping[str, tuple[str, tuple[str, ...], float, str, str]] = {
    "matrix_float16": (
        "matrix products in float16, and with them in INT8",
        ("matrix_float16", "matrix_int8"),
        1.6,
        "TFLOPS",
        "1.6: what shapes of one library differ by",
    ),
    "int8_gain": (
        "what INT8 gains in a matrix product of the same shape",
        ("matrix_int8",),
        1.35,
        "times float16's rate",
        "at most 2 by the cube's rates; 1.35 reaches from 1.5 to beyond 2",
    ),
    "far_memory": (
        "bytes from HBM: weights, cached keys and values",
        ("far_memory",),
        1.3,
        "TB/s",
        "1.3: what streaming kernels reach differs by that on cards of its kind",
    ),
    "near_memory": (
        "activations from L2",
        ("near_memory",),
        1.4,
        "TB/s",
        "rates of the platform file, of which nobody measured what kernels reach",
    ),
    "vector": (
        "norms, softmax, gates, quantization",
        ("vector",),
        2.0,
        "TB/s of operands",
        "instructions are counted from formulas, no kernel was seen",
    ),
    "kernel_launch": (
        "start of a kernel on the device",
        ("kernel_launch",),
        2.5,
        "us",
        "1 to 5 us are usual for a graph that lies on a device as a whole",
    ),
}
"""Name → what it is, the prices that it moves, the factor within which it lies with 95 %, its unit, why."""


@functools.cache
def roofline_clock(name: str) -> TimingModel:
    """The clock of a chip, such as 'Ascend910B3'."""
    chip, float16, int8 = chip_of(name), peak_tops(name, "float16"), peak_tops(name, "int8")
    if chip is None or float16 is None or int8 is None:
        raise ValueError(f"no platform file is known of {name!r}")
    cycles = chip.cores * chip.clock_mhz * 1e6
    cube, gain = float16 * _CUBE_REACHED, int8 / float16
    far, near = (cycles * each / 1e12 * _MEMORY_REACHED for each in (_FAR_BYTES, _NEAR_BYTES))
    vector = 2 * cycles * _VECTOR_BYTES / 1e12 * _VECTOR_REACHED
    prices = {
        "matrix_float16": 1 / cube,
        "matrix_int8": 1 / (cube * gain),
        "far_memory": 1 / far,
        "near_memory": 1 / near,
        "vector": 1 / vector,
        "kernel_launch": _LAUNCH_US,
    }
    values = {
        "matrix_float16": (cube, _SHEET_TFLOPS * _CUBE_REACHED),
        "int8_gain": (gain, _SHEET_INT8_GAIN),
        "far_memory": (far, _SHEET_TB_S * _MEMORY_REACHED),
        "near_memory": (near, near),
        "vector": (vector, vector),
        "kernel_launch": (_LAUNCH_US, _LAUNCH_US),
    }
    unknowns = tuple(
        Unknown(
            name=unknown,
            about=about,
            moves=moves,
            factor_95=factor,
            data_sheet=values[unknown][0] / values[unknown][1],
            value=values[unknown][0],
            unit=unit,
            reads="time" if unit == "us" else "rate",
            source=f"{source} [inferred]",
            settled_by=f"python -m workbench.targets.ascend.microbenchmarks {unknown} --to clock.json",
        )
        for unknown, (about, moves, factor, unit, source) in _UNKNOWNS.items()
    )
    return TimingModel(name=f"{name}, roofline", prices=tuple(prices.items()), unknowns=unknowns)
