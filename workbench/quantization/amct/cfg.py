"""AMCT's configuration in both of its forms: the simplified one (.cfg), protobuf text of the message AMCTConfig
(amct.md §2.2), and JSON, in which the settings of every layer are written out (§2.1).

    .cfg + layers ── config.expand ──► ExpandedConfig ── config_json ──► text, as AMCT writes it
                                                              ▲── parse_config_json ◄── text

Every message and field of the schema is read, also those this engine does not compute: `recipe_of_config` refuses
these by name. What it asks of every layer is in config.py.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from workbench.quantization.amct.protobuf_text import MOST_BYTES, Body, Place, message_class, parse
from workbench.quantization.recipe import HFMG_BINS
from workbench.values.documents.input_files import read_text
from workbench.values.documents.json_reader import JsonError, loads
from workbench.values.errors import ConfigError, nearest

_CHANNEL_WISE, _ASYMMETRIC = {"channel_wise": "bool"}, {"asymmetric": "bool", "dst_type": "enum INT8 INT16"}
_ACTIVATIONS = {name: f"{name} of_activations" for name in ("ifmr_quantize", "hfmg_quantize")}
_WEIGHTS = {name: f"{name} of_weights" for name in ("arq_quantize", "ada_quantize", "nuq_quantize")}
_OVERRIDES = {"override_layer_types": "layer_type", "override_layer_configs": "layer_name"}

AMCT_CONFIG: Any = message_class(
    "AMCTConfig",
    {
        "ifmr_quantize": {
            "search_range_start": "float 0.7",
            "search_range_end": "float 1.3",
            "search_step": "float 0.01",
            "max_percentile": "float 0.999999",
            "min_percentile": "float 0.999999",
            **_ASYMMETRIC,
        },
        "hfmg_quantize": {"num_of_bins": "uint32 4096", **_ASYMMETRIC},
        "arq_quantize": {**_CHANNEL_WISE, "quant_bits": "uint32 8"},
        "ada_quantize": {
            "num_iteration": "uint32 10000",
            "reg_param": "float 0.01",
            "beta_range_start": "float 20",
            "beta_range_end": "float 2",
            "warm_start": "float 0.2",
            **_CHANNEL_WISE,
        },
        "nuq_quantize": {"num_steps": "uint32 32", "num_of_iteration": "uint32 0"},
        "dmq_balancer": {"migration_strength": "float 0.5"},
        "calibration_config": {**_WEIGHTS, **_ACTIVATIONS, "dmq_balancer": "dmq_balancer"},
        "nuq_config": {"mapping_file": "string", "nuq_quantize": "nuq_quantize"},
        "tensor_quantize": {"layer_name": "string", "input_index": "uint32", **_ACTIVATIONS},
        **{name: {key: "string", "calibration_config": "calibration_config"} for name, key in _OVERRIDES.items()},
        "AMCTConfig": {
            "batch_num": "uint32 1",
            "activation_offset": "bool true",
            "skip_layers": "repeated string",
            "skip_layer_types": "repeated string",
            "nuq_config": "nuq_config",
            "joint_quant": "bool",
            "fakequant_precision_mode": "enum FORCE_FP16_QUANT",
            "common_config": "calibration_config",
            **{name: f"repeated {name}" for name in _OVERRIDES},
            "do_fusion": "bool true",
            "skip_fusion_layers": "repeated string",
            "tensor_quantize": "repeated tensor_quantize",
        },
    },
)
"""The message of a .cfg file: AMCT's fields with AMCT's defaults, where it has any."""


def read_cfg(path: Path) -> Body:
    """Raises ConfigError as `parse_cfg` does, and for a file that cannot be read."""
    return parse_cfg(read_text(path, limit_bytes=MOST_BYTES), file=path)


def parse_cfg(text: str, *, file: Place = None) -> Body:
    """The configuration a .cfg text holds: an `AMCT_CONFIG`.

    Raises:
        ConfigError: with file, line and field: no protobuf text, an unknown field (with the nearest known names), a
            wrong type, a value outside amct.md §2.1's range, or a name that is listed twice.
    """
    config = parse(text, AMCT_CONFIG, file=file)
    _check(config)
    return config


def overrides(config: Body, name: str) -> dict[str, Body]:
    """Layer type or name → the settings that replace common_config as a whole."""
    return {each.get(_OVERRIDES[name]): each.inner("calibration_config") for each in config.each(name)}


def _check(body: Body) -> None:
    kind = body.message.DESCRIPTOR.name
    wanted = ("layer_name", "input_index") if kind == "tensor_quantize" else (_OVERRIDES.get(kind),)
    for name in filter(None, wanted):
        if body.get(name) in (None, ""):
            raise body.error(name, "is missing or empty.", f"Every {kind} needs a {name}.")
    if kind in _OVERRIDES and not body.has("calibration_config"):
        target = body.get(_OVERRIDES[kind])
        raise body.error("calibration_config", "is missing.", f"Say what changes for {target!r}, or delete it.")
    for name in [each.name for each, _ in body.message.ListFields()]:
        value = getattr(body.message, name)
        if name in (*_OVERRIDES, "tensor_quantize"):
            seen: set[str] = set()
            for each in body.each(name):
                _check(each)
                target = each.get(_OVERRIDES.get(name, ""))
                if target is not None and target in seen:
                    raise each.error(
                        _OVERRIDES[name], f"{target!r} is overridden more than once.", "Delete the repeated item."
                    )
                seen.add(target)
        elif name.startswith("skip_"):
            if repeated := [item for item, times in Counter(value).items() if times > 1]:
                raise body.error(name, f"lists {repeated[0]!r} more than once.", "Delete the repeated item.")
        elif hasattr(value, "ListFields"):
            _check(body.inner(name))
        elif isinstance(value, float) and not math.isfinite(value):
            raise body.error(name, f"{value} is not finite.")
        elif (broken := broken_rule(name, body.get(name))) is not None:
            raise body.error(name, f"{body.get(name)} {broken}.")
    if kind == "ifmr_quantize":
        start, end = body.get("search_range_start"), body.get("search_range_end")
        if broken := broken_search(start, end, body.get("search_step")):
            at = "search_step" if 0 < start < end else "search_range_end" if start > 0 else "search_range_start"
            raise body.error(at, broken)
    if kind == "ada_quantize":
        start, end = body.get("beta_range_start"), body.get("beta_range_end")
        if not 0 < end < start:
            raise body.error("beta_range_end", f"beta range [{start}, {end}] is not start > end > 0.")


_LIMITS: Mapping[str, int | str | Sequence[int]] = {
    "batch_num": 1,
    "num_iteration": 1,
    "reg_param": "(0, 1)",
    "warm_start": "(0, 1)",
    "max_percentile": "(0.5, 1]",
    "min_percentile": "(0.5, 1]",
    "migration_strength": "[0.2, 0.8]",
    "dmq_balancer_param": "[0.2, 0.8]",
    "quant_bits": (4, 6, 7, 8),
    "num_steps": (16, 32),
    "num_of_iteration": range(6),
    "num_of_bins": HFMG_BINS,
}
"""Of scalars in either form, by name: the least, an interval, or all there are (amct.md §2.1)."""


def broken_rule(name: str, value: float) -> str | None:
    """What is wrong with a scalar of this name, as the end of a sentence about its value."""
    limit = _LIMITS.get(name)
    if isinstance(limit, str):
        low, high = map(float, limit[1:-1].split(","))
        above = value >= low if limit.startswith("[") else value > low
        below = value <= high if limit.endswith("]") else value < high
        return None if above and below else f"is outside {limit}"
    if isinstance(limit, int):
        return None if value >= limit else f"is below {limit}"
    return None if limit is None or value in limit else f"is none of {', '.join(map(str, limit))}"


def broken_search(start: float, end: float, step: float) -> str | None:
    """What is wrong with IFMR's range or step."""
    if not 0 < start < end:
        return f"search range [{start}, {end}] is not 0 < start < end."
    # in decimals, as AMCT compares: 0.9 - 0.8 in float is less than 0.1
    if not 0 < Decimal(str(step)) <= Decimal(str(end)) - Decimal(str(start)):
        return f"{step} is outside (0, end - start] of the search range [{start}, {end}]."
    return None


# --- the same in JSON ------------------------------------------------------------------------------------------------


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
