"""A written checkpoint, run on the processor from its files with exact integer sums and the device's order of steps:
one block at a time, as an engine holds it after loading, and the rules that its values decide.

Values are rounded to the parameters of vLLM-Ascend: scales to the model's dtype, input_offset to int8, deq_scale to
float32 (vllm_ascend/quantization/methods/w8a8, msmodelslim.md §3.3, §8).

What is exact: integers, their sums, and every rounding of scales and factors. What is this machine's:
norms, rotations, attention, activations and products of floats, which follow transformers' order in the model's dtype;
how a card adds up the terms of a float sum is not documented. Nothing here is measured on a device.

The arithmetic is that of the 910B's operators as vLLM-Ascend calls them for quantized linears and caches. Sources are
the open kernels of CANN (github.com/hicann/ops-nn) and vLLM-Ascend's methods; where they say nothing, the line says
[inferred].

static input
    r = 1 / input_scale in the model's dtype; int8(rint(float32(x) · r + input_offset)), both steps in float32
    (vLLM-Ascend w8a8_static.py, register_custom_ops.py: npu_quantize; ops-nn ascend_quant_v2).
dynamic input
    r = 127 / max|x| of the token in float32; int8(rint(x · r)); scale of the token 1 / r
    (w8a8_dynamic.py: npu_dynamic_quant; dynamic_quant, whose document writes max|x| / 127).
static output
    float32(sum + quant_bias) · deq_scale, rounded once to the model's dtype
    (npu_quant_matmul; quant_batch_matmul_v3_bf16.h).
dynamic output
    (float32(sum) · weight_scale) · token scale + bias in float32, rounded once (quant_batch_matmul_v3_pertoken.h).
cache
    int8(rint(x · (1 / scale))) in the model's dtype, read back as q · scale in the same (attention_v1.py). The order
    of steps inside the attention kernel that reads it is [inferred].

For float16 the factors of a static output reach the card as 64-bit integers, of whose float32 the fixed-function unit
reads the upper 19 bits (aclnnTransQuantParam); that the engine's untouched 32 bits are read so too is [inferred].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NoReturn

import torch
from safetensors import safe_open

from workbench.quantization.llm.affine import SOURCES, Affine
from workbench.quantization.llm.checkpoint import EMBEDDING, FINAL_NORM, HEAD, LINEARS, NORMS, Tensors, stored_tensors
from workbench.quantization.llm.fixed_order import MOST_COLUMNS, integer_product, plain_linear
from workbench.quantization.llm.forward import Decoder, RunningBlock, Stage, float_linear
from workbench.quantization.llm.recipe import Type
from workbench.targets.ascend_llm.description import FUSED, STATIC
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.tensors import CACHED
from workbench.values.errors import ConfigError

_LARGEST_SUM = (1 << 31) - 1
_ROWS_COMPARED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLinear:
    """A linear that an engine runs in integers.

    Attributes:
        weight: int8 [N, K].
        scale: of the weight, [N] in the model's dtype; None where the file has none (W8A8 of v1).
        bias: [N] in the model's dtype, or None; static execution does not add it, `integer_bias` holds it.
        input: of W8A8 and W8A8_MIX: scale [1] in the model's dtype, offset int8 [1].
        integer_bias: int32 [N], of the same.
        factors: deq_scale as float32 [N], of the same.
    """

    type: Type
    weight: torch.Tensor
    scale: torch.Tensor | None
    bias: torch.Tensor | None
    input: Affine | None = None
    integer_bias: torch.Tensor | None = None
    factors: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBlock:
    """Attributes:
    tensors: float tensors by names relative to the block, in the model's dtype; biases of norms in float32.
    linears: the quantized ones.
    cache: 'key' and 'value' → scale by channel [kv_heads · head_dim] in the model's dtype; empty for a float cache.
    """

    tensors: Mapping[str, torch.Tensor]
    linears: Mapping[str, ServedLinear]
    cache: Mapping[str, torch.Tensor]


def read_served_block(served: Served, index: int) -> ServedBlock:
    """One block; everything of it is in memory then.

    Raises:
        ConfigError: with file and tensor: a file cannot be read, or a value would make the engine compute something
            else than the file means (a scale that is NaN, infinite, not positive or has no reciprocal in the model's
            dtype; an offset that int8 does not hold, or that the kernel leaves out; a sum that may leave int32; ranges
            of one input that differ between linears that are loaded as one).
    """
    prefix, dtype = f"model.layers.{index}", served.config.dtype
    read = stored_tensors(served.places, [name for name in served.places if name.startswith(f"{prefix}.")])
    tensors: dict[str, torch.Tensor] = {}
    linears: dict[str, ServedLinear] = {}
    for name in LINEARS:
        kind = served.types[f"{prefix}.{name}"]
        if kind != "FLOAT":
            linears[name] = _linear(served, read, f"{prefix}.{name}", kind)
            continue
        parts = {part: read.get(f"{prefix}.{name}.{part}") for part in ("weight", "bias")}
        tensors |= {f"{name}.{part}": value.to(dtype) for part, value in parts.items() if value is not None}
    _check_shared_inputs(served, prefix, linears)
    for norm in (*NORMS, *(f"self_attn.{which}_norm" for which in "qk" if served.config.qk_norm)):
        tensors |= _norm(read, f"{prefix}.{norm}", norm, dtype)
    cache: dict[str, torch.Tensor] = {}
    for what, name in CACHED.items() if index in served.cached else ():
        cache[what] = _scale(served, read, f"{prefix}.{name}.kv_cache_scale")
        _check_zero(
            served, read, f"{prefix}.{name}.kv_cache_offset", "the engine reads the cache back by its scale alone"
        )
    return ServedBlock(tensors=tensors, linears=linears, cache=cache)


def read_served_embedding(served: Served) -> torch.Tensor:
    """The embedding [vocabulary, hidden] in the model's dtype."""
    name = f"{EMBEDDING}.weight"
    return stored_tensors(served.places, [name])[name].to(served.config.dtype)


def read_served_head(served: Served) -> dict[str, torch.Tensor]:
    """Final norm and output projection by their full names, in the model's dtype (a norm's bias in float32)."""
    name = f"{EMBEDDING if served.config.tied else HEAD}.weight"
    norms = [each for each in (f"{FINAL_NORM}.weight", f"{FINAL_NORM}.bias") if each in served.places]
    read, dtype = stored_tensors(served.places, [name, *norms]), served.config.dtype
    return {f"{HEAD}.weight": read[name].to(dtype), **_norm(read, FINAL_NORM, FINAL_NORM, dtype)}


def check_tied(served: Served) -> None:
    """Raises ConfigError where embedding and head are tied by config.json and differ in the file.

    The engine takes the embedding for both then, and skips the head [inferred from vLLM's loader of these families].
    """
    head, table = (served.places.get(f"{name}.weight") for name in (HEAD, EMBEDDING))
    if head is None or table is None or not served.config.tied:
        return
    with safe_open(head, framework="pt") as left, safe_open(table, framework="pt") as right:
        heads, tables = left.get_slice(f"{HEAD}.weight"), right.get_slice(f"{EMBEDDING}.weight")
        for start in range(0, served.config.vocabulary, _ROWS_COMPARED):
            part = slice(start, start + _ROWS_COMPARED)
            if not torch.equal(heads[part].to(served.config.dtype), tables[part].to(served.config.dtype)):
                raise ConfigError(
                    f"{HEAD}.weight differs from {EMBEDDING}.weight, which config.json ties it to "
                    "(tie_word_embeddings); the engine would skip the head and take the embedding.",
                    file=head,
                    hint="A rotation changes the two in different ways: write tie_word_embeddings: false.",
                )


def _linear(served: Served, read: Tensors, name: str, kind: Type) -> ServedLinear:
    weight, bias, scale = read[f"{name}.weight"], read.get(f"{name}.bias"), None
    if f"{name}.weight_scale" in read:
        scale = _scale(served, read, f"{name}.weight_scale").flatten()
    _check_zero(served, read, f"{name}.weight_offset", f"{kind} kernels leave it out or add it")
    if weight.shape[1] > MOST_COLUMNS:
        rule = f"has {weight.shape[1]} columns; sums of {MOST_COLUMNS} stay in int32."
        _refuse(served, f"{name}.weight", rule)
    linear = ServedLinear(
        type=kind, weight=weight, scale=scale, bias=None if bias is None else bias.to(served.config.dtype)
    )
    if kind not in STATIC:
        return linear
    offset, whole = read[f"{name}.input_offset"].to(torch.float32), read[f"{name}.quant_bias"]
    if not bool(((offset == offset.round()) & (offset >= -128) & (offset <= 127)).all()):
        _refuse(served, f"{name}.input_offset", f"is {float(offset[0])}; the engine holds it as int8.")
    factors = read[f"{name}.deq_scale"]
    if factors.dtype == torch.int64:
        if not torch.equal(factors, factors.to(torch.int32).to(torch.int64)):
            rule = "holds integers beyond 32 bits; they are the bits of float32, sign-extended."
            _refuse(served, f"{name}.deq_scale", rule)
        factors = factors.to(torch.int32).view(torch.float32)
    _check_positive(served, f"{name}.deq_scale", factors, "a factor")
    # no input of int8 may drive a sum out of int32, so that what is computed here is what any order gives
    largest = 128 * weight.to(torch.int32).abs().sum(1, dtype=torch.int64) + whole.to(torch.int64).abs()
    if int(largest.max()) > _LARGEST_SUM:
        row = int(largest.argmax())
        rule = f"is {int(whole[row])} in row {row}, where the sum may leave int32."
        _refuse(served, f"{name}.quant_bias", rule)
    given = Affine(scale=_scale(served, read, f"{name}.input_scale"), offset=offset.to(torch.int8))
    return replace(linear, input=given, integer_bias=whole, factors=factors)


def _scale(served: Served, read: Tensors, name: str) -> torch.Tensor:
    value = read[name].to(served.config.dtype)
    _check_positive(served, name, value, "a scale")
    if not name.endswith(".weight_scale") and not bool(torch.isfinite(1 / value).all()):
        rule = f"holds {float(value.min())}, whose reciprocal is beyond {value.dtype}; the engine multiplies by it."
        _refuse(served, name, rule)
    return value


def _check_positive(served: Served, name: str, value: torch.Tensor, what: str) -> None:
    bad = value[~(torch.isfinite(value) & (value > 0))]
    if bad.numel():
        _refuse(served, name, f"holds {float(bad.flatten()[0])}; {what} is positive and finite.")


def _check_zero(served: Served, read: Tensors, name: str, why: str) -> None:
    if name in read and bool((read[name] != 0).any()):
        _refuse(served, name, f"is not zero everywhere; {why}, so the file would mean something else.")


def _refuse(served: Served, name: str, rule: str) -> NoReturn:
    raise ConfigError(f"{name} {rule}", file=served.places[name], hint="Calibrate the model again.")


def _check_shared_inputs(served: Served, prefix: str, linears: Mapping[str, ServedLinear]) -> None:
    for fused, parts in FUSED.items():
        there = [(part, linears[part].input) for part in parts if part in linears]
        for part, given in there[1:]:
            first = there[0][1]
            if given is None or first is None:
                continue
            if not (torch.equal(given.scale, first.scale) and torch.equal(given.offset, first.offset)):
                raise ConfigError(
                    f"{prefix}.{part} has input_scale {float(given.scale)} and offset {int(given.offset)}, "
                    f"{there[0][0]} has {float(first.scale)} and {int(first.offset)}; the engine has one pair for "
                    f"{fused}.",
                    file=served.places[f"{prefix}.{part}.input_scale"],
                    hint="Calibrate them together.",
                )


def _norm(read: Tensors, name: str, to: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    found = {f"{to}.weight": read[f"{name}.weight"].to(dtype)}
    if f"{name}.bias" in read:
        found[f"{to}.bias"] = read[f"{name}.bias"].to(torch.float32)
    return found


_KEPT_BITS = -(1 << 13)
"""0xFFFFE000: sign, exponent and ten bits of the mantissa."""


_Integers = tuple[torch.Tensor, torch.Tensor | None]
"""An input [tokens, K], and the scales of its tokens [tokens, 1], None for a static range."""
_LAST_READERS = {source: name for name, source in SOURCES.items()}
"""Tensor → the last linear of a block that reads it."""


def served_decoder(served: Served, *, keep: bool = False) -> Decoder:
    """A checkpoint as the steps of its computation, for `logits_of` and `greedy`.

    Deterministic for one number of threads and one version of torch; the integer sums on any machine.

    Args:
        keep: blocks, embedding and head stay in memory after the first call, for quick further calls; otherwise one
            block is in memory at a time.
    """

    def block(index: int) -> Callable[[Stage], RunningBlock]:
        return running_block(read_served_block(served, index), served.config.dtype)

    def embedding() -> torch.Tensor:
        return read_served_embedding(served)

    def head() -> dict[str, torch.Tensor]:
        checked()
        return read_served_head(served)

    checked = lru_cache(partial(check_tied, served))
    held = lru_cache(maxsize=None)(block) if keep else block
    return Decoder(
        config=served.config,
        embedding=lru_cache(embedding) if keep else embedding,
        head=lru_cache(head) if keep else head,
        block=lambda index, stage: held(index)(stage),
    )


def running_block(block: ServedBlock, dtype: torch.dtype) -> Callable[[Stage], RunningBlock]:
    """How a block computes, by stage; linears that read one tensor share its integers."""
    floats = float_linear(block.tensors)
    latest: dict[tuple[str, bool], tuple[torch.Tensor, _Integers]] = {}
    meant = {  # of W8A16 in the model's dtype, as the kernel widens it before a float product
        name: linear.weight.to(dtype) * linear.scale[:, None]
        for name, linear in block.linears.items()
        if linear.type == "W8A16" and linear.scale is not None
    }

    def linear(stage: Stage, name: str, x: torch.Tensor) -> torch.Tensor:
        ours = block.linears.get(name)
        if ours is None:
            return floats(name, x)
        if ours.type == "W8A16":
            return plain_linear(x, meant[name], ours.bias)
        static = ours.type == "W8A8" or (ours.type == "W8A8_MIX" and stage == "decode")
        key = SOURCES[name], static
        seen, integers = latest.pop(key, (None, None))
        if integers is None or seen is not x:
            integers = _integers(x.reshape(-1, x.shape[-1]), ours.input if static else None)
        if _LAST_READERS[SOURCES[name]] != name:  # nothing of a window stays with a block that stays in memory
            latest[key] = (x, integers)
        return _output(ours, integers, dtype).view(*x.shape[:-1], -1)

    def kept(what: str, x: torch.Tensor) -> torch.Tensor:
        """Keys or values as they come back out of an int8 cache, in their dtype."""
        if what not in block.cache:
            return x
        by = block.cache[what].view(1, x.shape[1], 1, x.shape[3])
        return torch.round(x * (1 / by)).clamp_(-128, 127) * by

    return lambda stage: RunningBlock(tensors=block.tensors, linear=partial(linear, stage), kept=kept)


def _integers(x: torch.Tensor, by: Affine | None) -> _Integers:
    """int8 of x by a static range, or by token.

    The reciprocal of a static scale is rounded to the model's dtype first, so in bfloat16 a large value may lie a step
    from x / scale. A token of zeros gives zeros and the scale 0: 127 / 0 is infinite, and so the kernel's 1 / r is 0.
    Half is rounded to even, beyond int8 to its ends, NaN to 0 as the vector unit's conversion has it [inferred].
    """
    wide, tokens = x.to(torch.float32), None
    if by is not None:
        wide = wide.mul((1 / by.scale).to(torch.float32)).add_(by.offset.to(torch.float32))
    else:
        largest = wide.abs().amax(-1, keepdim=True)
        reciprocal = torch.full_like(largest, 127.0) / largest  # a number over a tensor is rounded twice in torch
        wide, tokens = wide * reciprocal, 1 / reciprocal
    return torch.nan_to_num_(wide.round_(), nan=0.0).clamp_(-128, 127).to(torch.int8), tokens


def _output(linear: ServedLinear, given: _Integers, dtype: torch.dtype) -> torch.Tensor:
    """[tokens, N] in the model's dtype. The float bias of a static linear is in its integer bias."""
    values, tokens = given
    sums = integer_product(values, linear.weight)
    if tokens is None:
        assert linear.integer_bias is not None  # a static type has it,
        assert linear.factors is not None  # and this
        factors = linear.factors
        if dtype == torch.float16:  # of which the card reads 19 bits, else all
            factors = (factors.view(torch.int32) & _KEPT_BITS).view(torch.float32)
        return sums.add_(linear.integer_bias).to(torch.float32).mul_(factors).to(dtype)
    assert linear.scale is not None  # so has a dynamic one
    wide = sums.to(torch.float32).mul_(linear.scale.to(torch.float32)).mul_(tokens)
    return (wide if linear.bias is None else wide.add_(linear.bias.to(torch.float32))).to(dtype)
