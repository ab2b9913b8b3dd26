"""The ONNX graph at given input shapes: shapes of every tensor, and everything folded that is known beforehand.

One walk in execution order. What reads only constants is computed, a Shape of a known shape is a constant, an If of a
known condition is its branch; all other nodes stay as they are, under their own names. With open input shapes the same
walk folds what does not depend on them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, helper, numpy_helper

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.inference import (
    LARGEST,
    Array,
    Shape,
    agreed,
    attributes_of,
    constant_value,
    evaluate,
    inferred,
    largest,
    shape_of,
    shaped,
)
from workbench.cann_emulator.atc.onnx_parser import Parsed, in_order
from workbench.cann_emulator.atc.operator_types import words
from workbench.graph.nodes import names_read

__all__ = ["Constants", "Folded", "Shape", "fold"]

_SMALL = 1024
_KNOWN_TO_SHAPES = 64
_DATA_DEPENDENT = words("Compress ConcatFromSequence If NonMaxSuppression NonZero SequenceAt Unique")
"""Operators whose shapes only the data tell: the vendor compiles such a graph as one of dynamic shape."""
_SHAPED_BY_VALUES = words("""
    Col2Im ConstantOfShape Expand OneHot Pad Range Reshape Resize Slice Split Squeeze Tile TopK Unsqueeze Upsample
    """)
"""Operators whose shapes the values of an input tell, mostly a constant."""
_INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)


class Constants:
    """Tensor name → array; initializers are read when asked for."""

    def __init__(self, tensors: Mapping[str, TensorProto]) -> None:
        self._tensors = dict(tensors)
        self._arrays: dict[str, Array] = {}

    def copy(self) -> Constants:
        """The same constants, to which others can be added apart."""
        same = Constants(self._tensors)
        same._arrays = dict(self._arrays)
        return same

    def __contains__(self, name: str) -> bool:
        return name in self._arrays or name in self._tensors

    def __getitem__(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self._tensors[name])
        return self._arrays[name]

    def __setitem__(self, name: str, array: Array) -> None:
        self._arrays[name] = array

    def size(self, name: str) -> int:
        if name in self._arrays:
            return int(self._arrays[name].size)
        return int(np.prod(self._tensors[name].dims, dtype=np.int64))

    def shape(self, name: str) -> Shape:
        return tuple(self._arrays[name].shape if name in self._arrays else self._tensors[name].dims)

    def element_type(self, name: str) -> int:
        if name in self._arrays:
            return helper.np_dtype_to_tensor_dtype(self._arrays[name].dtype)
        return self._tensors[name].data_type

    def add(self, tensor: TensorProto) -> None:
        self._tensors[tensor.name] = tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """What is left of a model.

    Attributes:
        nodes: in execution order.
        shapes: of every tensor, -1 where open.
        types: element types of ONNX.
        data_dependent: some shape is known at run time only, though all inputs' shapes are fixed.
    """

    nodes: list[NodeProto]
    constants: Constants
    shapes: dict[str, Shape]
    types: dict[str, int]
    outputs: tuple[str, ...]
    data_dependent: bool


def fold(
    parsed: Parsed,
    input_shapes: Mapping[str, Shape],
    outputs: tuple[str, ...],
    *,
    fold_floats: bool = True,
    guess: bool = True,
) -> Folded:
    """Walk the model at these input shapes (-1 for an open axis).

    Args:
        outputs: tensors that must be there at the end.
        guess: an axis that only the data tell is taken as 1, so that kernels have a shape; otherwise it stays open.
        fold_floats: also compute what no shape needs, such as a transposed weight (--oo_constant_folding).

    Raises:
        AtcFailure: E19999, the vendor's inner error: shapes that do not fit, or a graph that is no graph.
    """
    walk = _Walk(parsed, input_shapes, fold_floats, guess)
    walk.run()
    return walk.finish(outputs)


class _Walk:
    def __init__(self, parsed: Parsed, input_shapes: Mapping[str, Shape], fold_floats: bool, guess: bool) -> None:
        graph = parsed.proto.graph
        self._parsed, self._fold_floats = parsed, fold_floats
        self._constants = Constants({tensor.name: tensor for tensor in graph.initializer})
        self._types: dict[str, TypeProto] = {}
        self._imports = [helper.make_opsetid("" if d == "ai.onnx" else d, v) for d, v in parsed.opsets.items()]
        self._open = not guess or any(-1 in shape for shape in input_shapes.values())
        for value in parsed.inputs:
            shape = input_shapes[value.name]
            element_type = value.type.tensor_type.elem_type
            self._types[value.name] = shaped(element_type, shape)
        self._kept: list[NodeProto] = []
        self._queue = deque(in_order(graph))
        self._data_dependent = False
        self._guessed = False

    def run(self) -> None:
        while self._queue:
            node = self._queue.popleft()
            if not self._folded(node):
                self._infer(node)
                self._kept.append(node)

    def finish(self, outputs: tuple[str, ...]) -> Folded:
        for name in outputs:
            if not self._has_type(name):
                raise failure("E19999", message=f"Nothing makes the output {name}.")
        needed = set(outputs)
        nodes = []
        for node in reversed(self._kept):
            if needed.intersection(node.output):
                nodes.append(node)
                needed.update(names_read(node))
        nodes.reverse()
        return Folded(
            nodes=nodes,
            constants=self._constants,
            shapes={name: shape_of(kind) for name, kind in self._types.items()},
            types={name: kind.tensor_type.elem_type for name, kind in self._types.items()},
            outputs=outputs,
            data_dependent=self._data_dependent,
        )

    def _folded(self, node: NodeProto) -> bool:
        """Whether the node is gone: a constant, or replaced by its branch."""
        if node.op_type == "Constant":
            value = constant_value(node)
            if value is None:
                return False
            self._constants[node.output[0]] = value
            return True
        if node.op_type in ("Shape", "Size") and self._has_type(node.input[0]):
            return self._shape_of(node)
        if node.op_type == "If" and node.input[0] in self._constants:
            self._take_branch(node)
            return True
        if not node.input or any(name and name not in self._constants for name in node.input):
            return False
        if not self._worth_folding(node):
            return False
        values = evaluate(node, [self._constants[name] if name else None for name in node.input], self._parsed.opsets)
        if values is None or any(value.dtype == object or value.size > LARGEST for value in values):
            return False
        for name, value in zip((name for name in node.output if name), values, strict=False):
            self._constants[name] = value
        return True

    def _worth_folding(self, node: NodeProto) -> bool:
        if self._fold_floats:
            return True
        sizes = [self._constants.size(name) for name in node.input if name]
        kinds = [self._constants.element_type(name) for name in node.input if name]
        return max(sizes, default=0) <= _SMALL or all(kind in _INTEGERS for kind in kinds)

    def _shape_of(self, node: NodeProto) -> bool:
        kind = self._type_of(node.input[0])
        if not kind.tensor_type.HasField("shape"):
            return False
        shape = shape_of(kind)
        if node.op_type == "Size":
            if -1 in shape:
                return False
            self._constants[node.output[0]] = np.asarray(np.prod(shape, dtype=np.int64), np.int64)
            return True
        attributes = attributes_of(node)
        part = shape[slice(attributes.get("start", 0), attributes.get("end", len(shape)))]
        if -1 in part:
            return False
        self._constants[node.output[0]] = np.asarray(part, np.int64)
        return True

    def _take_branch(self, node: NodeProto) -> None:
        attributes = attributes_of(node)
        branch = attributes["then_branch" if bool(self._constants[node.input[0]].reshape(-1)[0]) else "else_branch"]
        for tensor in branch.initializer:
            self._constants.add(tensor)
        inner = []
        for index, original in enumerate(branch.node):
            copy = NodeProto()
            copy.CopyFrom(original)
            copy.name = f"{node.name}/{original.name or f'{original.op_type}_{index}'}"
            inner.append(copy)
        for index, (name, value) in enumerate(zip(node.output, branch.output, strict=True)):
            inner.append(helper.make_node("Identity", [value.name], [name], name=f"{node.name}/output_{index}"))
        self._queue.extendleft(reversed(inner))

    def _infer(self, node: NodeProto) -> None:
        special = self._ascend_types(node)
        if special is not None:
            self._types[node.output[0]] = special
            return
        if node.op_type == "If":
            self._types.update(zip(node.output, self._branches(node), strict=True))
            return
        domain = "" if node.domain == "ai.onnx" else node.domain
        found = inferred(
            node,
            domain=domain,
            opset=self._parsed.opsets.get(domain or "ai.onnx", self._parsed.opset),
            types={name: self._type_of(name) for name in node.input if name and self._has_type(name)},
            data={
                name: numpy_helper.from_array(self._constants[name], name)
                for name in node.input
                if name in self._constants and self._constants.size(name) <= self._interesting(name)
            },
            imports=self._imports,
            ir_version=self._parsed.proto.ir_version,
            certain=not self._guessed,
        )
        for name in node.output:
            if not name:
                continue
            kind = found.get(name)
            if kind is not None and kind.HasField("sequence_type"):
                self._types[name] = kind
                continue
            if kind is None or not kind.tensor_type.HasField("shape"):
                self._unknown(node)
                return
            if not self._open and any(not dim.HasField("dim_value") for dim in kind.tensor_type.shape.dim):
                self._data_dependent = self._data_dependent or self._by_data(node)
                self._guessed = True
                most = largest(node, self._sizes(node), self._constants)
                for dim in kind.tensor_type.shape.dim:
                    if not dim.HasField("dim_value"):
                        dim.dim_value = most
            self._types[name] = kind

    def _branches(self, node: NodeProto) -> list[TypeProto]:
        """What an If gives whose condition only the data tell: the sizes that both branches agree on."""
        self._data_dependent = self._data_dependent or not self._open
        ends = []
        for attribute in node.attribute:
            inner = copy(self)
            inner._types, inner._constants = dict(self._types), self._constants.copy()
            inner._kept, inner._queue = [], deque(in_order(attribute.g, nested=True))
            for tensor in attribute.g.initializer:
                inner._constants.add(tensor)
            inner.run()
            self._guessed = self._guessed or inner._guessed
            ends.append([inner._type_of(output.name) for output in attribute.g.output])
        return [agreed(a, b, stays_open=self._open) for a, b in zip(*ends, strict=True)]

    def _by_data(self, node: NodeProto) -> bool:
        """Whether only the data tell the shape of what a node makes."""
        if node.op_type in _DATA_DEPENDENT:
            return True
        first = 0 if node.op_type in ("ConstantOfShape", "Range") else 1
        return node.op_type in _SHAPED_BY_VALUES and any(n and n not in self._constants for n in node.input[first:])

    def _interesting(self, name: str) -> int:
        """How many elements of a constant shape inference may want to see."""
        return _SMALL if self._constants.element_type(name) in _INTEGERS else _KNOWN_TO_SHAPES

    def _sizes(self, node: NodeProto) -> list[Shape]:
        return [shape_of(self._type_of(name)) for name in node.input if name and self._has_type(name)]

    def _ascend_types(self, node: NodeProto) -> TypeProto | None:
        """Operators of Ascend, and products of integers, whose types ONNX does not know."""
        if not node.input or not self._has_type(node.input[0]):
            return None
        first = self._type_of(node.input[0])
        if node.op_type in ("AscendQuant", "AscendDequant", "AscendAntiQuant"):
            return shaped(TensorProto.INT8 if node.op_type == "AscendQuant" else TensorProto.FLOAT, shape_of(first))
        if first.tensor_type.elem_type != TensorProto.INT8 or node.op_type not in (
            *("MatMul", "Gemm", "Conv", "ConvTranspose", "AveragePool"),
        ):
            return None
        types = {name: shaped(TensorProto.FLOAT, shape_of(self._type_of(name))) for name in node.input if name}
        found = inferred(
            node,
            domain="",
            opset=self._parsed.opset,
            types=types,
            data={},
            imports=self._imports,
            ir_version=self._parsed.proto.ir_version,
        )
        return shaped(TensorProto.INT32, shape_of(found[node.output[0]]))

    def _unknown(self, node: NodeProto) -> None:
        """No rule tells the shape: the file's own annotation, or one element."""
        self._guessed = True
        declared = {value.name: value.type for value in self._parsed.proto.graph.value_info}
        declared.update({value.name: value.type for value in self._parsed.proto.graph.output})
        self._data_dependent = self._data_dependent or (not self._open and self._by_data(node))
        for name in node.output:
            if not name:
                continue
            kind = declared.get(name)
            if kind is not None and kind.tensor_type.HasField("shape"):
                open_dim = -1 if self._open else 1
                shape = tuple(d.dim_value if d.HasField("dim_value") else open_dim for d in kind.tensor_type.shape.dim)
                self._types[name] = shaped(kind.tensor_type.elem_type, shape)
            else:
                first = next((self._type_of(n) for n in node.input if n and self._has_type(n)), None)
                element_type = first.tensor_type.elem_type if first is not None else TensorProto.FLOAT
                shape = shape_of(first) if first is not None else ()
                if node.op_type in ("Reshape", "Expand"):
                    shape = (-1 if self._open else 1,) * max((1, *shape_of(self._type_of(node.input[1]))))
                self._types[name] = shaped(element_type, shape)

    def _has_type(self, name: str) -> bool:
        return name in self._types or name in self._constants

    def _type_of(self, name: str) -> TypeProto:
        if name not in self._types:
            self._types[name] = shaped(self._constants.element_type(name), self._constants.shape(name))
        return self._types[name]
