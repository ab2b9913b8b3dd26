"""The ONNX graph at given input shapes: shapes of every tensor, and everything folded that is known beforehand.

One walk in execution order. What reads only constants is computed by ONNX's reference implementation, a Shape of a
known shape is a constant, an If of a known condition is its branch; all other nodes stay as they are, under their own
names. With open input shapes the same walk folds what does not depend on them.

Shapes follow ONNX's own rules, read as leniently as the vendor's parser reads files: it does not check a node against
the version of its operator, so a file may use what only a later version allows, as exporters do: an empty `roi` of
Resize at opset 11, whole numbers in Min at opset 11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, checker, defs, helper, numpy_helper, shape_inference

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.onnx_parser import Parsed, in_order
from workbench.cann_emulator.atc.operator_types import words
from workbench.cann_emulator.atc.shapes import Shape
from workbench.graph.nodes import attributes_of, constant_tensor, names_read

Array = npt.NDArray[Any]
Constants = dict[str, Array]

_LARGEST = 1 << 26
"""Elements of a result; what would be larger is left to the device."""
_SMALL, _KNOWN_TO_SHAPES = 1024, 64
"""Elements of a constant, of whole numbers and of others, whose values shape inference may want to see."""
_INTEGERS = (TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL)
_LATER = (12, 13, 14, 15, 16, 18)
"""Opsets in which operators came to take more than before."""
_NEVER = words("""
    AscendQuant AscendDequant AscendAntiQuant RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial
    Bernoulli Loop Scan If
    """)
_OF_INTEGERS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "AveragePool"})


def element_type(array: Array) -> int:
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def shape_of(kind: TypeProto) -> Shape:
    """A tensor's shape, -1 where it is open."""
    return tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.tensor_type.shape.dim)


def _shaped(number: int, shape: Sequence[int]) -> TypeProto:
    return helper.make_tensor_type_proto(number, [None if dim < 0 else dim for dim in shape])


class Folded:
    """What is left of a model at some input shapes.

    Attributes:
        nodes: in execution order.
        shapes: of every tensor, -1 where open.
        types: element types of ONNX.
        data_dependent: some shape is known at run time only, though all inputs' shapes are fixed: the vendor compiles
            such a graph as one of dynamic shape.

    Args:
        weights: the graph's initializers.
        input_shapes: -1 for an open axis.
        outputs: tensors that must be there at the end.
        fold_floats: also compute what no shape needs, such as a transposed weight (--oo_constant_folding).
        guess: an axis that only the data tell is taken as large as it can be, so that kernels have a shape; otherwise
            it stays open.
    """

    def __init__(
        self,
        parsed: Parsed,
        weights: Mapping[str, Array],
        input_shapes: Mapping[str, Shape],
        outputs: tuple[str, ...],
        *,
        fold_floats: bool = True,
        guess: bool = True,
    ) -> None:
        self._parsed, self._fold_floats, self.outputs = parsed, fold_floats, outputs
        self.constants = dict(weights)
        self._kinds = {v.name: _shaped(v.type.tensor_type.elem_type, input_shapes[v.name]) for v in parsed.inputs}
        graph = parsed.proto.graph
        self._declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        self._imports = [helper.make_opsetid("" if d == "ai.onnx" else d, v) for d, v in parsed.opsets.items()]
        self._open = not guess or any(-1 in shape for shape in input_shapes.values())
        self.data_dependent = self._guessed = False
        kept: list[NodeProto] = []
        self._queue = deque(in_order(graph))
        while self._queue:
            node = self._queue.popleft()
            if not self._folded(node):
                self._infer(node)
                kept.append(node)
        for name in outputs:
            if name not in self._kinds and name not in self.constants:
                raise failure("E19999", message=f"Nothing makes the output {name}.")
        needed = set(outputs)
        self.nodes: list[NodeProto] = []
        for node in reversed(kept):
            if needed.intersection(node.output):
                self.nodes.append(node)
                needed.update(names_read(node))
        self.nodes.reverse()
        self.shapes = {name: shape_of(kind) for name, kind in self._kinds.items()}
        self.types = {name: int(kind.tensor_type.elem_type) for name, kind in self._kinds.items()}
        del self._kinds, self._declared  # a model has one of these for each gear

    # --- what is known beforehand ---

    def _folded(self, node: NodeProto) -> bool:
        """Whether the node is gone: a constant, or replaced by its branch."""
        values: list[Array] | None = None
        if node.op_type == "Constant":
            tensor = constant_tensor(node)
            values = [numpy_helper.to_array(tensor)] if tensor is not None else None
        elif node.op_type in ("Shape", "Size") and (kind := self._type_of(node.input[0])) is not None:
            values = _size(node, kind)
        elif node.op_type == "If":
            self._take_branch(node)
            return True
        elif node.input and all(not name or name in self.constants for name in node.input):
            read = [self.constants[name] for name in node.input if name]
            small = max((array.size for array in read), default=0) <= _SMALL
            if self._fold_floats or small or all(element_type(array) in _INTEGERS for array in read):
                values = self._evaluated(node)
        if values is None or any(value.dtype == object or value.size > _LARGEST for value in values):
            return False
        self.constants.update(zip((name for name in node.output if name), values, strict=False))
        return True

    def _evaluated(self, node: NodeProto) -> list[Array] | None:
        """A node's outputs; None where it cannot or should not be computed beforehand."""
        if node.op_type in _NEVER:
            return None
        feeds = {name: self.constants[name] for name in node.input if name}
        if node.op_type in ("ConstantOfShape", "Expand") and np.prod(feeds[node.input[-1]]) > _LARGEST:
            return None
        # imported late: most models need none of it
        from onnx.reference import ReferenceEvaluator

        given = [helper.make_tensor_value_info(n, element_type(a), a.shape) for n, a in feeds.items()]
        made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        try:
            graph = helper.make_graph([node], "constant", given, made)
            model = helper.make_model(graph, opset_imports=self._imports)
            results = ReferenceEvaluator(model).run(None, feeds)
        except (ValueError, TypeError, IndexError, KeyError, NotImplementedError, RuntimeError, MemoryError):
            return None  # a node that has no value, such as a reshape that does not fit: shape inference reports it
        return [np.asarray(result) for result in results] if isinstance(results, list) else None

    def _take_branch(self, node: NodeProto) -> None:
        if node.input[0] not in self.constants:
            reason = f"this atc is emulated and compiles no If whose condition only the data tell ({node.name})"
            raise failure("E10055", reason=reason)
        chosen = "then_branch" if bool(self.constants[node.input[0]].reshape(-1)[0]) else "else_branch"
        branch = GraphProto()  # a copy: every gear walks the model
        branch.CopyFrom(helper.get_node_attr_value(node, chosen))
        self.constants.update((tensor.name, numpy_helper.to_array(tensor)) for tensor in branch.initializer)
        inner = list(branch.node)
        for index, each in enumerate(inner):
            each.name = f"{node.name}/{each.name or f'{each.op_type}_{index}'}"
        for index, (name, value) in enumerate(zip(node.output, branch.output, strict=True)):
            inner.append(helper.make_node("Identity", [value.name], [name], name=f"{node.name}/output_{index}"))
        self._queue.extendleft(reversed(inner))

    # --- shapes ---

    def _type_of(self, name: str) -> TypeProto | None:
        if name not in self._kinds and name in self.constants:
            self._kinds[name] = _shaped(element_type(self.constants[name]), self.constants[name].shape)
        return self._kinds.get(name)

    def _infer(self, node: NodeProto) -> None:
        types = {name: kind for name in node.input if name and (kind := self._type_of(name)) is not None}
        first = types.get(node.input[0]) if node.input else None
        if first is not None and node.op_type in ("AscendQuant", "AscendDequant", "AscendAntiQuant"):
            number = TensorProto.INT8 if node.op_type == "AscendQuant" else TensorProto.FLOAT
            self._kinds[node.output[0]] = _shaped(number, shape_of(first))
            return
        if first is not None and node.op_type in _OF_INTEGERS and first.tensor_type.elem_type == TensorProto.INT8:
            # ONNX knows no such products
            floats = {name: _shaped(TensorProto.FLOAT, shape_of(kind)) for name, kind in types.items()}
            product = (self._by_rule(node, floats) or {})[node.output[0]]
            self._kinds[node.output[0]] = _shaped(TensorProto.INT32, shape_of(product))
            return
        found = self._by_rule(node, types)
        for name in filter(None, node.output):
            kind = (found or {}).get(name)
            shape = shape_of(kind) if kind is not None and kind.tensor_type.HasField("shape") else None
            whole = shape is not None and (self._open or -1 not in shape)
            if kind is not None and (whole or kind.HasField("sequence_type")):
                self._kinds[name] = kind
                continue
            # where no rule knows the operator at all it is none whose shapes the data tell
            self.data_dependent = self.data_dependent or (not self._open and found is not None)
            self._guessed = True
            if kind is not None and shape is not None:
                most = self._most(node, [shape_of(read) for read in types.values()])
                self._kinds[name] = _shaped(kind.tensor_type.elem_type, [most if d < 0 else d for d in shape])
            else:
                self._kinds[name] = self._guess(node, name, list(types.values()))

    def _by_rule(self, node: NodeProto, types: Mapping[str, TypeProto]) -> dict[str, TypeProto] | None:
        """Output name → type, of those outputs that ONNX's rule tells; None where there is no rule."""
        known = {name: self.constants[name] for name in node.input if name in self.constants}
        limits = {name: _SMALL if element_type(a) in _INTEGERS else _KNOWN_TO_SHAPES for name, a in known.items()}
        data = {name: numpy_helper.from_array(a, name) for name, a in known.items() if a.size <= limits[name]}
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self._parsed.opsets.get(domain or "ai.onnx", self._parsed.opsets.get("ai.onnx", 0))
        ir_version, has_rule = self._parsed.proto.ir_version, False
        for version in (opset, *(later for later in _LATER if later > opset and not domain)):
            try:
                schema = defs.get_schema(node.op_type, version, domain)
                has_rule = True
                found: dict[str, TypeProto] = shape_inference.infer_node_outputs(
                    schema, node, dict(types), data, opset_imports=self._imports, ir_version=ir_version
                )
            except shape_inference.InferenceError as error:
                if self._guessed:
                    return {}
                raise _does_not_fit(node) from error
            except (defs.SchemaError, ValueError, RuntimeError, checker.ValidationError):
                continue
            if node.op_type == "Reshape" and not self._guessed:
                ends = [kind for kind in (types.get(node.input[0]), found.get(node.output[0])) if kind is not None]
                sizes = {prod(shape_of(k)) for k in ends if k.tensor_type.HasField("shape") and -1 not in shape_of(k)}
                if len(sizes) > 1:  # ONNX's own rule does not look
                    raise _does_not_fit(node)
            return found
        return {} if has_rule else None

    def _guess(self, node: NodeProto, name: str, reads: Sequence[TypeProto]) -> TypeProto:
        """Where no rule tells the shape: the file's own annotation, the first input's, or one element."""
        open_dim = -1 if self._open else 1
        declared = self._declared.get(name)
        if declared is not None and declared.tensor_type.HasField("shape"):
            return _shaped(declared.tensor_type.elem_type, [open_dim if d < 0 else d for d in shape_of(declared)])
        if not reads:
            return _shaped(TensorProto.FLOAT, ())
        shape = shape_of(reads[0])
        if node.op_type in ("Reshape", "Expand"):
            shape = (open_dim,) * max((1, *shape_of(reads[1])))
        return _shaped(reads[0].tensor_type.elem_type, shape)

    def _most(self, node: NodeProto, sizes: Sequence[Shape]) -> int:
        """[emulated] What kernels are modelled at where only the data tell how many there are: as many as can be."""
        if node.op_type == "NonMaxSuppression" and len(sizes[1]) == 3:
            batch, classes, boxes = sizes[1]
            limit = self.constants.get(node.input[2]) if len(node.input) > 2 else None
            most = boxes if limit is None else int(limit.reshape(-1)[0])
            return max(batch * classes * min(boxes, most), 1)
        return max(prod(sizes[0]), 1) if node.op_type in ("NonZero", "Compress", "Unique") else 1


def _size(node: NodeProto, kind: TypeProto) -> list[Array] | None:
    """Of a Shape or Size; None where it is not known."""
    if not kind.tensor_type.HasField("shape"):
        return None
    shape = shape_of(kind)
    if node.op_type == "Shape":
        attributes = attributes_of(node)
        shape = shape[slice(attributes.get("start", 0), attributes.get("end", len(shape)))]
    if -1 in shape:
        return None
    return [np.asarray(shape if node.op_type == "Shape" else prod(shape), np.int64)]


def _does_not_fit(node: NodeProto) -> AtcFailure:
    return failure("E19999", message=f"The shapes that {node.name} of type {node.op_type} reads do not fit.")
