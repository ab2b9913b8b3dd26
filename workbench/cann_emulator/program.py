"""A graph with its constants beside it: weights of a hundred megabytes are passed on, not serialized and parsed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, OperatorSetIdProto, TensorProto, ValueInfoProto, helper, numpy_helper

from workbench.quantization.lowering.surgery import names_read

Array = npt.NDArray[Any]
_INLINE_BYTES = 1024
"""Smaller constants stay in the graph: shape computations and optimizers look at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Nodes in order; `constants` holds every tensor that no node and no input gives."""

    nodes: tuple[NodeProto, ...]
    constants: Mapping[str, Array]
    inputs: tuple[ValueInfoProto, ...]
    outputs: tuple[ValueInfoProto, ...]
    opsets: tuple[OperatorSetIdProto, ...]
    ir_version: int

    def proto(self) -> ModelProto:
        """As one model."""
        read = self._read()
        return self._model([numpy_helper.from_array(v, k) for k, v in self.constants.items() if k in read])

    def skeleton(self) -> tuple[ModelProto, dict[str, Array]]:
        """The model with large constants named as external, and those constants."""
        read = self._read()
        inside, outside = [], {}
        for name, values in self.constants.items():
            if name not in read:
                continue
            if values.nbytes <= _INLINE_BYTES:
                inside.append(numpy_helper.from_array(values, name))
                continue
            outside[name] = values
            tensor = TensorProto(name=name, dims=values.shape, data_type=helper.np_dtype_to_tensor_dtype(values.dtype))
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="memory")
            inside.append(tensor)
        return self._model(inside), outside

    def digest(self) -> bytes:
        """Equal for programs of one offline model that compute the same: a constant's name tells its values there."""
        return hashlib.sha256(self.skeleton()[0].SerializeToString(deterministic=True)).digest()

    def _read(self) -> set[str]:
        return {name for node in self.nodes for name in names_read(node)} | {value.name for value in self.outputs}

    def _model(self, initializers: list[TensorProto]) -> ModelProto:
        graph = helper.make_graph(list(self.nodes), "program", list(self.inputs), list(self.outputs), initializers)
        return helper.make_model(graph, opset_imports=list(self.opsets), ir_version=self.ir_version)


def scalar(value: float) -> npt.NDArray[np.float32]:
    return np.asarray(value, np.float32)
