"""Preparation: the float model that a record's scales belong to: normalized, balanced, biases corrected.

proto ─► normalized ─► balanced (record: balance) ─► biases corrected (record: bias_correction) ─► lowerings
"""

from __future__ import annotations

from onnx import ModelProto

from workbench.quantization.normalize import normalized
from workbench.quantization.record import QuantizationRecord


def prepare(proto: ModelProto, record: QuantizationRecord) -> ModelProto:
    """The float model that both lowerings start from.

    Pure and deterministic. Layers keep their names; the record's activation tensors are those of this model.
    """
    return normalized(proto)
