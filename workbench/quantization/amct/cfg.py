"""AMCT's simplified configuration (.cfg): protobuf text of the message AMCTConfig (amct.md §2.2).

Every message and field of the schema is read, also those this engine does not compute: `recipe_of_config` refuses
these by name. What it asks of every layer is in config.py.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from workbench.quantization.amct.protobuf_text import MOST_BYTES, Body, Place, message_class, parse
from workbench.quantization.recipe import HFMG_BINS
from workbench.values.documents.input_files import read_text

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
    for name in [field.name for field, _ in body.message.ListFields()]:
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
