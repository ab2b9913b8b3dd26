"""What is known of a node beforehand: its values, where it reads only constants, and the shapes of its outputs.

Values are those of ONNX's reference implementation. Shapes follow ONNX's own rules, read as leniently as the vendor's
parser reads files: it does not check a node against the version of its operator, so a file may use what only a later
version allows, as exporters do: an empty `roi` of Resize at opset 11, whole numbers in Min at opset 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import (
    AttributeProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    TypeProto,
    checker,
    defs,
    helper,
    numpy_helper,
    shape_inference,
)

from workbench.cann_emulator.atc.failure import AtcFailure, failure
from workbench.cann_emulator.atc.operator_types import words

if TYPE_CHECKING:
    from workbench.cann_emulator.atc.folding import Constants

Array = npt.NDArray[Any]

LARGEST = 1 << 26
"""Elements of a result; what would be larger is left to the device."""

_NEVER = words("""
    AscendQuant AscendDequant AscendAntiQuant RandomNormal RandomNormalLike RandomUniform RandomUniformLike Multinomial
    Bernoulli Loop Scan If
    """)


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Attribute name → value; text as str."""
    found = {}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        found[attribute.name] = value.decode() if attribute.type == AttributeProto.STRING else value
    return found


def constant_value(node: NodeProto) -> Array | None:
    """Of a Constant node; None for forms that are no plain tensor."""
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return numpy_helper.to_array(value)
        if attribute.name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if attribute.name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    return None


def evaluate(node: NodeProto, inputs: Sequence[Array | None], opsets: Mapping[str, int]) -> list[Array] | None:
    """A node's outputs; None where it cannot or should not be computed beforehand."""
    if node.op_type in _NEVER or any(a.g.node or a.graphs for a in node.attribute):
        return None
    shape = inputs[-1]
    if node.op_type in ("ConstantOfShape", "Expand") and shape is not None and np.prod(shape) > LARGEST:
        return None
    # imported late: most models need none of it
    from onnx.reference import ReferenceEvaluator

    feeds = {name: array for name, array in zip(node.input, inputs, strict=True) if array is not None}
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    imports = [helper.make_opsetid("" if domain == "ai.onnx" else domain, v) for domain, v in opsets.items()]
    try:
        model = helper.make_model(helper.make_graph([node], "constant", given, made), opset_imports=imports)
        results = ReferenceEvaluator(model).run(None, feeds)
    except (ValueError, TypeError, IndexError, KeyError, NotImplementedError, RuntimeError, MemoryError):
        return None  # a node that has no value, such as a reshape that does not fit: shape inference reports it
    return [np.asarray(result) for result in results] if isinstance(results, list) else None


# --- shapes ---

Shape = tuple[int, ...]


_LATER = (12, 13, 14, 15, 16, 18)
"""Opsets in which operators came to take more than before."""


def inferred(
    node: NodeProto,
    *,
    domain: str,
    opset: int,
    types: Mapping[str, TypeProto],
    data: Mapping[str, TensorProto],
    imports: Sequence[OperatorSetIdProto],
    ir_version: int,
    certain: bool = True,
) -> dict[str, TypeProto]:
    """Output name → type, of those outputs that a rule tells.

    Args:
        types: of the inputs that are known.
        data: values of the inputs that are constants.
        certain: the shapes are no guesses, so that one that does not fit is the model's fault.

    Raises:
        AtcFailure: E19999, shapes that do not fit.
    """
    for version in (opset, *(later for later in _LATER if later > opset and not domain)):
        try:
            schema = defs.get_schema(node.op_type, version, domain)
        except defs.SchemaError:
            continue
        try:
            found: dict[str, TypeProto] = shape_inference.infer_node_outputs(
                schema, node, dict(types), dict(data), opset_imports=list(imports), ir_version=ir_version
            )
        except shape_inference.InferenceError as error:
            if not certain:
                return {}
            raise _does_not_fit(node) from error
        except (ValueError, RuntimeError, checker.ValidationError):
            continue
        if (
            certain
            and node.op_type == "Reshape"
            and not _same_size(types.get(node.input[0]), found.get(node.output[0]))
        ):
            raise _does_not_fit(node)
        return found
    return {}


def shaped(element_type: int, shape: Shape) -> TypeProto:
    """A tensor's type; -1 is an open axis."""
    return helper.make_tensor_type_proto(element_type, [None if dim < 0 else dim for dim in shape])


def shape_of(kind: TypeProto) -> Shape:
    """A tensor's shape, -1 where it is open."""
    return tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.tensor_type.shape.dim)


def agreed(a: TypeProto, b: TypeProto, *, stays_open: bool) -> TypeProto:
    """What two branches give: where sizes differ an open axis, or the larger. Of two ranks the first's counts."""
    one, other = shape_of(a), shape_of(b)
    if len(one) != len(other):
        return a
    sizes = tuple(x if x == y else -1 if stays_open else max(x, y) for x, y in zip(one, other, strict=True))
    return shaped(a.tensor_type.elem_type, sizes)


def largest(node: NodeProto, sizes: Sequence[Shape], constants: Constants) -> int:
    """[emulated] What kernels are modelled at where only the data tell how many there are: as many as can be.

    Args:
        sizes: of the node's inputs.
    """
    if node.op_type == "NonMaxSuppression" and len(sizes[1]) == 3:
        batch, classes, boxes = sizes[1]
        limit = node.input[2] if len(node.input) > 2 else ""
        most = int(constants[limit].reshape(-1)[0]) if limit in constants else boxes
        return max(batch * classes * min(boxes, most), 1)
    if node.op_type in ("NonZero", "Compress", "Unique"):
        return max(prod(sizes[0]), 1)
    return 1


def _same_size(before: TypeProto | None, after: TypeProto | None) -> bool:
    """Whether as many elements leave as came; also where it is not known. ONNX's own rule for Reshape does not look."""
    sizes = [_size(kind) for kind in (before, after) if kind is not None]
    return len({size for size in sizes if size >= 0}) < 2


def _size(kind: TypeProto) -> int:
    dims = kind.tensor_type.shape.dim
    known = kind.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return prod(dim.dim_value for dim in dims) if known else -1


def _does_not_fit(node: NodeProto) -> AtcFailure:
    return failure("E19999", message=f"The shapes that {node.name} of type {node.op_type} reads do not fit.")
