"""Ranking of layers for the accuracy search: each alone, float against fake-quantized (amct.md §8.3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper

from workbench.cann_emulator.amct_onnx.fake_quant import fake_quant_model
from workbench.cann_emulator.amct_onnx.forwards import DUMP_INDEX
from workbench.cann_emulator.amct_onnx.layers import FloatModel
from workbench.graph.layers import Layer
from workbench.graph.read import constants
from workbench.quantization.amct.record_file import parse_record
from workbench.quantization.lowering.deploy import lower_deploy

_Floats = npt.NDArray[np.float32]


def ranking(model: FloatModel, record_text: str, dump_dir: Path) -> list[tuple[str, float]]:
    """(layer, similarity) of every recorded layer, the most sensitive first; ties in graph order.

    Args:
        dump_dir: where the modified model's DUMP nodes left the layers' inputs.
    """
    record = parse_record(record_text, layers=model.layers, model_sha256=model.model.sha256)
    layers = {layer.name: layer for layer in model.layers}
    index: dict[str, list[str]] = json.loads((dump_dir / DUMP_INDEX).read_text(encoding="utf-8"))
    found = []
    for recorded in record.layers:
        layer = layers[recorded.layer]
        alone = _alone(model.fused, layer)
        deploy = lower_deploy(alone, replace(record, layers=(recorded,)))
        quantized = fake_quant_model(deploy, force_fp16=record.force_fp16)
        plain_session, quantized_session = _session(alone), _session(quantized)
        inputs = [tensor for tensor in (layer.activation, layer.second) if tensor is not None]
        similarities = []
        for files in zip(*(index[tensor] for tensor in inputs), strict=True):
            feeds = {t: np.load(dump_dir / file, allow_pickle=False) for t, file in zip(inputs, files, strict=True)}
            expected, given = plain_session.run(None, feeds)[0], quantized_session.run(None, feeds)[0]
            similarities.append(similarity(expected, given))
        found.append((layer.name, float(np.mean(similarities))))
    return sorted(found, key=lambda each: each[1])


def similarity(expected: _Floats, given: _Floats) -> float:
    """0.5 + 0.5·cosine; 1 where the float output is all zero, 0 where only the quantized one is."""
    a, b = expected.astype(np.float64).ravel(), given.astype(np.float64).ravel()
    if not a.any():
        return 1.0
    if not b.any():
        return 0.0
    return 0.5 + 0.5 * float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def _alone(proto: onnx.ModelProto, layer: Layer) -> onnx.ModelProto:
    """A model of one layer, with its constants."""
    node = next(node for node in proto.graph.node if node.name == layer.name)
    known: Mapping[str, TensorProto] = constants(proto)
    stored = []
    for name in node.input:
        if name in known:
            tensor = TensorProto()
            tensor.CopyFrom(known[name])
            tensor.name = name
            stored.append(tensor)
    fed = [name for name in dict.fromkeys(node.input) if name and name not in known]
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in fed],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)],
        stored,
    )
    return helper.make_model(graph, opset_imports=list(proto.opset_import), ir_version=proto.ir_version)


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
