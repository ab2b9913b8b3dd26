"""AMCT's simplified configuration (.cfg): protobuf text of the message AMCTConfig (amct.md §2.2).

    text ── parse_cfg ──► AmctConfig ── write_cfg ──► text
                              └─ config.py: what it asks of every layer

Every message and field of the schema is read, also those this engine does not compute: `recipe_of_config` refuses
these by name. Protobuf's rules hold: of a repeated single field the last one counts, a message given twice is merged,
and of a oneof the later member wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

from workbench.quantization.amct import protobuf_text
from workbench.quantization.amct.protobuf_text import MessageReader, Place, Printable, Printed, quoted, shortest
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
    body = MessageReader(protobuf_text.parse(text, file=file), file=file, name="AMCTConfig")
    found = body.message_of("common_config")
    config = AmctConfig(
        batch_num=_scalar(body, "batch_num", int, 1),
        activation_offset=_scalar(body, "activation_offset", bool, True),
        skip_layers=body.names("skip_layers"),
        skip_layer_types=body.names("skip_layer_types"),
        nuq_config=_nuq_config(body),
        joint_quant=_scalar(body, "joint_quant", bool),
        fakequant_precision_mode=_scalar(body, "fakequant_precision_mode", ("FORCE_FP16_QUANT",)),
        common_config=_calibration(found[1]) if found else None,
        override_layer_types=_overrides(body, "override_layer_types"),
        override_layer_configs=_overrides(body, "override_layer_configs"),
        do_fusion=_scalar(body, "do_fusion", bool, True),
        skip_fusion_layers=body.names("skip_fusion_layers"),
        tensor_quantize=tuple(_tensor_quantize(each) for each in body.messages("tensor_quantize")),
        file=None if file is None else str(file),
    )
    body.finish()
    return config


def write_cfg(config: AmctConfig) -> str:
    """The text of a configuration; `parse_cfg` gives an equal one back."""
    return protobuf_text.print_message(_printed(config))


_MESSAGES: Mapping[str, type] = {
    "arq_quantize": ArqQuantize,
    "ada_quantize": AdaQuantize,
    "nuq_quantize": NuqQuantize,
    "ifmr_quantize": IfmrQuantize,
    "hfmg_quantize": HfmgQuantize,
    "dmq_balancer": DmqBalancer,
}
_NAMES = {kind: name for name, kind in _MESSAGES.items()}
_WEIGHTS, _ACTIVATIONS = ("arq_quantize", "ada_quantize", "nuq_quantize"), ("ifmr_quantize", "hfmg_quantize")
_KEYS = {"override_layer_types": "layer_type", "override_layer_configs": "layer_name"}
_ENUMS = ("dst_type", "fakequant_precision_mode")

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


# --- writing -------------------------------------------------------------------------------------------------------


def _printed(message: Any) -> tuple[Printed, ...]:
    """The fields of a message; unset ones are left out."""
    fields: list[Printed] = []
    for each in dataclasses.fields(message):
        value = getattr(message, each.name)
        if isinstance(value, Mapping):
            key = _KEYS[each.name]
            fields += [
                (each.name, ((key, quoted(name)), ("calibration_config", _printed(settings))))
                for name, settings in value.items()
            ]
        elif each.name != "file":
            fields += [
                (_NAMES.get(type(one), each.name), _printable(each.name, one))
                for one in (value if isinstance(value, tuple) else (value,))
                if one is not None
            ]
    return tuple(fields)


def _printable(name: str, value: Any) -> Printable:
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, str):
        return value if name in _ENUMS else quoted(value)
    return value if isinstance(value, int) else _printed(value)


# --- reading -------------------------------------------------------------------------------------------------------


def _scalar(body: MessageReader, name: str, kind: type | tuple[str, ...], default: Any = None) -> Any:
    value = body.scalar(name, kind)
    if value is None:
        return default
    if (broken := broken_rule(name, value)) is not None:
        raise body.error(name, f"{value} {broken}.")
    return value


def _settings(body: MessageReader, *names: str) -> Any:
    """The message of scalars that is there, of those that exclude each other; None where none is."""
    found = body.message_of(*names)
    if found is None:
        return None
    name, inner = found
    hints = get_type_hints(_MESSAGES[name])
    settings = _MESSAGES[name](
        **{
            each.name: _scalar(inner, each.name, _kind(hints[each.name]), each.default)
            for each in dataclasses.fields(_MESSAGES[name])
        }
    )
    if isinstance(settings, IfmrQuantize):
        start, end = settings.search_range_start, settings.search_range_end
        if broken := broken_search(start, end, settings.search_step):
            at = "search_step" if 0 < start < end else "search_range_end" if start > 0 else "search_range_start"
            raise inner.error(at, broken)
    if isinstance(settings, AdaQuantize) and not 0 < settings.beta_range_end < settings.beta_range_start:
        said = f"[{settings.beta_range_start}, {settings.beta_range_end}]"
        raise inner.error("beta_range_end", f"beta range {said} is not start > end > 0.")
    inner.finish()
    return settings


def _kind(hint: Any) -> type | tuple[str, ...]:
    """`float` of float, `bool` of bool | None, the names of a Literal."""
    options = tuple(option for option in get_args(hint) if option is not NoneType) or (hint,)
    return options if isinstance(options[0], str) else options[0]


def _calibration(body: MessageReader) -> CalibrationConfig:
    config = CalibrationConfig(
        weights=_settings(body, *_WEIGHTS),
        activations=_settings(body, *_ACTIVATIONS),
        dmq_balancer=_settings(body, "dmq_balancer"),
    )
    body.finish()
    return config


def _nuq_config(body: MessageReader) -> NuqConfig | None:
    found = body.message_of("nuq_config")
    if found is None:
        return None
    config = NuqConfig(mapping_file=found[1].text("mapping_file"), nuq_quantize=_settings(found[1], "nuq_quantize"))
    found[1].finish()
    return config


def _overrides(body: MessageReader, name: str) -> dict[str, CalibrationConfig]:
    key, overrides = _KEYS[name], dict[str, CalibrationConfig]()
    for each in body.messages(name):
        target = each.required_text(key)
        if target in overrides:
            raise each.error(key, f"{target!r} is overridden more than once.", "Delete the repeated item.")
        found = each.message_of("calibration_config")
        if found is None:
            raise each.error("calibration_config", "is missing.", f"Say what changes for {target!r}, or delete it.")
        overrides[target] = _calibration(found[1])
        each.finish()
    return overrides


def _tensor_quantize(body: MessageReader) -> TensorQuantize:
    index = _scalar(body, "input_index", int)
    if index is None:
        raise body.error("input_index", "is missing.", "Every tensor_quantize needs an input_index.")
    tensor = TensorQuantize(
        layer_name=body.required_text("layer_name"), input_index=index, activations=_settings(body, *_ACTIVATIONS)
    )
    body.finish()
    return tensor
