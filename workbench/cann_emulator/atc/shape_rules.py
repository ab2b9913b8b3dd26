"""What shape an operator's outputs have: ONNX's own rules, read as leniently as the vendor's parser reads files.

The parser does not check a node against the version of its operator, so a file may use what only a later version
allows, as exporters do: an empty `roi` of Resize at opset 11, whole numbers in Min at opset 11.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from onnx import NodeProto, OperatorSetIdProto, TensorProto, TypeProto, checker, defs, shape_inference

from workbench.cann_emulator.atc.failure import AtcFailure, Record

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
        AtcFailure: E19999 with E10042, shapes that do not fit.
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
            raise _does_not_fit() from error
        except (ValueError, RuntimeError, checker.ValidationError):
            continue
        if (
            certain
            and node.op_type == "Reshape"
            and not _same_size(types.get(node.input[0]), found.get(node.output[0]))
        ):
            raise _does_not_fit()
        return found
    return {}


def _same_size(before: TypeProto | None, after: TypeProto | None) -> bool:
    """Whether as many elements leave as came; also where it is not known. ONNX's own rule for Reshape does not look."""
    sizes = [_size(kind) for kind in (before, after) if kind is not None]
    return len({size for size in sizes if size >= 0}) < 2


def _size(kind: TypeProto) -> int:
    dims = kind.tensor_type.shape.dim
    known = kind.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return prod(dim.dim_value for dim in dims) if known else -1


def _does_not_fit() -> AtcFailure:
    return AtcFailure(Record(code="E19999"), Record(code="E10042"))
