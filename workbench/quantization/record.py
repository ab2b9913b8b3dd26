"""QuantizationRecord: scales and zero points of every quantized layer, and where they came from.

The record is a waist: native engine and vendor tools produce it, the QDQ and the Ascend lowering consume it. Zero
points are in the signed int8 domain (AMCT's `offset_d`); a lowering that wants uint8 adds 128, which gives the same
integers shifted (reference: amct.md §7).

    q = clip(round_half_even(x / scale) + zero_point, -128, 127)        x' = (q - zero_point) * scale
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workbench.values.documents.canonical import decode, digest, encode
from workbench.values.system.files import write_json_atomically

Range = tuple[float, float]
"""A clip range, low <= 0 <= high."""

SMALLEST_SCALE = 1.1920929e-7
"""float32 epsilon; a smaller scale becomes 1.0, since the tensor is as good as constant zero (amct.md §4)."""

_SMALLEST_NORMAL_HALF = 2.0**-14
_LARGEST_HALF = 65504.0
_LARGEST_SINGLE = float(np.finfo(np.float32).max)


def int8_parameters(low: float, high: float, *, symmetric: bool) -> tuple[float, int]:
    """Scale (a float32 value) and zero point for a clip range; AMCT's rule (amct.md §4.1).

    Asymmetric: scale = (high - low) / 255, zero point = round(-128 - low / scale). Symmetric: the larger side B over
    127, or over 128 where it is the negative one, zero point 0. A range of (nearly) nothing gets scale 1. Every step
    is rounded to float32, as AMCT computes it.
    """
    low, high = float(np.float32(low)), float(np.float32(high))
    if symmetric:
        scale = float(np.float32(-low / 128 if -low > high else high / 127))
        return (scale, 0) if scale >= SMALLEST_SCALE else (1.0, 0)
    span = high - low  # where it alone is too large for float32 it is left alone
    scale = float(np.float32((float(np.float32(span)) if span <= _LARGEST_SINGLE else span) / 255))
    if scale < SMALLEST_SCALE:
        return 1.0, -128
    zero_point = round(float(np.float32(-128 - float(np.float32(low / scale)))))
    return scale, min(max(zero_point, -128), 127)


def as_half(scale: float) -> float:
    """A scale under AMCT's FORCE_FP16_QUANT: rounded to float16 (amct.md §4.7).

    Outside float16's normal range, the square of the rounded square root.
    """
    if _SMALLEST_NORMAL_HALF <= scale <= _LARGEST_HALF:
        return float(np.float16(scale))
    root = float(np.float16(math.sqrt(scale)))
    return float(np.float32(root * root))


def _check_scale(scale: float, where: str) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"{where}: scale {scale!r} is not a positive finite number")


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationScale:
    """Per-tensor INT8 parameters of one activation.

    Attributes:
        low, high: the clip range the scale was derived from, low <= 0 <= high.
    """

    tensor: str
    scale: float
    zero_point: int
    low: float
    high: float

    def __post_init__(self) -> None:
        _check_scale(self.scale, self.tensor)
        if not -128 <= self.zero_point <= 127:
            raise ValueError(f"{self.tensor}: zero point {self.zero_point} is outside [-128, 127]")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightScale:
    """Symmetric INT8 parameters of a constant weight (zero point 0).

    Attributes:
        scales: one value, or one per output channel.
        axis: the weight's output-channel axis when there is one scale per channel, else None.
        rounding: learned rounding (AdaRound): base64 of `np.packbits` of q - floor(w / scale), C order, each 0 or 1;
            None rounds half to even.
    """

    scales: tuple[float, ...]
    axis: int | None
    rounding: str | None = None

    def __post_init__(self) -> None:
        if not self.scales or (self.axis is None and len(self.scales) != 1):
            raise ValueError(f"{len(self.scales)} weight scales without a channel axis")
        for scale in self.scales:
            _check_scale(scale, "weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRecord:
    """One quantized layer: by a constant `weight`, or of two activations (`second`); AveragePool has neither.

    Attributes:
        layer: the ONNX node's name, unique in the model.
        activation: of the first input, in the model that `prepare` gives: balanced, where the layer is.
        output: scale of the layer's own output, only where the lowering needs one (Conv).
        balance: factor s per input channel: activations are divided by s, weights multiplied (DMQ's
            `tensor_balance_factor`); None where the layer is not balanced.
        bias_correction: float32 values that are added to the bias, per output channel.
    """

    layer: str
    op_type: str
    activation: ActivationScale
    weight: WeightScale | None = None
    second: ActivationScale | None = None
    output: ActivationScale | None = None
    balance: tuple[float, ...] | None = None
    bias_correction: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.op_type == "AveragePool":
            if self.weight is not None or self.second is not None:
                raise ValueError(f"{self.layer}: AveragePool has neither a weight nor a second activation")
        elif (self.weight is None) == (self.second is None):
            raise ValueError(f"{self.layer}: needs either a weight or a second activation")
        for factor in self.balance or ():
            _check_scale(factor, f"{self.layer}: balance factor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What made a record.

    Attributes:
        engine: 'native', 'amct', or 'amct-file'.
        recipe: the settings, as plain scalars.
        statistics: digest of the Statistics it was derived from, None for a foreign record.
        code_revision: digest of the source of the deriving modules.
    """

    engine: str
    recipe: Mapping[str, str | int | float | bool | None]
    statistics: str | None
    code_revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationRecord:
    """Scales of all quantized layers of one model; layers not listed stay float.

    Attributes:
        layers: in graph order.
        float_layers: quantizable layers left in float on purpose, most sensitive first.
        fold_balance: balance factors go into the layer before where that is possible (native engine); False puts a
            Mul before every balanced layer, as AMCT does.
        force_fp16: AMCT's FORCE_FP16_QUANT: dequantization factors lose their low 13 bits (amct.md §4.7).
    """

    model_sha256: str
    layers: tuple[LayerRecord, ...]
    float_layers: tuple[str, ...]
    provenance: Provenance
    fold_balance: bool = True
    force_fp16: bool = False

    def __post_init__(self) -> None:
        names = [layer.layer for layer in self.layers]
        if len(set(names)) != len(names):
            raise ValueError("a layer is recorded twice")

    @property
    def follows_amct(self) -> bool:
        """Whether it was made by AMCT, read from its file, or made by its procedure: lowered to AMCT's arithmetic."""
        return self.provenance.engine != "native" or self.provenance.recipe.get("procedure") == "amct"

    @property
    def digest(self) -> str:
        """64 hex digits over the whole record, provenance included."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return {"version": 1, **encode(self)}


def record_from_json(data: dict[str, Any]) -> QuantizationRecord:
    """Rebuild a record from `to_json`.

    Raises:
        ValueError: unknown version, or a field that does not fit (with its path).
    """
    body = dict(data)
    version = body.pop("version", None)
    if version != 1:
        raise ValueError(f"quantization record version {version!r} is unknown; this workbench reads version 1")
    return decode(QuantizationRecord, body, "record")


def write_record(record: QuantizationRecord, path: Path) -> None:
    """Raises ToolchainError where the disk cannot be written."""
    write_json_atomically(path, record.to_json())


def read_record(path: Path) -> QuantizationRecord:
    """Raises ValueError as `record_from_json` does."""
    return record_from_json(json.loads(path.read_text(encoding="utf-8")))
