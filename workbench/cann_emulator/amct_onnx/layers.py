"""The model as AMCT's functions take it: every node named, one computation in one form, its quantizable layers."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx

from workbench.graph.layers import Layer, quantizable_layers
from workbench.graph.read import load_graph, read_model
from workbench.quantization.lowering.normalize import normalized
from workbench.values.errors import WorkbenchError
from workbench.values.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatModel:
    """A model file that was read.

    Attributes:
        original: its graph with unique node names; `fused`: the same with BatchNormalization in its convolutions
            (amct.md §5).
        layers: of `fused`.
    """

    model: Model
    original: onnx.ModelProto
    fused: onnx.ModelProto
    layers: tuple[Layer, ...]


def read_float_model(model_file: str | os.PathLike[str], *, rename: bool = False) -> FloatModel:
    """Read a model file.

    Args:
        rename: give nodes without a name, or with one that is taken, another one (amct.md §1.2, `updated_model`).

    Raises:
        RuntimeError: the file is missing or no ONNX model, or nodes have no name of their own.
    """
    path = Path(os.path.realpath(model_file))
    if not path.is_file():
        raise RuntimeError(f"file {path} does not exist!")
    try:
        if not rename:
            _check_names(onnx.load(path, load_external_data=False))
        model = read_model(path)
        original = load_graph(model)
        fused = normalized(original)
        return FloatModel(model=model, original=original, fused=fused, layers=quantizable_layers(fused))
    except WorkbenchError as error:
        raise RuntimeError(f"cannot read model {path}: {error}") from error


def _check_names(proto: onnx.ModelProto) -> None:
    """amct.md §5: names must be unique and not empty. What AMCT says of others is not known [inferred]."""
    counts = Counter(node.name for node in proto.graph.node if node.op_type != "Constant")
    if counts.pop("", 0):
        raise RuntimeError("the model has nodes without a name. Please use updated_model of create_quant_config.")
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise RuntimeError(
            f"the model has more than one node named {twice[0]}. Please use updated_model of create_quant_config."
        )
