"""One block of a checkpoint as an engine holds it after loading, and the rules that its values decide.

Values are rounded to the parameters of vLLM-Ascend: scales to the model's dtype, input_offset to int8, deq_scale to
float32 (vllm_ascend/quantization/methods/w8a8, msmodelslim.md §3.3, §8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

import torch
from safetensors import safe_open

from workbench.quantization.llm.affine import Affine
from workbench.quantization.llm.checkpoint import EMBEDDING, FINAL_NORM, HEAD, LINEARS, NORMS, Tensors, stored_tensors
from workbench.quantization.llm.fixed_order import MOST_COLUMNS
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
