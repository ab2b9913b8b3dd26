"""Models with a fault planted in them, compiled by the emulated ATC with every fusion on."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.quantization.deploy_models import min_max_record
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend.lowering import atc_form
from workbench.testing.encoder import Array, ids, model_of, tiny_encoder, value

BATCH, LENGTH = 4, 8
TEXT_FEEDS = ids(BATCH, LENGTH)
IMAGE_FEEDS: dict[str, Array] = {"x": np.random.default_rng(3).standard_normal((2, 3, 8, 8)).astype(np.float32)}


def text_model(*, overflowing: bool = False) -> onnx.ModelProto:
    """The tiny encoder; what its LayerNorm reads may be beyond a half, which LayerNorm takes back."""
    proto = tiny_encoder(batch=BATCH, length=LENGTH)
    if not overflowing:
        return proto
    residual = next(node for node in proto.graph.node if node.name == "residual")
    place = list(proto.graph.node).index(residual) + 1
    result = residual.output[0]
    residual.output[0] = "small"
    proto.graph.node.insert(place, helper.make_node("Mul", ["small", "factor"], [result], name="grow"))
    proto.graph.initializer.append(numpy_helper.from_array(np.array(2.0**15, np.float32), "factor"))
    return proto


def image_model(*, overflowing: bool = False) -> onnx.ModelProto:
    """`x` [2, 3, 8, 8] → `y` [2, 5]: convolutions, of which the second may give what is beyond a half."""
    random = np.random.default_rng(5)
    factor = 2.0**13 if overflowing else 1.0
    weights: dict[str, Array] = {
        "w1": (random.standard_normal((8, 3, 3, 3)) / 5).astype(np.float32),
        "b1": random.standard_normal(8).astype(np.float32),
        "w2": (random.standard_normal((8, 8, 3, 3)) * factor).astype(np.float32),
        "b2": random.standard_normal(8).astype(np.float32),
        "w3": (random.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32),
        "b3": random.standard_normal(8).astype(np.float32),
        "back": np.array(1 / (8 * factor), np.float32),
        "w4": random.standard_normal((5, 8)).astype(np.float32),
        "b4": random.standard_normal(5).astype(np.float32),
    }
    same = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["h1"], name="conv1", **same),
        helper.make_node("Relu", ["h1"], ["r1"], name="relu1"),
        helper.make_node("Conv", ["r1", "w2", "b2"], ["h2"], name="conv2", **same),
        helper.make_node("Relu", ["h2"], ["r2"], name="relu2"),
        helper.make_node("MaxPool", ["r2"], ["m"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Mul", ["m", "back"], ["s"], name="shrink"),
        helper.make_node("Conv", ["s", "w3", "b3"], ["h3"], name="conv3", **same),
        helper.make_node("Relu", ["h3"], ["r3"], name="relu3"),
        helper.make_node("GlobalAveragePool", ["r3"], ["g"], name="mean"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["y"], name="head", transB=1),
    ]
    return model_of(nodes, weights, [value("x", [2, 3, 8, 8])], [value("y", [2, 5])])


def wrecked(record: QuantizationRecord, layer: str, factor: float, *, weights: bool) -> QuantizationRecord:
    """The record with one layer's activations, or its weights, cut off: the scale is `factor` of what it should be."""
    layers = []
    for each in record.layers:
        changed = each
        if each.layer == layer and weights:
            scales = tuple(scale * factor for scale in each.weight.scales)
            changed = replace(each, weight=replace(each.weight, scales=scales))
        elif each.layer == layer:
            known = each.activation
            ends = {"low": known.low * factor, "high": known.high * factor}
            changed = replace(each, activation=replace(known, scale=known.scale * factor, **ends))
        layers.append(changed)
    return replace(record, layers=tuple(layers))


def int8_form(
    proto: onnx.ModelProto,
    feeds: Mapping[str, Array],
    *,
    bad: str = "",
    weights: bool = False,
    skipped: Sequence[str] = (),
) -> onnx.ModelProto:
    """The deploy model for ATC, with one layer's scale wrecked, and without the layers that are skipped.

    Args:
        weights: it is the scale of its weights, not of what it reads.
    """
    record = min_max_record(proto, dict(feeds))
    kept = [each for each in record.layers if each.layer not in skipped and each.weight is not None]
    record = replace(record, layers=tuple(kept))
    if bad and bad not in skipped:
        record = wrecked(record, bad, 1 / 40, weights=weights)
    return atc_form(lower_deploy(proto, record, merge_bias=True))


def compile_om(
    proto: onnx.ModelProto,
    folder: Path,
    environment: Mapping[str, str],
    *,
    name: str = "model",
    keep: Sequence[str] = (),
) -> Path:
    """The OM of a model in force_fp16, by the atc of an environment; `keep` are lines of --keep_dtype."""
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, folder / "lowered.onnx")
    command = ["atc", "--model=lowered.onnx", "--framework=5", f"--output={name}", "--soc_version=Ascend910B3"]
    if keep:
        (folder / "keep.cfg").write_text("".join(f"{line}\n" for line in keep), encoding="utf-8")
        command.append("--keep_dtype=keep.cfg")
    done = subprocess.run(
        command, cwd=folder, env=dict(environment), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / f"{name}.om"
