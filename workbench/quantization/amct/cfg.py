"""AMCT's simplified configuration (.cfg): protobuf text of the message AMCTConfig (amct.md §2.2).

    text ── parse_cfg ──► AmctConfig ── write_cfg ──► text
                              └─ amct_config: what it asks of every layer

Every message and field of the schema is read, also those this engine does not compute: `recipe_of_config` refuses
these by name. Protobuf's rules hold: of a repeated single field the last one counts, a message given twice is merged,
and of a oneof the later member wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from workbench.quantization.amct import protobuf_text
from workbench.quantization.amct.protobuf_reader import MessageReader
from workbench.quantization.amct.protobuf_text import Place, Printed, quoted, shortest
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
    config = AmctConfig(
        batch_num=body.integer("batch_num", 1, least=1),
        activation_offset=body.boolean("activation_offset") is not False,
        skip_layers=body.names("skip_layers"),
        skip_layer_types=body.names("skip_layer_types"),
        nuq_config=_nuq_config(body),
        joint_quant=body.boolean("joint_quant"),
        fakequant_precision_mode="FORCE_FP16_QUANT" if _forces_fp16(body) else None,
        common_config=_common(body),
        override_layer_types=_overrides(body, "override_layer_types", "layer_type"),
        override_layer_configs=_overrides(body, "override_layer_configs", "layer_name"),
        do_fusion=body.boolean("do_fusion") is not False,
        skip_fusion_layers=body.names("skip_fusion_layers"),
        tensor_quantize=tuple(_tensor_quantize(each) for each in body.messages("tensor_quantize")),
        file=None if file is None else str(file),
    )
    body.finish()
    return config


def write_cfg(config: AmctConfig) -> str:
    """The text of a configuration; `parse_cfg` gives an equal one back."""
    fields: list[Printed] = [("batch_num", config.batch_num), ("activation_offset", config.activation_offset)]
    fields += [("skip_layers", quoted(name)) for name in config.skip_layers]
    fields += [("skip_layer_types", quoted(name)) for name in config.skip_layer_types]
    if (nuq := config.nuq_config) is not None:
        inner: list[Printed] = []
        if nuq.mapping_file is not None:
            inner.append(("mapping_file", quoted(nuq.mapping_file)))
        if nuq.nuq_quantize is not None:
            inner.append(("nuq_quantize", _printed(nuq.nuq_quantize)))
        fields.append(("nuq_config", tuple(inner)))
    if config.joint_quant is not None:
        fields.append(("joint_quant", config.joint_quant))
    if config.fakequant_precision_mode is not None:
        fields.append(("fakequant_precision_mode", config.fakequant_precision_mode))
    if config.common_config is not None:
        fields.append(("common_config", _printed_calibration(config.common_config)))
    for name, settings in config.override_layer_types.items():
        inner = [("layer_type", quoted(name)), ("calibration_config", _printed_calibration(settings))]
        fields.append(("override_layer_types", tuple(inner)))
    for name, settings in config.override_layer_configs.items():
        inner = [("layer_name", quoted(name)), ("calibration_config", _printed_calibration(settings))]
        fields.append(("override_layer_configs", tuple(inner)))
    fields.append(("do_fusion", config.do_fusion))
    fields += [("skip_fusion_layers", quoted(name)) for name in config.skip_fusion_layers]
    for tensor in config.tensor_quantize:
        inner = [("layer_name", quoted(tensor.layer_name)), ("input_index", tensor.input_index)]
        if tensor.activations is not None:
            inner.append((_MEMBERS[type(tensor.activations)], _printed(tensor.activations)))
        fields.append(("tensor_quantize", tuple(inner)))
    return protobuf_text.print_message(fields)


# --- writing -------------------------------------------------------------------------------------------------------

_MEMBERS = {
    ArqQuantize: "arq_quantize",
    AdaQuantize: "ada_quantize",
    NuqQuantize: "nuq_quantize",
    IfmrQuantize: "ifmr_quantize",
    HfmgQuantize: "hfmg_quantize",
}


def _printed(settings: Any) -> tuple[Printed, ...]:
    """The fields of a message of scalars; unset ones are left out."""
    values = ((name, getattr(settings, name)) for name in type(settings).__dataclass_fields__)
    return tuple(
        (name, shortest(value) if isinstance(value, float) else value) for name, value in values if value is not None
    )


def _printed_calibration(config: CalibrationConfig) -> tuple[Printed, ...]:
    members = [member for member in (config.weights, config.activations) if member is not None]
    fields: list[Printed] = [(_MEMBERS[type(member)], _printed(member)) for member in members]
    if config.dmq_balancer is not None:
        fields.append(("dmq_balancer", _printed(config.dmq_balancer)))
    return tuple(fields)


# --- reading -------------------------------------------------------------------------------------------------------


def _forces_fp16(body: MessageReader) -> bool:
    return body.choice("fakequant_precision_mode", ("FORCE_FP16_QUANT",)) is not None


def _nuq_config(body: MessageReader) -> NuqConfig | None:
    found = body.message_of("nuq_config")
    if found is None:
        return None
    inner = found[1]
    member = inner.message_of("nuq_quantize")
    config = NuqConfig(mapping_file=inner.text("mapping_file"), nuq_quantize=_nuq(member[1]) if member else None)
    inner.finish()
    return config


def _common(body: MessageReader) -> CalibrationConfig | None:
    found = body.message_of("common_config")
    return _calibration(found[1]) if found else None


def _overrides(body: MessageReader, name: str, key: str) -> dict[str, CalibrationConfig]:
    overrides: dict[str, CalibrationConfig] = {}
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


def _calibration(body: MessageReader) -> CalibrationConfig:
    weights: ArqQuantize | AdaQuantize | NuqQuantize | None = None
    if (member := body.message_of("arq_quantize", "ada_quantize", "nuq_quantize")) is not None:
        name, inner = member
        weights = _arq(inner) if name == "arq_quantize" else _ada(inner) if name == "ada_quantize" else _nuq(inner)
    balancer: DmqBalancer | None = None
    if (found := body.message_of("dmq_balancer")) is not None:
        strength = found[1].real("migration_strength", 0.5)
        if not 0.2 <= strength <= 0.8:
            raise found[1].error("migration_strength", f"{strength} is outside [0.2, 0.8].")
        found[1].finish()
        balancer = DmqBalancer(migration_strength=strength)
    config = CalibrationConfig(weights=weights, activations=_activations(body), dmq_balancer=balancer)
    body.finish()
    return config


def _arq(body: MessageReader) -> ArqQuantize:
    bits = body.integer("quant_bits", 0, choices=(4, 6, 7, 8))
    arq = ArqQuantize(channel_wise=body.boolean("channel_wise"), quant_bits=bits or None)
    body.finish()
    return arq


def _ada(body: MessageReader) -> AdaQuantize:
    ada = AdaQuantize(
        num_iteration=body.integer("num_iteration", 10000, least=1),
        reg_param=_share(body, "reg_param", 0.01),
        beta_range_start=body.real("beta_range_start", 20.0),
        beta_range_end=body.real("beta_range_end", 2.0),
        warm_start=_share(body, "warm_start", 0.2),
        channel_wise=body.boolean("channel_wise"),
    )
    if not 0 < ada.beta_range_end < ada.beta_range_start:
        raise body.error(
            "beta_range_end", f"beta range [{ada.beta_range_start}, {ada.beta_range_end}] is not start > end > 0."
        )
    body.finish()
    return ada


def _share(body: MessageReader, name: str, default: float) -> float:
    value = body.real(name, default)
    if not 0 < value < 1:
        raise body.error(name, f"{value} is outside (0, 1).")
    return value


def _nuq(body: MessageReader) -> NuqQuantize:
    nuq = NuqQuantize(
        num_steps=body.integer("num_steps", 32, choices=(16, 32)),
        num_of_iteration=body.integer("num_of_iteration", 0, choices=range(6)),
    )
    body.finish()
    return nuq


def _activations(body: MessageReader) -> IfmrQuantize | HfmgQuantize | None:
    member = body.message_of("ifmr_quantize", "hfmg_quantize")
    if member is None:
        return None
    return _ifmr(member[1]) if member[0] == "ifmr_quantize" else _hfmg(member[1])


def _ifmr(body: MessageReader) -> IfmrQuantize:
    start, end = body.real("search_range_start", 0.7), body.real("search_range_end", 1.3)
    step = body.real("search_step", 0.01)
    if not 0 < start < end:
        name = "search_range_end" if start > 0 else "search_range_start"
        raise body.error(name, f"search range [{start}, {end}] is not 0 < start < end.")
    # in decimals, as AMCT compares: 0.9 - 0.8 in float is less than 0.1
    if not 0 < Decimal(str(step)) <= Decimal(str(end)) - Decimal(str(start)):
        raise body.error("search_step", f"{step} is outside (0, end - start] of the search range [{start}, {end}].")
    ifmr = IfmrQuantize(
        search_range_start=start,
        search_range_end=end,
        search_step=step,
        max_percentile=_percentile(body, "max_percentile"),
        min_percentile=_percentile(body, "min_percentile"),
        asymmetric=body.boolean("asymmetric"),
        dst_type=_data_type(body),
    )
    body.finish()
    return ifmr


def _percentile(body: MessageReader, name: str) -> float:
    value = body.real(name, 0.999999)
    if not 0.5 < value <= 1:
        raise body.error(name, f"{value} is outside (0.5, 1].")
    return value


def _data_type(body: MessageReader) -> DataType:
    return "INT16" if body.choice("dst_type", ("INT8", "INT16")) == "INT16" else "INT8"


def _hfmg(body: MessageReader) -> HfmgQuantize:
    hfmg = HfmgQuantize(
        num_of_bins=body.integer("num_of_bins", 4096, choices=HFMG_BINS),
        asymmetric=body.boolean("asymmetric"),
        dst_type=_data_type(body),
    )
    body.finish()
    return hfmg


def _tensor_quantize(body: MessageReader) -> TensorQuantize:
    index = body.integer("input_index", -1)
    if index < 0:
        raise body.error("input_index", "is missing.", "Every tensor_quantize needs an input_index.")
    tensor = TensorQuantize(
        layer_name=body.required_text("layer_name"), input_index=index, activations=_activations(body)
    )
    body.finish()
    return tensor
