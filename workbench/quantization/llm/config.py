"""config.json of a model folder → the sizes that decide its tensors and its forward pass; anything else is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from workbench.values.documents.json_reader import read_json
from workbench.values.errors import ConfigError, nearest

Family = Literal["llama", "qwen2", "qwen3"]
_ARCHITECTURES: dict[str, Family] = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
SUPPORTED = "LlamaForCausalLM, Qwen2ForCausalLM (also Qwen2.5) and Qwen3ForCausalLM"
DTYPES: dict[str, torch.dtype] = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
ROPE_KINDS = ("default", "linear", "dynamic", "llama3", "yarn")
_MOST = 1 << 24
"""Of any size in config.json: the largest vocabulary in use has 2**18 entries."""
_DEFAULT_POSITIONS = {"llama": 2048, "qwen2": 32768, "qwen3": 32768}
"""What transformers assumes where config.json does not say; likewise below for head_dim, theta and epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmConfig:
    """What a model folder says of itself.

    Attributes:
        dtype: of weights and of every step of the computation.
        window: tokens that a layer with sliding attention sees; None where every layer sees all.
        qkv_bias, output_bias, mlp_bias: which linears have a bias; `qk_norm`: whether q and k are normed by head.
        tied: the output projection is the embedding.
        rope: what config.json says of rotary positions, `rope_type` and `rope_theta` always among it.
        written: config.json as it is, for files that repeat it.
    """

    family: Family
    dtype: torch.dtype
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    epsilon: float
    positions: int
    window: int | None
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    rope: dict[str, Any] = field(hash=False)
    written: dict[str, Any] = field(hash=False)

    @property
    def context(self) -> int:
        """The longest prompt that is computed: the model's positions, or its window where it has one."""
        return self.positions if self.window is None else min(self.positions, self.window)

    @property
    def group(self) -> int:
        """Query heads that share one head of keys and values."""
        return self.heads // self.kv_heads


def read_config(folder: Path, *, quantized: bool = False) -> LlmConfig:
    """The configuration of a model folder.

    Args:
        quantized: the folder may say that its weights are quantized; whoever reads them knows how.

    Raises:
        ConfigError: no such file, not JSON, an architecture or a kind of rotary positions that is not supported, a
            model that is quantized already, or sizes that do not fit each other.
    """
    if not folder.is_dir():
        raise ConfigError("is no folder.", file=folder, hint="Give the folder of a model in Hugging Face's format.")
    found = read_json(folder / "config.json")
    try:
        if not isinstance(found, dict):
            raise ConfigError("holds no JSON object.")
        return _config(found, quantized)
    except ConfigError as error:
        raise ConfigError(error.rule, file=folder / "config.json", key=error.key, hint=error.hint) from error


def _config(found: dict[str, Any], quantized: bool) -> LlmConfig:
    family = _family(found)
    if not quantized and (found.get("quantization_config") or found.get("quantize")):
        raise ConfigError("the model is quantized already.", key="quantization_config", hint="Give the float model.")
    if found.get("hidden_act", "silu") not in ("silu", "swish"):
        raise ConfigError(f"{found['hidden_act']!r} is not supported; these families use silu.", key="hidden_act")
    heads = _size(found, "num_attention_heads")
    hidden = _size(found, "hidden_size")
    kv_heads = _size(found, "num_key_value_heads", heads)
    head_dim = _size(found, "head_dim", 128 if family == "qwen3" else max(hidden // heads, 1))
    if heads % kv_heads:
        raise ConfigError(f"{heads} heads cannot share {kv_heads} heads of keys and values.", key="num_key_value_heads")
    if head_dim % 2 or (family != "qwen3" and "head_dim" not in found and hidden % heads):
        raise ConfigError(f"a head of {hidden}/{heads} = {hidden / heads:g} values cannot be rotated.")
    dtype_key = "dtype" if "dtype" in found else "torch_dtype"
    dtype = str(found.get(dtype_key)).removeprefix("torch.")
    if dtype not in DTYPES:
        rule = f"{found.get(dtype_key)!r} is no dtype that is computed in."
        raise ConfigError(rule, key=dtype_key, hint=f"Supported: {', '.join(DTYPES)}.")
    # transformers slides where `layer_types` says so, else, by `use_sliding_window`, from layer max_window_layers
    slides = family != "llama" and found.get("use_sliding_window") and found.get("sliding_window") is not None
    attention_bias = _flag(found, "attention_bias")
    return LlmConfig(
        family=family,
        dtype=DTYPES[dtype],
        layers=_size(found, "num_hidden_layers"),
        hidden=hidden,
        intermediate=_size(found, "intermediate_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocabulary=_size(found, "vocab_size"),
        epsilon=_number(found, "rms_norm_eps", 1e-6),
        positions=_size(found, "max_position_embeddings", _DEFAULT_POSITIONS[family]),
        window=_size(found, "sliding_window") if slides else None,
        qkv_bias=attention_bias or family == "qwen2",
        output_bias=attention_bias and family != "qwen2",
        mlp_bias=family == "llama" and _flag(found, "mlp_bias"),
        qk_norm=family == "qwen3",
        tied=_flag(found, "tie_word_embeddings"),
        rope=_rope(found),
        written=found,
    )


def _family(found: dict[str, Any]) -> Family:
    named, supported = found.get("architectures"), f"Supported: {SUPPORTED}."
    if not isinstance(named, list) or not named or not all(isinstance(each, str) for each in named):
        raise ConfigError("names no architecture.", key="architectures", hint=supported)
    family = _ARCHITECTURES.get(named[0])
    if family is None:
        raise ConfigError(f"{named[0]} is not supported.", key="architectures", hint=supported)
    if (kind := found.get("model_type")) != family:
        raise ConfigError(f"{kind!r} is not what {named[0]} is of.", key="model_type", hint=f"Expected {family!r}.")
    return family


def _rope(found: dict[str, Any]) -> dict[str, Any]:
    """Both spellings: `rope_theta` and `rope_scaling` of transformers 4, `rope_parameters` of 5."""
    key = "rope_parameters" if found.get("rope_parameters") is not None else "rope_scaling"
    said = found.get(key) or {}
    if not isinstance(said, dict):
        raise ConfigError(f"expected an object, got {said!r}.", key=key)
    kind = said.get("rope_type", said.get("type", "default"))
    if kind not in ROPE_KINDS:
        rule = f"rotary positions of kind {kind!r} are not supported."
        raise ConfigError(rule, key=key, hint=nearest(str(kind), ROPE_KINDS))
    theta = _number(said if "rope_theta" in said else found, "rope_theta", 10000.0)
    return {**said, "rope_type": kind, "rope_theta": theta}


def _size(found: dict[str, Any], key: str, default: int | None = None) -> int:
    value = default if found.get(key) is None else found[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST:
        raise ConfigError(f"{value!r} is no size from 1 to {_MOST}.", key=key)
    return value


def _number(found: dict[str, Any], key: str, default: float) -> float:
    value = found.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{value!r} is no positive number.", key=key)
    return float(value)


def _flag(found: dict[str, Any], key: str) -> bool:
    value = found.get(key)
    if value is not None and not isinstance(value, bool):
        raise ConfigError(f"{value!r} is neither true nor false.", key=key)
    return bool(value)
