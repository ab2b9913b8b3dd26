"""AMCT's record file: the quantization factors of every layer as protobuf text (amct.md §3).

    QuantizationRecord ── record_text ──► text        as AMCT's own printer lays it out, to the byte
                       ◄── parse_record ── text       with the checks of AMCT's reader, and its messages

What the file cannot hold is in the record only: a Conv's output scale, corrected biases, learned rounding. A product
of two activations has no documented form in the file; it is kept as two tensor records `name:0` and `name:1`
[inferred], which AMCT itself would refuse on a MatMul.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from workbench.graph.layers import Layer
from workbench.quantization.amct.protobuf_text import Body, Place, message_class, parse, print_message
from workbench.quantization.record import (
    ActivationScale,
    LayerRecord,
    Provenance,
    QuantizationRecord,
    WeightScale,
)
from workbench.values.documents.canonical import digest
from workbench.values.errors import ConfigError, nearest
from workbench.values.system.source_closure import closure_digest

_EPSILON = float(np.finfo(np.float32).eps)
_FORCED = "FORCE_FP16_QUANT"

RECORDS = message_class(
    "ScaleOffsetRecord",
    {
        "SingleLayerRecord": {
            "scale_d": "float",
            "offset_d": "int32",
            "scale_w": "repeated float",
            "offset_w": "repeated int32",
            "shift_bit": "repeated uint32",
            "skip_fusion": "bool",
            "is_tensor_quantize": "bool",
            "tensor_balance_factor": "repeated float",
            "op_data_type": "string",
            "act_type": "string",
            "wts_type": "string",
            "dst_type": "string",
            "fakequant_precision_mode": "string",
            "cluster": "repeated float",
            **dict.fromkeys(("scale_h", "scale_r"), "float"),
            **dict.fromkeys(("offset_h", "offset_r"), "int32"),
        },
        "MapFiledEntry": {"key": "string", "value": "SingleLayerRecord"},
        "ScaleOffsetRecord": {"record": "repeated MapFiledEntry"},
    },
)
"""The message of a record file (amct.md §3.1)."""


def record_text(record: QuantizationRecord) -> str:
    """The record file of a record: layers in its order, floats with the shortest digits of float32.

    AMCT finds a layer by the exact lines `  key: "<name>"` and `  value {`: the layout is part of the format. A Gemm or
    MatMul with a scale per channel is written as it is, though AMCT's reader (and `parse_record`) refuses it.
    """
    records = RECORDS()

    def add(name: str, activation: ActivationScale) -> Any:
        value = records.record.add(key=name).value
        value.scale_d, value.offset_d, value.act_type = activation.scale, activation.zero_point, "INT8"
        if record.force_fp16:
            value.fakequant_precision_mode = _FORCED
        return value

    for layer in record.layers:
        if layer.second is not None:
            for index, activation in enumerate((layer.activation, layer.second)):
                add(f"{layer.layer}:{index}", activation).is_tensor_quantize = True
            continue
        value = add(layer.layer, layer.activation)
        scales = layer.weight.scales if layer.weight is not None else (1.0,)  # AveragePool: amct.md §3.2
        value.scale_w.extend(scales)
        value.offset_w.extend([0] * len(scales))
        value.tensor_balance_factor.extend(layer.balance or ())
        if layer.weight is not None:
            value.wts_type = "INT8"
    return print_message(records)


# --- reading -------------------------------------------------------------------------------------------------------


def parse_record(text: str, *, layers: Sequence[Layer], model_sha256: str, file: Place = None) -> QuantizationRecord:
    """The record that a record file holds for a model.

    Layers the file does not name stay in float; of a layer named twice the last entry counts, as in AMCT. The clip
    ranges are those that the factors cover (amct.md §4.1). Balanced layers keep their Mul (`fold_balance` False),
    and their activation is that Mul's output.

    Args:
        layers: of the normalized model (`quantizable_layers`); they give tensors, axes and channel counts.

    Raises:
        ConfigError: with file and line: no protobuf text, an unknown field or layer, a missing or impossible factor
            (AMCT's own message is quoted), and what AMCT would lower but this engine does not (other bit widths,
            LSTM, NUQ, MaxPool and Add as tensors, FLOAT16 operators, unfused BatchNormalization).
    """
    by_name = {layer.name: layer for layer in layers}
    found: dict[str, LayerRecord] = {}
    sides: dict[str, dict[int, ActivationScale]] = {}  # of products of two activations
    modes: dict[str, tuple[bool, Body]] = {}
    bodies = parse(text, RECORDS, file=file).each("record")
    if not bodies:
        raise ConfigError("record_file is empty, no layers to be quantized (AMCT's words).", file=file)
    for body in bodies:
        key = body.get("key")
        if key is None:
            raise body.error("key", 'Cannot find "key" in record file (AMCT\'s words).')
        if not body.has("value"):
            raise body.error("value", f"cannot find 'value' in {key} in record_file (AMCT's words).")
        (name, index), value = _target(key, body, by_name), body.inner("value")
        layer = by_name[name]
        _check_other_fields(value, layer)
        if not any(map(value.has, ("scale_d", "offset_d", "scale_w", "offset_w", "tensor_balance_factor"))):
            continue
        if index is None:
            found[name] = _layer_record(value, layer)
        else:
            tensor = layer.second if index and layer.second else layer.activation
            sides.setdefault(name, {})[index] = _activation_of(value, layer, tensor)
            _balance(value, layer)
        modes[key] = _forced(value), value
    forced = {mode for mode, _ in modes.values()}
    if len(forced) > 1:
        odd, value = next((key, value) for key, (mode, value) in modes.items() if mode)
        rule = f"is {_FORCED} for {odd!r} and not for every layer."
        raise value.error("fakequant_precision_mode", rule, "AMCT sets it for the whole model; use one mode.")
    for name, scales in sides.items():
        if len(scales) == 1:
            rule = f"{name!r} has a scale for one of its two activations only."
            raise ConfigError(rule, file=file, hint=f"Add the record '{name}:{1 - next(iter(scales))}'.")
        op_type = by_name[name].op_type
        found[name] = LayerRecord(layer=name, op_type=op_type, activation=scales[0], second=scales[1])
    if not found:
        raise ConfigError("no layer of the record has quantization factors.", file=file, hint="Calibrate first.")
    return QuantizationRecord(
        model_sha256=model_sha256,
        layers=tuple(found[layer.name] for layer in layers if layer.name in found),
        float_layers=tuple(layer.name for layer in layers if layer.name not in found),
        provenance=Provenance(
            engine="amct-file",
            recipe={"record_sha256": digest(text)},
            statistics=None,
            code_revision=closure_digest("workbench.quantization"),
        ),
        fold_balance=False,
        force_fp16=forced == {True},
    )


def _layer_record(value: Body, layer: Layer) -> LayerRecord:
    tensor = layer.activation
    if value.has("tensor_balance_factor"):
        tensor = f"{layer.name}.mul.output0"  # prepare.balanced puts this Mul before a balanced layer
    activation, scales = _activation_of(value, layer, tensor), _weight_scales(value, layer)
    axis = layer.output_axis if len(scales) > 1 else None
    return LayerRecord(
        layer=layer.name,
        op_type=layer.op_type,
        activation=activation,
        weight=None if layer.weight is None else WeightScale(scales=scales, axis=axis),
        balance=_balance(value, layer) or None,
    )


def _target(key: str, body: Body, layers: Mapping[str, Layer]) -> tuple[str, int | None]:
    """Layer and input index of a key."""
    layer = layers.get(key)
    if layer is not None and layer.second is None:
        return key, None
    name, _, digits = key.rpartition(":")
    if layer is None and name in layers and layers[name].second is not None and digits in ("0", "1"):
        return name, int(digits)
    if layer is not None:
        raise body.error(
            "key",
            f"{key!r} multiplies two activations and needs a scale for each.",
            f"Write two records, '{key}:0' and '{key}:1', or leave the layer in float.",
        )
    raise body.error(
        "key",
        f"find {key} failure in the model (AMCT's words): no layer of this name can be quantized here.",
        f"{nearest(key, layers)} Tensor records (name:input_index) of MaxPool and Add are not lowered here.".lstrip(),
    )


_BITS: Mapping[str, tuple[str, ...]] = {
    "act_type": ("INT4", "INT8", "INT16"),
    "wts_type": ("INT4", "INT6", "INT7", "INT8"),
    "dst_type": ("INT4", "INT8"),
}
_UNCOMPUTED = {
    "cluster": "clusters weights (NUQ)",
    **dict.fromkeys(("scale_h", "offset_h", "scale_r", "offset_r"), "quantizes LSTM and GRU"),
}


def _check_other_fields(value: Body, layer: Layer) -> None:
    """Fields that must not be there, or must say INT8 and float32."""
    name = layer.name
    if value.has("shift_bit"):
        raise value.error(
            "shift_bit", f"shift_bit is not support, please delete shift_bit of layer {name} (AMCT's words)."
        )
    for field, what in _UNCOMPUTED.items():
        if value.has(field):
            raise value.error(field, f"AMCT {what} with it; this engine does not.", f"Leave {name!r} out.")
    for field, types in _BITS.items():
        kind = value.get(field)
        if kind in (None, "INT8"):  # AMCT takes a missing type for 8 bits
            continue
        if kind not in types:
            raise value.error(field, f"Do not support {field} {kind} in record file (AMCT's words).")
        raise value.error(field, f"AMCT would use {kind}; this engine lowers INT8 only.", f"Leave {name!r} out.")
    if (kind := value.get("op_data_type")) not in (None, "FLOAT32"):
        raise value.error("op_data_type", f"is {kind!r}; this engine lowers float32 models only.")
    if value.message.skip_fusion and layer.op_type in ("Conv", "ConvTranspose"):
        raise value.error(
            "skip_fusion",
            f"AMCT would leave the BatchNormalization after {name!r} unfused; this engine does not.",
            "Calibrate with do_fusion true.",
        )


def _given(value: Body, layer: Layer, field: str, numbers: Sequence[float]) -> None:
    """Refuses an absent field, and scales that are none."""
    if not value.has(field):
        data = ", please check data calibration process!" if field.endswith("_d") else ""
        raise value.error(field, f"cannot find {field} of layer {layer.name} in record_file{data} (AMCT's words).")
    for number in numbers:
        if field.startswith("scale") and not (math.isfinite(number) and number > 0):
            raise value.error(
                field,
                f"{field}'s value shoule be in positivate range of float32 in layer {layer.name} (AMCT's words),"
                f" it is {number}.",
            )


def _activation_of(value: Body, layer: Layer, tensor: str) -> ActivationScale:
    """The clip range is what the factors cover: (-128 - offset)·scale to (127 - offset)·scale (amct.md §4.1)."""
    scale, offset = value.message.scale_d, value.message.offset_d
    _given(value, layer, "scale_d", [scale])
    _given(value, layer, "offset_d", [offset])
    if not -128 <= offset <= 127:
        rule = f"offset_d's value should be in [-128, 127] in layer {layer.name} (AMCT's words), it is {offset}."
        raise value.error("offset_d", rule)
    low, high = (-128 - offset) * scale, (127 - offset) * scale
    return ActivationScale(tensor=tensor, scale=scale, zero_point=offset, low=low, high=high)


def _weight_scales(value: Body, layer: Layer) -> tuple[float, ...]:
    scales, offsets = tuple(value.message.scale_w), tuple(value.message.offset_w)
    _given(value, layer, "scale_w", scales)
    _given(value, layer, "offset_w", offsets)
    if any(offsets):
        raise value.error("offset_w", f"offset_w's value should be 0 in layer {layer.name} (AMCT's words).")
    if len(scales) != len(offsets):
        raise value.error(
            "offset_w",
            f"scale_w's length, offset_w's length should be equal in layer {layer.name} (AMCT's words);"
            f" they are {len(scales)} and {len(offsets)}.",
        )
    # Gemm and MatMul have one (amct.md §3.2)
    channels = layer.output_channels if layer.op_type in ("Conv", "ConvTranspose") else 1
    if len(scales) not in (1, channels):
        raise value.error(
            "scale_w",
            f"scale_w's length, offset_w's length({len(scales)}) should be equal to the {channels} when channel_wise"
            f" be {channels > 1}. Cannot support to quantize {layer.name} (AMCT's words).",
        )
    return scales


def _balance(value: Body, layer: Layer) -> tuple[float, ...]:
    factors = tuple(value.message.tensor_balance_factor)
    if not factors:
        return ()
    name, rule = layer.name, ""
    if layer.weight is None:
        rule = f" is not support, please delete tensor_balance_factor of layer {name}"
    elif len(factors) != (channels := layer.input_channels):
        rule = f"'s length: {len(factors)} should be equal to the channel length of inputs of layer {name}: {channels}"
    elif not all(_EPSILON <= factor <= 1 / _EPSILON for factor in factors):
        rule = f"'s value shoule be in range[FLT_EPSILON, 1/FLT_EPSILON] in layer {name}"
    if rule:
        raise value.error("tensor_balance_factor", f"tensor_balance_factor{rule} (AMCT's words).")
    return factors


def _forced(value: Body) -> bool:
    mode = value.get("fakequant_precision_mode")
    if mode not in (None, "DEFAULT", _FORCED):
        raise value.error(
            "fakequant_precision_mode",
            f"Do not support fakequant_precision_mode {mode} in record file (AMCT's words).",
        )
    return bool(mode == _FORCED)
