"""What a served model weighs on a card, and what a prompt and a token would take: modelled, never measured.

Kernels take what `values.modelled_times.kernels` makes of them, a model that was fitted to operators timed on cards of
this kind. A linear is one kernel, q, k and v together and gate and up together, as engines load them (msmodelslim.md
§8); a dynamic or static input is quantized by a kernel before it. Attention is one kernel. Weights and the cache come
from HBM, activations from L2. Nothing is added for an engine's scheduler, sampling or network, nor for several cards.
Times come with 95 % of what errors leave open. In a ratio of two recipes the errors of what both have cancel, so that
it is much surer than times.

A float32 model is priced in float16, which is what vLLM's `dtype: auto` makes of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.quantization.llm.checkpoint import LlmModel, block_shapes, tensor_shapes
from workbench.quantization.llm.config import LlmConfig
from workbench.targets.ascend_llm.description import GROUPS
from workbench.targets.ascend_llm.served import Served
from workbench.targets.language import LanguageCosts
from workbench.values.measurement import Estimate, LanguageLoad
from workbench.values.modelled_times.device_data import DeviceData, load_device_data, timing_model
from workbench.values.modelled_times.figures import at_errors, interval
from workbench.values.modelled_times.kernels import Array, Dtype, Sides, kernel_cost, operator_work
from workbench.values.modelled_times.statement import TimingModel, Work, summed

CHIP = "Ascend910B3"
_FLOAT_BYTES = 2
_BASIS = "a timing model that was fitted to operators timed on such cards; measured nowhere"
_SCALE_BYTES: Mapping[str, int] = {"W8A8": 4 + 4 + 2 + 2, "W8A8_MIX": 4 + 4 + 2 + 2}
"""Bytes for each output channel beside the weights: quant_bias, deq_scale, weight_scale, weight_offset (msmodelslim.md
§8); the other types have the last two."""


def load_costs(
    config: LlmConfig, types: Mapping[str, str], *, quantized_cache: bool, load: LanguageLoad
) -> LanguageCosts:
    """What a served model asks of one card: until the first token, all prompts of the load at once, for one further
    token of every sequence, and of its memory, embedding and scales included.

    Args:
        types: full name of every linear of the blocks → its type in the description ('FLOAT', 'W8A8' …). The linears of
            a fused group are priced each by its own type.
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
    prefill, decode = (summed(_works(config, types, quantized_cache, load, decode=later)) for later in (False, True))
    return LanguageCosts(
        clock=card_times(),
        prefill=prefill,
        decode=decode,
        kv_bytes_per_token=channels * (1 if quantized_cache else _FLOAT_BYTES),
        weight_bytes=total + (channels * 2 * _FLOAT_BYTES if quantized_cache else 0),
        basis=_BASIS,
    )


@functools.cache
def card_times() -> TimingModel:
    return timing_model(_card(), "timing model")


@functools.cache
def _card() -> DeviceData:
    return load_device_data(CHIP, known=True)


def _works(
    config: LlmConfig, types: Mapping[str, str], quantized_cache: bool, load: LanguageLoad, *, decode: bool
) -> Iterator[Work]:
    rows = load.batch * (1 if decode else load.prompt)
    heads = config.heads + config.kv_heads
    hidden = (rows, config.hidden)
    yield _kernel("GatherV2", [hidden], [hidden])  # rows of the embedding
    for index in range(config.layers):
        yield _kernel("AddRmsNorm", [hidden, hidden], [hidden, hidden])
        yield from _linears(config, types, index, GROUPS["qkv"], rows, decode=decode)
        if config.qk_norm:
            yield _kernel("RmsNorm", [(rows * heads, config.head_dim)], [(rows * heads, config.head_dim)])
        yield _kernel("ApplyRotaryPosEmb", [(rows, heads * config.head_dim)], [(rows, heads * config.head_dim)])
        yield _attention(config, quantized_cache, load, decode=decode)
        yield from _linears(config, types, index, GROUPS["o"], rows, decode=decode)
        yield _kernel("AddRmsNorm", [hidden, hidden], [hidden, hidden])
        yield from _linears(config, types, index, GROUPS["gate_up"], rows, decode=decode)
        yield _kernel("SwiGlu", [(rows, 2 * config.intermediate)], [(rows, config.intermediate)])
        yield from _linears(config, types, index, GROUPS["down"], rows, decode=decode)
    # logits are made of the last place of each sequence alone
    last = (load.batch, config.hidden)
    yield _kernel("AddRmsNorm", [last, last], [last, last])
    yield from _product("FLOAT", load.batch, config.hidden, config.vocabulary)


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


_KERNELS: Mapping[str, tuple[str, Dtype, str]] = {
    "FLOAT": ("MatMulV3", "float16", ""),
    "W8A16": ("WeightQuantBatchMatmulV2", "float16", ""),
    "W8A8": ("QuantBatchMatmulV3", "int8", "AscendQuantV2"),
    "W8A8_DYNAMIC": ("QuantBatchMatmulV3", "int8", "DynamicQuantV2"),
}
"""Type of a linear → its kernel, what the cube multiplies, and the kernel that quantizes its input."""


def _product(kind: str, rows: int, inner: int, outer: int) -> Iterator[Work]:
    """[rows, inner] × [inner, outer], with the kernel that quantizes its input where it has one."""
    if kind not in _KERNELS:
        raise ValueError(f"{kind!r} is no type of a linear that has a price")
    operator, dtype, quantize = _KERNELS[kind]
    if quantize:
        yield _kernel(quantize, [(rows, inner)], [(rows, inner)], written=rows * inner)
    read = rows * inner * (1 if quantize else _FLOAT_BYTES)
    far = inner * outer * (_FLOAT_BYTES if kind == "FLOAT" else 1)
    sides = ((1, rows, inner, outer),)
    yield _kernel(operator, [(rows, inner)], [(rows, outer)], products=sides, dtype=dtype, far=far, near=read)


def _attention(config: LlmConfig, quantized_cache: bool, load: LanguageLoad, *, decode: bool) -> Work:
    """Both products and the softmax of all heads, without writing scores; a prompt sees half of its square."""
    device = _card()
    tokens, seen = (1, load.context) if decode else (load.prompt, load.prompt)
    groups, rows = load.batch * config.kv_heads, tokens * config.group
    sides = ((groups, rows, config.head_dim, seen), (groups, rows, seen, config.head_dim))
    heads = (load.batch * tokens, config.heads * config.head_dim)
    work = operator_work(
        ["FusedInferAttentionScore"], [_half(heads)], [_half(heads)], device, products=sides, dtype="float16"
    )
    cached = 2 * groups * config.head_dim * seen
    if not decode:  # what is masked is left out, block by block
        work = replace(work, numbers=work.numbers * (1 + 1 / math.ceil(tokens / 128)) / 2)
    elif quantized_cache:  # a cast: scales are by channel, so they are multiplied into queries and results
        cast = cached * device.kinds["elementwise"].instructions / device.kinds["attention"].instructions
        work = replace(work, numbers=work.numbers + cast)
    given = _FLOAT_BYTES * math.prod(heads)
    width = 1 if quantized_cache else _FLOAT_BYTES
    far, near = (cached * width, given) if decode else (0, given + cached * _FLOAT_BYTES)
    return kernel_cost(replace(work, read_far=far, read_near=near), device)


Shape = tuple[int, int]


def _kernel(
    operator: str,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    *,
    products: Sides = (),
    dtype: Dtype = "float16",
    far: int = 0,
    near: float | None = None,
    written: float | None = None,
) -> Work:
    """One kernel over tensors of halves.

    Args:
        near: bytes that it reads from L2; all of its inputs when None.
        written: bytes; those of its outputs when None.
    """
    work = operator_work(
        [operator], [*map(_half, inputs)], [*map(_half, outputs)], _card(), products=products, dtype=dtype
    )
    near = work.read_far if near is None else near
    written = work.written if written is None else written
    return kernel_cost(replace(work, read_far=far, read_near=near, written=written), _card())


def _half(shape: Shape) -> Array:
    return Array(dtype="float16", shape=shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFigures:
    """What serving a model would take.

    Attributes:
        disk_bytes: of its weight files, as they are.
        weight_bytes, kv_bytes_per_token: of one card's memory, by shapes and types.
        prefill_ms, decode_ms: modelled.
        prefill_ratio, decode_ratio: over the float model's times, modelled; None of the float model.
    """

    disk_bytes: int
    weight_bytes: int
    kv_bytes_per_token: int
    prefill_ms: Estimate
    decode_ms: Estimate
    prefill_ratio: Estimate | None = None
    decode_ratio: Estimate | None = None


def served_costs(config: LlmConfig, served: Served | None, load: LanguageLoad) -> LanguageCosts:
    """Of a checkpoint of the model; of the model itself when None."""
    types, cached = (served.types, bool(served.cached)) if served else ({}, False)
    return load_costs(config, types, quantized_cache=cached, load=load)


def served_figures(model: LlmModel, served: Served | None, load: LanguageLoad) -> ServedFigures:
    """Likewise."""
    files = set((served or model).places.values())
    ours, base = served_costs(model.config, served, load), served_costs(model.config, None, load)
    works = [ours.prefill, ours.decode, base.prefill, base.decode]
    prefill, decode, base_prefill, base_decode = at_errors(card_times()).call_ms(works)
    return ServedFigures(
        disk_bytes=sum(file.stat().st_size for file in files),
        weight_bytes=ours.weight_bytes,
        kv_bytes_per_token=ours.kv_bytes_per_token,
        prefill_ms=interval(prefill),
        decode_ms=interval(decode),
        prefill_ratio=interval(prefill / base_prefill) if served else None,
        decode_ratio=interval(decode / base_decode) if served else None,
    )
