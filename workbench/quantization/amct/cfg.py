"""AMCT's simplified configuration (.cfg): protobuf text of the message AMCTConfig (amct.md §2.2).

    text ── parse_cfg ──► AmctConfig ── write_cfg ──► text
                              └─ config.py: what it asks of every layer

Every message and field of the schema is read, also those this engine does not compute: `recipe_of_config` refuses
these by name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from workbench.quantization.amct import protobuf_text
from workbench.quantization.amct.protobuf_text import Body, Place
from workbench.quantization.recipe import HFMG_BINS
from workbench.values.documents.input_files import read_text

DataType = Literal["INT8", "INT16"]


@dataclass(frozen=True, slots=True, kw_only=True)
class IfmrQuantize:
    """Attributes: asymmetric: None leaves it to common_config and activation_offset."""

    search_range_start: float = 0.7
    search_range_end: float = 1.3
    search_step: float = 0.01
    max_percentile: float = 0.999999
    min_percentile: float = 0.999999
    asymmetric: bool | None = None
    dst_type: DataType = "INT8"


@dataclass(frozen=True, slots=True, kw_only=True)
class HfmgQuantize:
    num_of_bins: int = 4096
    asymmetric: bool | None = None
    dst_type: DataType = "INT8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArqQuantize:
    """Attributes: channel_wise: None is the layer type's default; quant_bits: None is 8."""

    channel_wise: bool | None = None
    quant_bits: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaQuantize:
    num_iteration: int = 10000
    reg_param: float = 0.01
    beta_range_start: float = 20.0
    beta_range_end: float = 2.0
    warm_start: float = 0.2
    channel_wise: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NuqQuantize:
    num_steps: int = 32
    num_of_iteration: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DmqBalancer:
    migration_strength: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationConfig:
    """Attributes: weights, activations: the members of the two oneofs; None leaves AMCT's defaults (ARQ, IFMR)."""

    weights: ArqQuantize | AdaQuantize | NuqQuantize | None = None
    activations: IfmrQuantize | HfmgQuantize | None = None
    dmq_balancer: DmqBalancer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NuqConfig:
    mapping_file: str | None = None
    nuq_quantize: NuqQuantize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorQuantize:
    layer_name: str
    input_index: int
    activations: IfmrQuantize | HfmgQuantize | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AmctConfig:
    """One .cfg file.

    Attributes:
        joint_quant, fakequant_precision_mode, nuq_config: None where the file does not set them.
        override_layer_types, override_layer_configs: type or name → settings that replace common_config as a whole.
        file: where it was read, for messages; no part of the comparison.
    """

    batch_num: int = 1
    activation_offset: bool = True
    skip_layers: tuple[str, ...] = ()
    skip_layer_types: tuple[str, ...] = ()
    nuq_config: NuqConfig | None = None
    joint_quant: bool | None = None
    fakequant_precision_mode: Literal["FORCE_FP16_QUANT"] | None = None
    common_config: CalibrationConfig | None = None
    override_layer_types: Mapping[str, CalibrationConfig] = field(default_factory=dict)
    override_layer_configs: Mapping[str, CalibrationConfig] = field(default_factory=dict)
    do_fusion: bool = True
    skip_fusion_layers: tuple[str, ...] = ()
    tensor_quantize: tuple[TensorQuantize, ...] = ()
    file: str | None = field(default=None, compare=False)


def read_cfg(path: Path) -> AmctConfig:
    """Raises ConfigError as `parse_cfg` does, and for a file that cannot be read."""
    return parse_cfg(read_text(path, limit_bytes=protobuf_text.MOST_BYTES), file=path)


def parse_cfg(text: str, *, file: Place = None) -> AmctConfig:
    """The configuration a .cfg text holds.

    Floats are float32, as protobuf keeps them, and then the shortest decimal (0.01, not 0.00999999978).

    Raises:
        ConfigError: with file, line and field: no protobuf text, an unknown field (with the nearest known names), a
            wrong type, a value outside amct.md §2.1's range, or a name that is listed twice.
    """
    config: AmctConfig = _read(AmctConfig, protobuf_text.parse(text, _AMCT_CONFIG, file=file))
    return replace(config, file=None if file is None else str(file))


def write_cfg(config: AmctConfig) -> str:
    """The text of a configuration; `parse_cfg` gives an equal one back."""
    message = _AMCT_CONFIG()
    _write(config, message)
    return protobuf_text.print_message(message)


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


# --- protobuf's messages ---------------------------------------------------------------------------------------------

_NAMES: Mapping[type, str] = {
    ArqQuantize: "arq_quantize",
    AdaQuantize: "ada_quantize",
    NuqQuantize: "nuq_quantize",
    IfmrQuantize: "ifmr_quantize",
    HfmgQuantize: "hfmg_quantize",
    DmqBalancer: "dmq_balancer",
}
_KEYS = {"override_layer_types": "layer_type", "override_layer_configs": "layer_name"}
_REQUIRED = ("layer_name", "input_index")
_SCALARS = {int: "uint32", float: "float", bool: "bool", str: "string"}


def _options(hint: Any) -> tuple[Any, ...]:
    """The types of a union without None, the names of a Literal, the items of a tuple."""
    found = tuple(option for option in get_args(hint) if option not in (NoneType, ...)) or (hint,)
    return _options(found[0]) if get_origin(found[0]) is Literal else found


def _schema(kind: type) -> dict[str, str]:
    """Field → type of a message, as `protobuf_text.message_class` takes them, of the dataclass that stands for it."""
    fields = {}
    for name, hint in get_type_hints(kind).items():
        options = _options(hint)
        if name in _KEYS:
            fields[name] = f"repeated {name}"
        elif isinstance(options[0], str):
            fields[name] = " ".join(("enum", *options))
        elif options[0] in _SCALARS or get_origin(hint) is tuple:
            many = "repeated " if get_origin(hint) is tuple else ""
            fields[name] = many + _SCALARS.get(options[0], options[0].__name__)
        else:
            fields |= {_NAMES.get(option, name): f"{option.__name__} of_{name}" for option in options}
    fields.pop("file", None)
    return fields


_AMCT_CONFIG: Any = protobuf_text.message_class(
    "AMCTConfig",
    {kind.__name__: _schema(kind) for kind in (*_NAMES, CalibrationConfig, NuqConfig, TensorQuantize)}
    | {"AMCTConfig": _schema(AmctConfig)}
    | {name: {key: "string", "calibration_config": "CalibrationConfig"} for name, key in _KEYS.items()},
)


def _write(config: Any, message: Any) -> None:
    """Set the fields of a message; what is None or empty is left out."""
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, Mapping):
            for name, settings in value.items():
                override = getattr(message, each.name).add(**{_KEYS[each.name]: name})
                override.calibration_config.SetInParent()
                _write(settings, override.calibration_config)
        elif isinstance(value, tuple):
            for one in value:
                if isinstance(one, str):
                    getattr(message, each.name).append(one)
                else:
                    _write(one, getattr(message, each.name).add())
        elif is_dataclass(value):
            inner = getattr(message, _NAMES.get(type(value), each.name))
            inner.SetInParent()
            _write(value, inner)
        elif value is not None and each.name != "file":
            setattr(message, each.name, value)


def _read(kind: Any, body: Body) -> Any:
    """The dataclass that stands for a message."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        options = _options(hint)
        if name in _KEYS:
            values[name] = _overrides(body, name)
        elif get_origin(hint) is tuple and options[0] is str:
            values[name] = tuple(getattr(body.message, name))
            if repeated := [item for item, times in Counter(values[name]).items() if times > 1]:
                raise body.error(name, f"lists {repeated[0]!r} more than once.", "Delete the repeated item.")
        elif get_origin(hint) is tuple:
            values[name] = tuple(_read(options[0], each) for each in body.each(name))
        elif is_dataclass(options[0]):
            for option in options:
                if body.has(field_name := _NAMES.get(option, name)):
                    values[name] = _read(option, body.inner(field_name))
        elif name != "file" and (value := _scalar(body, name)) is not None:
            values[name] = value
        elif name in _REQUIRED:
            raise body.error(name, "is missing or empty.", f"Every tensor_quantize needs a {name}.")
    found = kind(**values)
    if isinstance(found, IfmrQuantize):
        start, end = found.search_range_start, found.search_range_end
        if broken := broken_search(start, end, found.search_step):
            at = "search_step" if 0 < start < end else "search_range_end" if start > 0 else "search_range_start"
            raise body.error(at, broken)
    if isinstance(found, AdaQuantize) and not 0 < found.beta_range_end < found.beta_range_start:
        said = f"[{found.beta_range_start}, {found.beta_range_end}]"
        raise body.error("beta_range_end", f"beta range {said} is not start > end > 0.")
    return found


def _scalar(body: Body, name: str) -> Any:
    value = body.get(name)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise body.error(name, f"{value} is not finite.")
        value = float(str(np.float32(value)))
    if value is not None and (broken := broken_rule(name, value)) is not None:
        raise body.error(name, f"{value} {broken}.")
    return None if value == "" else value


def _overrides(body: Body, name: str) -> dict[str, CalibrationConfig]:
    key, overrides = _KEYS[name], dict[str, CalibrationConfig]()
    for each in body.each(name):
        target = each.get(key)
        if not target:
            raise each.error(key, "is missing or empty.", f"Every {name} needs a {key}.")
        if target in overrides:
            raise each.error(key, f"{target!r} is overridden more than once.", "Delete the repeated item.")
        if not each.has("calibration_config"):
            raise each.error("calibration_config", "is missing.", f"Say what changes for {target!r}, or delete it.")
        overrides[target] = _read(CalibrationConfig, each.inner("calibration_config"))
    return overrides
