"""Compiles of small models with the emulated atc, from Python."""

import contextlib
import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import NodeProto, helper

from workbench.cann_emulator.atc.conversion import run_compile
from workbench.cann_emulator.atc.failure import AtcFailure, Console
from workbench.cann_emulator.om import OfflineModel, load_om
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.testing.encoder import ids, model_of, record_for, tiny_encoder, value

Array = npt.NDArray[Any]

BATCH, LENGTH = 2, 16
STATIC = f"ids:{BATCH},{LENGTH}"


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> NodeProto:
    """A '-' stands for an input or output that is left out."""
    names = [["" if name == "-" else name for name in part.split()] for part in (inputs, outputs)]
    return helper.make_node(op_type, *names, name=f"{op_type}_{outputs.split()[-1]}", **attributes)


def compiled(model: Path, /, **flags: str) -> OfflineModel:
    """The OM of a model, which stays beside it; its name may have the suffix of dynamic shapes."""
    for old in model.parent.glob("*.om"):
        old.unlink()
    with contextlib.chdir(model.parent):  # where a compile leaves its side files
        chip = {"framework": "5", "soc_version": "Ascend910B3", "output": str(model.with_suffix(""))}
        run_compile({"model": str(model), **chip, **flags}, Console())
    (om,) = model.parent.glob("*.om")
    return load_om(om)


def built(proto: onnx.ModelProto, **flags: str) -> OfflineModel:
    """The OM of a model in memory; in its own types where no flag says otherwise."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(proto, f"{folder}/model.onnx")
        return compiled(Path(folder, "model.onnx"), **{"precision_mode": "must_keep_origin_dtype", **flags})


def mlp(*sizes: int, batch: int = 4, seed: int = 0, spread: float = 1.0) -> onnx.ModelProto:
    """`x` float32 [batch, sizes[0]] → `y`: linear layers with Relu between; nodes matmul{i}, add{i}, relu{i}."""
    random = np.random.default_rng(seed)
    nodes, weights, x = [], {}, "x"
    for index, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        last = index == len(sizes) - 2
        weights[f"w{index}"] = (random.standard_normal((inputs, outputs)) * spread).astype(np.float32)
        weights[f"b{index}"] = random.standard_normal(outputs).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [x, f"w{index}"], [f"p{index}"], name=f"matmul{index}"))
        target = "y" if last else f"s{index}"
        nodes.append(helper.make_node("Add", [f"p{index}", f"b{index}"], [target], name=f"add{index}"))
        if not last:
            nodes.append(helper.make_node("Relu", [f"s{index}"], [f"r{index}"], name=f"relu{index}"))
            x = f"r{index}"
    return model_of(nodes, weights, [value("x", [batch, sizes[0]])], [value("y", [batch, sizes[-1]])], 16)


def codes_of(model: Path, /, **flags: str) -> list[str]:
    """Codes of a conversion's failure."""
    with pytest.raises(AtcFailure) as caught:
        compiled(model, **flags)
    return [record.code for record in caught.value.records]


def encoder(folder: Path) -> Path:
    """The tiny encoder: LayerNorm and Gelu decomposed, biases on the left as exporters write them."""
    onnx.save(tiny_encoder(), folder / "encoder.onnx")
    return folder / "encoder.onnx"


def quantized_encoder(folder: Path, *, products: bool = False) -> Path:
    """Its deploy model."""
    path = encoder(folder)
    record = record_for(path, ids(BATCH, LENGTH), symmetric=products, products=products)
    onnx.save(lower_deploy(load_graph(read_model(path)), record, merge_bias=True), folder / "deploy.onnx")
    return folder / "deploy.onnx"
