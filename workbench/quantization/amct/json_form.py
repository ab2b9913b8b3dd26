"""AMCT's quantization configuration in JSON: the settings of every layer written out (amct.md §2.1).

.cfg + layers ── config.expand ──► ExpandedConfig ── config_json ──► text, as AMCT writes it
                                                          ▲── parse_config_json ◄── text
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workbench.quantization.amct.cfg import broken_rule, broken_search
from workbench.quantization.amct.protobuf_text import Place
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, nearest

Settings = dict[str, Any]
"""One object of the text: AMCT's keys in AMCT's order, those without a value left out."""

_NAMES, _NUMBERS = "names", "numbers"

ACTIVATION: Mapping[str, tuple[Any, Any]] = {
    "num_bits": ((4, 8, 16), 8),
    **dict.fromkeys(("max_percentile", "min_percentile"), (float, None)),
    "search_range": (_NUMBERS, None),
    "search_step": (float, None),
    "act_algo": (("ifmr", "hfmg"), "ifmr"),
    "asymmetric": (bool, None),
    "num_of_bins": (int, None),
}
"""Key → (what it takes, its default): a type, all there are, a list, or an object; None where it may be missing (of
`asymmetric` that means activation_offset, of `channel_wise` the layer type's default), ... where it may not."""
WEIGHT: Mapping[str, tuple[Any, Any]] = {
    "num_bits": ((4, 6, 7, 8), 8),
    **dict.fromkeys(("reg_param", "warm_start"), (float, None)),
    "num_iteration": (int, None),
    "beta_range": (_NUMBERS, None),
    **dict.fromkeys(("num_steps", "num_of_iteration"), (int, None)),
    "channel_wise": (bool, None),
    "wts_algo": (("arq_quantize", "ada_quantize", "nuq_quantize"), "arq_quantize"),
}
LAYER: Mapping[str, tuple[Any, Any]] = {
    "quant_enable": (bool, True),
    "dmq_balancer_param": (float, None),
    "activation_quant_params": (ACTIVATION, {}),
    "weight_quant_params": (WEIGHT, None),
}
_TENSOR = {"layer_name": (str, ...), "input_index": (int, ...), "activation_quant_params": (ACTIVATION, {})}
GLOBAL: Mapping[str, tuple[Any, Any]] = {
    "version": ((1,), 1),
    "batch_num": (int, 1),
    "activation_offset": (bool, True),
    "joint_quant": (bool, None),
    "do_fusion": (bool, True),
    "fakequant_precision_mode": (("DEFAULT", "FORCE_FP16_QUANT"), None),
    "skip_fusion_layers": (_NAMES, []),
    "tensor_quantize": ([_TENSOR], None),
}
"""Keys that are no layer's name, in the order AMCT writes them; likewise above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedConfig:
    """The JSON form.

    Attributes:
        values: the global keys, then layer name → settings, sorted by name; without weight_quant_params ARQ with the
            layer type's default is meant.
        file: where it was read, for messages; no part of the comparison.
    """

    values: Settings
    file: str | None = field(default=None, compare=False)

    @property
    def batch_num(self) -> int:
        return int(self.values["batch_num"])

    @property
    def layers(self) -> Mapping[str, Settings]:
        return {name: settings for name, settings in self.values.items() if name not in GLOBAL}


def config_json(config: ExpandedConfig) -> str:
    """The text AMCT's create_quant_config writes: its key order, 4 spaces, layers by name, no last line break."""
    return json.dumps(config.values, indent=4, separators=(",", ":"))


def in_order(keys: Mapping[str, Any], values: Mapping[str, Any]) -> Settings:
    """The values in AMCT's order; what is None is left out."""
    return {key: values[key] for key in keys if values.get(key) is not None}


# --- reading, as strictly as AMCT does -------------------------------------------------------------------------------

_ALGORITHMS: Mapping[str, Mapping[str, Settings]] = {
    "act_algo": {
        "ifmr": {
            "max_percentile": 0.999999,
            "min_percentile": 0.999999,
            "search_range": [0.7, 1.3],
            "search_step": 0.01,
        },
        "hfmg": {"num_of_bins": 4096},
    },
    "wts_algo": {
        "arq_quantize": {},
        "ada_quantize": {"num_iteration": 10000, "reg_param": 0.01, "beta_range": [20.0, 2.0], "warm_start": 0.2},
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
    layers: Settings = {}
    if isinstance(data, dict):  # every object that is no global key is a layer
        layers = {key: data.pop(key) for key in sorted(data) if key not in GLOBAL and isinstance(data[key], dict)}
    values = _read(GLOBAL, data, "", file)
    for key, nothing in (("fakequant_precision_mode", "DEFAULT"), ("tensor_quantize", [])):
        if values.get(key) == nothing:
            del values[key]
    values |= {name: _read(LAYER, settings, name, file) for name, settings in layers.items()}
    return ExpandedConfig(values=values, file=None if file is None else str(file))


def _read(keys: Mapping[str, tuple[Any, Any]], data: Any, path: str, file: Place) -> Settings:
    """One object, checked and completed."""

    def error(rule: str, key: str, hint: str | None = None) -> ConfigError:
        return ConfigError(rule, file=file, key=f"{path}.{key}" if path else key, hint=hint)

    if not isinstance(data, dict):
        raise ConfigError(f"is {data!r}, not an object in {{ }}.", file=file, key=path or None)
    if unknown := [key for key in data if key not in keys]:
        raise error("is an invalid layer name or parameter.", unknown[0], nearest(unknown[0], keys))
    values: Settings = {}
    for key, (kind, default) in keys.items():
        value = data.get(key, default)
        within = f"{path}.{key}" if path else key
        if value is ...:
            raise error("is missing.", key)
        if isinstance(kind, dict) and (key in data or value is not None):
            values[key] = _read(kind, value, within, file)
        elif key in data:
            if (broken := _broken(key, value, kind)) is not None:
                raise error(f"{value!r} {broken}.", key)
            if isinstance(kind, list):
                value = [_read(kind[0], each, f"{within}[{at}]", file) for at, each in enumerate(value)]
            values[key] = [*map(float, value)] if kind == _NUMBERS else float(value) if kind is float else value
        else:
            values[key] = value
    for key, algorithms in _ALGORITHMS.items():
        if key in keys:
            chosen = data.get(key, "hfmg" if "num_of_bins" in data else next(iter(algorithms)))
            own = algorithms[chosen]
            others = {each for other in algorithms.values() for each in other} - own.keys()
            if foreign := [each for each in data if each in others]:
                raise error(f"is no parameter of {key} {chosen!r}.", foreign[0])
            values |= {key: chosen, **{name: value for name, value in own.items() if name not in data}}
    if values.get("search_range") is not None:
        (start, end), step = values["search_range"], values["search_step"]
        if broken := broken_search(start, end, step):
            raise error(broken, "search_step" if 0 < start < end else "search_range")
    if values.get("beta_range") is not None and not 0 < values["beta_range"][1] < values["beta_range"][0]:
        raise error(f"{values['beta_range']} is not start > end > 0.", "beta_range")
    return in_order(keys, values)


_KINDS: Mapping[type, tuple[tuple[type, ...], str]] = {
    bool: ((bool,), "is not true or false"),
    int: ((int,), "is not a whole number"),
    float: ((int, float), "is not a number"),
    str: ((str,), "is not a name"),
}


def _broken(key: str, value: Any, kind: Any) -> str | None:
    """What is wrong with a value that is no object, as the end of a sentence about it."""
    if isinstance(kind, tuple):
        one = any(type(value) is type(each) and value == each for each in kind)
        return None if one else f"is none of {', '.join(map(repr, kind))}"
    if kind == _NUMBERS:
        two = isinstance(value, list) and len(value) == 2 and not any(_broken("", each, float) for each in value)
        return None if two else "is not a list of two numbers"
    if kind == _NAMES or isinstance(kind, list):
        if not isinstance(value, list):
            return "is not a list"
        if kind == _NAMES and (wrong := [name for name in value if not isinstance(name, str) or not name]):
            return f"holds {wrong[0]!r}, which is not a name"
        return "repeats a name" if kind == _NAMES and len(set(value)) != len(value) else None
    types, words = _KINDS[kind]
    if type(value) not in types or value == "":
        return words
    if kind in (int, float) and not 0 <= value < math.inf:
        return "is below 0" if value < 0 else "is not finite"
    return broken_rule(key, value) if kind in (int, float) else None
