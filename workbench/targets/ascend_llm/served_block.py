"""One block of a checkpoint as an engine holds it after loading, and the rules that its values decide.

Values are rounded to the parameters of vLLM-Ascend: scales to the model's dtype, input_offset to int8, deq_scale to
float32 (vllm_ascend/quantization/methods/w8a8, msmodelslim.md §3.3, §8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from safetensors import safe_open

from workbench.quantization.llm.checkpoint import EMBEDDING, FINAL_NORM, HEAD, LINEARS, NORMS, stored_tensors
from workbench.quantization.llm.integer_products import MOST_COLUMNS
from workbench.quantization.llm.recipe import Type
from workbench.targets.ascend_llm.served import Served
from workbench.targets.ascend_llm.settings import FUSED, STATIC
from workbench.targets.ascend_llm.tensors import CACHED
from workbench.values.errors import ConfigError

_LARGEST_SUM = (1 << 31) - 1
_ROWS_COMPARED = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticInput:
    """Attributes:
    scale: [1] in the model's dtype.
    offset: int8 [1].
    """

    scale: torch.Tensor
    offset: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLinear:
    """A linear that an engine runs in integers.

    Attributes:
        weight: int8 [N, K].
        scale: of the weight, [N] in the model's dtype; None where the file has none (W8A8 of v1).
        bias: [N] in the model's dtype, or None; static execution does not add it, `integer_bias` holds it.
        input: of W8A8 and W8A8_MIX.
        integer_bias: int32 [N], of the same.
        factors: deq_scale as float32 [N], of the same.
    """

    type: Type
    weight: torch.Tensor
    scale: torch.Tensor | None
    bias: torch.Tensor | None
    input: StaticInput | None = None
    integer_bias: torch.Tensor | None = None
    factors: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBlock:
    """Attributes:
    tensors: float tensors by names relative to the block, in the model's dtype; biases of norms in float32.
    linears: the quantized ones.
    cache: 'key' and 'value' → scale by channel [kv_heads · head_dim] in the model's dtype; empty for a float cache.
    """

    index: int
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
    prefix = f"model.layers.{index}"
    names = [name for name in served.tensors if name.startswith(f"{prefix}.")]
    read = {name.removeprefix(f"{prefix}."): value for name, value in _values(served, names).items()}
    tensors: dict[str, torch.Tensor] = {}
    linears: dict[str, ServedLinear] = {}
    for linear in LINEARS:
        kind = served.types[f"{prefix}.{linear}"]
        if kind == "FLOAT":
            for part in ("weight", "bias"):
                if f"{linear}.{part}" in read:
                    tensors[f"{linear}.{part}"] = read[f"{linear}.{part}"].to(served.config.dtype)
        else:
            linears[linear] = _Checked(served, prefix, linear, read).linear(kind)
    _check_shared_inputs(served, prefix, linears)
    norms = [*NORMS, *(f"self_attn.{which}_norm" for which in ("q", "k") if served.config.qk_norm)]
    for norm in norms:
        tensors |= _norm(read, norm, served.config.dtype)
    cache: dict[str, torch.Tensor] = {}
    if index in served.cached:
        cache = {what: _Checked(served, prefix, linear, read).cache_scale() for what, linear in CACHED.items()}
    return ServedBlock(index=index, tensors=tensors, linears=linears, cache=cache)


def read_served_embedding(served: Served) -> torch.Tensor:
    """The embedding [vocabulary, hidden] in the model's dtype."""
    name = f"{EMBEDDING}.weight"
    return _values(served, [name])[name].to(served.config.dtype)


def read_served_head(served: Served) -> dict[str, torch.Tensor]:
    """Final norm and output projection by their full names, in the model's dtype (a norm's bias in float32)."""
    name = f"{EMBEDDING}.weight" if served.config.tied else f"{HEAD}.weight"
    wanted = [
        name,
        *(f"{FINAL_NORM}.{part}" for part in ("weight", "bias") if f"{FINAL_NORM}.{part}" in served.tensors),
    ]
    read = _values(served, wanted)
    return {f"{HEAD}.weight": read[name].to(served.config.dtype), **_norm(read, FINAL_NORM, served.config.dtype)}


def check_tied(served: Served) -> None:
    """Raises ConfigError where embedding and head are tied by config.json and differ in the file.

    The engine takes the embedding for both then, and skips the head [inferred from vLLM's loader of these families].
    """
    head, table = (served.tensors.get(f"{name}.weight") for name in (HEAD, EMBEDDING))
    if head is None or table is None or not served.config.tied:
        return
    with safe_open(head.file, framework="pt") as left, safe_open(table.file, framework="pt") as right:
        heads, tables = left.get_slice(f"{HEAD}.weight"), right.get_slice(f"{EMBEDDING}.weight")
        for start in range(0, served.config.vocabulary, _ROWS_COMPARED):
            part = slice(start, start + _ROWS_COMPARED)
            if not torch.equal(heads[part].to(served.config.dtype), tables[part].to(served.config.dtype)):
                raise ConfigError(
                    f"{HEAD}.weight differs from {EMBEDDING}.weight, which config.json ties it to "
                    "(tie_word_embeddings); the engine would skip the head and take the embedding.",
                    file=head.file,
                    hint="A rotation changes the two in different ways: write tie_word_embeddings: false.",
                )


class _Checked:
    """The tensors of one linear of one block, each looked at when it is taken."""

    def __init__(self, served: Served, prefix: str, linear: str, read: Mapping[str, torch.Tensor]) -> None:
        self._served, self._name, self._linear, self._read = served, f"{prefix}.{linear}", linear, read
        self._dtype = served.config.dtype

    def linear(self, kind: Type) -> ServedLinear:
        weight = self._read[f"{self._linear}.weight"]
        scale = self._scale("weight_scale")
        self._no_offset("weight_offset", f"{kind} kernels leave it out or add it")
        bias = self._read.get(f"{self._linear}.bias")
        given = StaticInput(scale=self._scale("input_scale"), offset=self._offset()) if kind in STATIC else None  # type: ignore[arg-type]  # the headers say that it is there
        linear = ServedLinear(
            type=kind,
            weight=weight,
            scale=None if scale is None else scale.flatten(),
            bias=None if bias is None else bias.to(self._dtype),
            input=given,
            integer_bias=self._read.get(f"{self._linear}.quant_bias"),
            factors=self._factors() if kind in STATIC else None,
        )
        self._check_sums(linear)
        return linear

    def cache_scale(self) -> torch.Tensor:
        scale = self._scale("kv_cache_scale")
        assert scale is not None  # the headers say so
        self._no_offset("kv_cache_offset", "the engine reads the cache back by its scale alone")
        return scale

    def _scale(self, part: str) -> torch.Tensor | None:
        value = self._read.get(f"{self._linear}.{part}")
        if value is None:
            return None
        value = value.to(self._dtype)
        if not bool((value > 0).all()) or not bool(torch.isfinite(value).all()):
            self._refuse(part, f"holds {_first_bad(value)}; a scale is positive and finite.")
        if part in ("input_scale", "kv_cache_scale") and not bool(torch.isfinite(1 / value).all()):
            self._refuse(
                part,
                f"holds {float(value.min())}, whose reciprocal is beyond {self._dtype}; the engine multiplies by it.",
            )
        return value

    def _offset(self) -> torch.Tensor:
        value = self._read[f"{self._linear}.input_offset"].to(torch.float32)
        if not bool(((value == value.round()) & (value >= -128) & (value <= 127)).all()):
            self._refuse("input_offset", f"is {float(value[0])}; the engine holds it as int8.")
        return value.to(torch.int8)

    def _no_offset(self, part: str, why: str) -> None:
        value = self._read.get(f"{self._linear}.{part}")
        if value is not None and bool((value != 0).any()):
            self._refuse(part, f"is not zero everywhere; {why}, so the file would mean something else.")

    def _factors(self) -> torch.Tensor:
        value = self._read[f"{self._linear}.deq_scale"]
        if value.dtype == torch.int64:
            if not torch.equal(value, value.to(torch.int32).to(torch.int64)):
                self._refuse("deq_scale", "holds integers beyond 32 bits; they are the bits of float32, sign-extended.")
            value = value.to(torch.int32).view(torch.float32)
        if not bool((value > 0).all()) or not bool(torch.isfinite(value).all()):
            self._refuse("deq_scale", f"holds {_first_bad(value)}; a factor is positive and finite.")
        return value

    def _check_sums(self, linear: ServedLinear) -> None:
        """No input of int8 may drive a sum out of int32, so that what is computed here is what any order gives."""
        if linear.weight.shape[1] > MOST_COLUMNS:
            self._refuse("weight", f"has {linear.weight.shape[1]} columns; sums of {MOST_COLUMNS} stay in int32.")
        if linear.integer_bias is None:
            return
        largest = 128 * linear.weight.to(torch.int32).abs().sum(1, dtype=torch.int64)
        if int((largest + linear.integer_bias.to(torch.int64).abs()).max()) > _LARGEST_SUM:
            row = int((largest + linear.integer_bias.to(torch.int64).abs()).argmax())
            self._refuse(
                "quant_bias", f"is {int(linear.integer_bias[row])} in row {row}, where the sum may leave int32."
            )

    def _refuse(self, part: str, rule: str) -> None:
        name = f"{self._name}.{part}"
        raise ConfigError(f"{name} {rule}", file=self._served.tensors[name].file, hint="Calibrate the model again.")


def _first_bad(value: torch.Tensor) -> float:
    bad = value[~(torch.isfinite(value) & (value > 0))]
    return float(bad.flatten()[0])


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
                    file=served.tensors[f"{prefix}.{part}.input_scale"].file,
                    hint="Calibrate them together.",
                )


def _norm(read: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    found = {f"{name}.weight": read[f"{name}.weight"].to(dtype)}
    if f"{name}.bias" in read:
        found[f"{name}.bias"] = read[f"{name}.bias"].to(torch.float32)
    return found


def _values(served: Served, names: Sequence[str]) -> dict[str, torch.Tensor]:
    return stored_tensors({name: served.tensors[name].file for name in names}, names)
