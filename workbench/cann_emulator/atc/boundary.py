"""The model's inputs and outputs as the device sees them: which, and in which dtype."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnx import NodeProto

from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.lowering import dtype_of
from workbench.cann_emulator.atc.onnx_parser import Parsed
from workbench.cann_emulator.atc.output_flags import parse_out_nodes, parse_output_type
from workbench.cann_emulator.om import Dtype

_OUTPUT_DTYPES: Mapping[str, Dtype] = {"FP32": "float32", "FP16": "float16", "UINT8": "uint8", "INT8": "int8"}
_FORMATS: Mapping[tuple[str, int], int] = {("NCHW", 4): 0, ("NHWC", 4): 1, ("NCDHW", 5): 30}
_ND = 2


def output_tensors(parsed: Parsed, options: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(ONNX tensor, name that acl gives it) of every output: the model's own, or those of --out_nodes.

    Raises:
        AtcFailure: E10016 (no such node), E10003 (it has fewer outputs), E19999 (no such tensor).
    """
    makers = {name: (node, i) for node in parsed.proto.graph.node for i, name in enumerate(node.output) if name}
    wanted = parse_out_nodes(options.get("out_nodes", ""))
    if not wanted:
        names = [value.name for value in parsed.proto.graph.output]
        return tuple((name, _acl_name(name, makers)) for name in names)
    nodes = {node.name: node for node in parsed.proto.graph.node}
    found = []
    for name, index in wanted:
        if index is None:
            if name not in makers:
                raise failure("E19999")
            found.append(name)
            continue
        if name not in nodes:
            raise failure("E10016", opname=name, parameter="out_nodes")
        if index >= len(nodes[name].output):
            reason = f"the node {name} has {len(nodes[name].output)} outputs"
            raise failure("E10003", parameter="out_nodes", value=f"{name}:{index}", reason=reason)
        found.append(nodes[name].output[index])
    return tuple((name, _acl_name(name, makers)) for name in dict.fromkeys(found))


def input_dtypes(parsed: Parsed, options: Mapping[str, str]) -> dict[str, Dtype]:
    """Input → dtype it is fed in: the file's, or float16 by --input_fp16_nodes.

    Raises:
        AtcFailure: E10016 (no such node), E10017 (no input).
    """
    dtypes = {value.name: dtype_of(value.type.tensor_type.elem_type) for value in parsed.inputs}
    nodes = {node.name for node in parsed.proto.graph.node}
    for name in (part.strip() for part in options.get("input_fp16_nodes", "").split(";") if part.strip()):
        if name not in dtypes:
            raise failure("E10017" if name in nodes else "E10016", opname=name, parameter="input_fp16_nodes")
        if dtypes[name] in ("float32", "float16", "bfloat16"):
            dtypes[name] = "float16"
    return dtypes


def output_dtypes(
    parsed: Parsed, options: Mapping[str, str], outputs: Sequence[tuple[str, str]], own: Mapping[str, Dtype]
) -> dict[str, Dtype]:
    """Output → dtype it leaves in: the file's own [inferred for every precision mode], or --output_type's.

    Args:
        own: dtypes of the file.
    """
    dtypes = {name: own[name] for name, _ in outputs}
    text = options.get("output_type", "")
    if not text:
        return dtypes
    typed = parse_output_type(text)
    if isinstance(typed, str):
        return {name: _OUTPUT_DTYPES.get(typed, dtype) for name, dtype in dtypes.items()}
    by_name = {acl_name.rsplit(":", 1)[0] if ":" in acl_name else acl_name: name for name, acl_name in outputs}
    for node, index, kind in typed:
        tensor = next((name for key, name in by_name.items() if key.startswith(f"{node}:{index}")), None)
        if tensor is not None:
            dtypes[tensor] = _OUTPUT_DTYPES.get(kind, dtypes[tensor])
    return dtypes


def format_of(options: Mapping[str, str], rank: int, *, image: bool) -> int:
    """acl's number of an input's format: --input_format where it fits the rank, ND otherwise [inferred].

    Args:
        image: bytes for AIPP, which are NHWC.
    """
    return _FORMATS.get(("NHWC" if image else options.get("input_format") or "NCHW", rank), _ND)


def _acl_name(tensor: str, makers: Mapping[str, tuple[NodeProto, int]]) -> str:
    if tensor not in makers:
        return tensor
    node, index = makers[tensor]
    return f"{node.name}:{index}:{tensor}"
