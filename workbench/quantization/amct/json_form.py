"""AMCT's quantization configuration in JSON: the settings of every layer written out (amct.md §2.1).

.cfg + layers ── config.expand ──► ExpandedConfig ── config_json ──► text, as AMCT writes it
                                                          ▲── parse_config_json ◄── text
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from workbench.quantization.amct.cfg import broken_rule, broken_search
from workbench.quantization.amct.protobuf_text import Place
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, nearest

ActAlgo = Literal["ifmr", "hfmg"]
WtsAlgo = Literal["arq_quantize", "ada_quantize", "nuq_quantize"]

GLOBAL_KEYS = (
    "version",
    "batch_num",
    "activation_offset",
    "joint_quant",
    "do_fusion",
    "fakequant_precision_mode",
    "skip_fusion_layers",
    "tensor_quantize",
)
"""Keys that are no layer's name, in the order AMCT writes them."""


_KEYS = {
    "activation": "activation_quant_params",
    "weight": "weight_quant_params",
    "force_fp16": "fakequant_precision_mode",
    "layers": "",
}
"""Of fields below that have other names in the text, or none; all fields stand in AMCT's order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationQuantParams:
    """Attributes: num_of_bins: with hfmg only; the percentiles and the search with ifmr only; None otherwise.

    asymmetric: None in a JSON text that leaves it out, which means activation_offset.
    """

    num_bits: Literal[4, 8, 16] = 8
    max_percentile: float | None = None
    min_percentile: float | None = None
    search_range: tuple[float, float] | None = None
    search_step: float | None = None
    act_algo: ActAlgo = "ifmr"
    asymmetric: bool | None = None
    num_of_bins: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuantParams:
    """Attributes: channel_wise: None in a JSON text that leaves it out, which means the layer type's default.

    num_iteration, reg_param, beta_range, warm_start: with ada_quantize; num_steps, num_of_iteration: nuq_quantize.
    """

    num_bits: Literal[4, 6, 7, 8] = 8
    reg_param: float | None = None
    warm_start: float | None = None
    num_iteration: int | None = None
    beta_range: tuple[float, float] | None = None
    num_steps: int | None = None
    num_of_iteration: int | None = None
    channel_wise: bool | None = None
    wts_algo: WtsAlgo = "arq_quantize"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerConfig:
    """Attributes: weight: None where AMCT leaves the block out, which means ARQ with the layer type's default."""

    quant_enable: bool = True
    dmq_balancer_param: float | None = None
    activation: ActivationQuantParams
    weight: WeightQuantParams | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorConfig:
    layer_name: str
    input_index: int
    activation: ActivationQuantParams


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedConfig:
    """The JSON form.

    Attributes:
        layers: layer name → settings, in any order; the JSON has them sorted by name.
        joint_quant: None where it is absent.
        file: where it was read, for messages; no part of the comparison.
    """

    batch_num: int = 1
    activation_offset: bool = True
    joint_quant: bool | None = None
    do_fusion: bool = True
    force_fp16: bool = False
    skip_fusion_layers: tuple[str, ...] = ()
    tensor_quantize: tuple[TensorConfig, ...] = ()
    layers: Mapping[str, LayerConfig] = field(default_factory=dict)
    file: str | None = field(default=None, compare=False)


def config_json(config: ExpandedConfig) -> str:
    """The text AMCT's create_quant_config writes: its key order, 4 spaces, layers by name, no last line break."""
    data = {
        "version": 1,
        "batch_num": config.batch_num,
        "activation_offset": config.activation_offset,
        "joint_quant": config.joint_quant,
        "do_fusion": config.do_fusion,
        "fakequant_precision_mode": "FORCE_FP16_QUANT" if config.force_fp16 else None,
        "skip_fusion_layers": config.skip_fusion_layers,
        "tensor_quantize": config.tensor_quantize or None,
        **{name: config.layers[name] for name in sorted(config.layers)},
    }
    return json.dumps(_plain(data), indent=4, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """As JSON has it; what is None is left out."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        value = {_KEYS.get(each.name, each.name): getattr(value, each.name) for each in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return value


# --- reading, as strictly as AMCT does -------------------------------------------------------------------------------

_ALGORITHMS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "act_algo": {
        "ifmr": {
            "max_percentile": 0.999999,
            "min_percentile": 0.999999,
            "search_range": (0.7, 1.3),
            "search_step": 0.01,
        },
        "hfmg": {"num_of_bins": 4096},
    },
    "wts_algo": {
        "arq_quantize": {},
        "ada_quantize": {"num_iteration": 10000, "reg_param": 0.01, "beta_range": (20.0, 2.0), "warm_start": 0.2},
        "nuq_quantize": {"num_steps": 32, "num_of_iteration": 0},
    },
}
"""Key → algorithm → its own parameters and their defaults."""


def parse_config_json(text: str, *, file: Place = None) -> ExpandedConfig:
    """The configuration a JSON text holds, AMCT's defaults filled in for what it leaves out.

    Raises:
        ConfigError: with file and key path: no JSON, a key given twice, an unknown key (with the nearest known
            ones), a wrong type, a value outside amct.md §2.1's range, or parameters of two algorithms mixed.
    """
    try:
        data = loads(text)
    except JsonError as error:
        raise ConfigError(f"is no JSON: {error}.", file=file, line=error.line, key=error.key) from error
    if isinstance(data, dict):  # every object that is no global key is a layer
        layers = {key: value for key, value in data.items() if key not in GLOBAL_KEYS and isinstance(value, dict)}
        data = {key: value for key, value in data.items() if key not in layers} | {_KEYS["layers"]: layers}
        if (broken := _broken("version", version := data.pop("version", 1), Literal[1])) is not None:
            raise ConfigError(f"{version!r} {broken}.", file=file, key="version")
    config: ExpandedConfig = _read(ExpandedConfig, data, "", file)
    return replace(config, file=None if file is None else str(file))


def _read(kind: Any, data: Any, path: str, file: Place) -> Any:
    """A dataclass from its object."""

    def error(rule: str, key: str, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=file, key=f"{path}.{key}" if path else key, hint=hint)

    if not isinstance(data, dict):
        raise ConfigError(f"is {data!r}, not an object in {{ }}.", file=file, key=path or None)
    values: dict[str, Any] = {}
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "file"}
    if "force_fp16" in hints:
        hints["force_fp16"] = Literal["DEFAULT", "FORCE_FP16_QUANT"]
    keys = {_KEYS.get(name, name): name for name in hints}
    if unknown := [key for key in data if key not in keys]:
        raise error(
            "is an invalid layer name or parameter.", unknown[0], nearest(unknown[0], keys if path else GLOBAL_KEYS)
        )
    for key, name in keys.items():
        within = f"{path}.{key}" if path else key
        hint = get_args(hints[name])[0] if get_origin(hints[name]) is UnionType else hints[name]
        if name == "layers":
            values[name] = {each: _read(LayerConfig, one, each, file) for each, one in data[key].items()}
        elif is_dataclass(hint) and (key in data or hint is hints[name]):
            values[name] = _read(hint, data.get(key, {}), within, file)
        elif key in data and not is_dataclass(hint):
            value = data[key]
            if (broken := _broken(key, value, hint)) is not None:
                raise error(f"{value!r} {broken}.", key)
            if hint == tuple[TensorConfig, ...]:
                value = [_read(TensorConfig, each, f"{key}[{at}]", file) for at, each in enumerate(value)]
            if hint == tuple[float, float]:
                value = map(float, value)
            values[name] = float(value) if hint is float else tuple(value) if get_origin(hint) is tuple else value
        elif key in ("layer_name", "input_index"):
            raise error("is missing.", key)
    for key, algorithms in _ALGORITHMS.items():
        if key in keys:
            chosen = data.get(key, "hfmg" if "num_of_bins" in data else next(iter(algorithms)))
            own = algorithms[chosen]
            others = {each for other in algorithms.values() for each in other} - own.keys()
            if foreign := [each for each in data if each in others]:
                raise error(f"is no parameter of {key} {chosen!r}.", foreign[0])
            values = {**own, **values, key: chosen}
    if values.get("search_range") is not None:
        (start, end), step = values["search_range"], values["search_step"]
        if broken := broken_search(start, end, step):
            raise error(broken, "search_step" if 0 < start < end else "search_range")
    if values.get("beta_range") is not None and not 0 < values["beta_range"][1] < values["beta_range"][0]:
        raise error(f"{list(values['beta_range'])} is not start > end > 0.", "beta_range")
    if "force_fp16" in values:
        values["force_fp16"] = values["force_fp16"] == "FORCE_FP16_QUANT"
    return kind(**values)


_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "is not true or false"),
    int: ((int,), "is not a whole number"),
    float: ((int, float), "is not a number"),
    str: ((str,), "is not a name"),
}


def _broken(key: str, value: Any, hint: Any) -> str | None:
    """What is wrong with a value that is no object, as the end of a sentence about it."""
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        one = any(type(value) is type(each) and value == each for each in allowed)
        return None if one else f"is none of {', '.join(map(repr, allowed))}"
    if get_origin(hint) is tuple:
        if ... in get_args(hint):
            if not isinstance(value, list) or get_args(hint)[0] is not str:
                return None if isinstance(value, list) else "is not a list"
            if wrong := [name for name in value if not isinstance(name, str) or not name]:
                return f"holds {wrong[0]!r}, which is not a name"
            return "repeats a name" if len(set(value)) != len(value) else None
        two = isinstance(value, list) and len(value) == 2 and not any(_broken("", each, float) for each in value)
        return None if two else "is not a list of two numbers"
    types, words = _KINDS[hint]
    if type(value) not in types or value == "":
        return words
    if hint in (int, float) and not 0 <= value < math.inf:
        return "is below 0" if value < 0 else "is not finite"
    return broken_rule(key, value) if hint in (int, float) else None
