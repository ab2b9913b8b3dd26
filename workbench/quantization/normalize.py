"""Normalization: one shape for the same computation, however an exporter wrote it, before layers are looked for."""

from __future__ import annotations

from onnx import ModelProto


def normalized(proto: ModelProto) -> ModelProto:
    """The model in the form that the quantization modules expect.

    Pure and deterministic. Nothing is rewritten yet; the very same object comes back.
    """
    return proto
