"""Which dtype every operator computes in, and the Casts that follow from it (atc.md §3.1, §3.2).

Precision modes decide by type of operator; the files of §3.2 come before them: customize_dtypes, then keep_dtype. A
Cast goes wherever a tensor is stored in another type than its reader takes; readers of the same type share it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workbench.cann_emulator.atc.ascend_graph import FLOATS, AscendGraph, Op
from workbench.cann_emulator.atc.failure import failure
from workbench.cann_emulator.atc.operator_types import OPERATORS, words
from workbench.cann_emulator.om import Dtype
from workbench.quantization.lowering.deploy import ANTI_QUANT, DEQUANT, QUANT

TWINS: Mapping[str, str] = {
    "fp16": "force_fp16",
    "origin": "must_keep_origin_dtype",
    "cube_fp16in_fp32out": "force_fp32",
    "mixed_float16": "allow_mix_precision_fp16",
    "mixed_bfloat16": "allow_mix_precision_bf16",
    "allow_mix_precision": "allow_mix_precision_fp16",
}
"""Values that mean another one (atc.md §3.1)."""

CUBE_TYPES = words(OPERATORS["fp16_cube_types"])
"""fe.ini, key fp16.op_type, by our types (atc.md §3.1)."""
WHITE, BLACK = words(OPERATORS["white"]), words(OPERATORS["black"])
"""Built-in flags of a 9.x tree (atc.md §3.2); that convolutions are white is [inferred]. All else is grey."""

_QUANT_TYPES = (QUANT, DEQUANT, ANTI_QUANT)
CustomDtypes = tuple[tuple[Dtype | None, ...], tuple[Dtype | None, ...]]
"""Of inputs and outputs, one entry of --customize_dtypes; None leaves a slot as it is."""
OF_TYPE = "OpType::"
"""In front of what is said of a type, among what is said of nodes by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What the flags and files say."""

    mode: str = "force_fp16"  # v1 spelling, twins resolved
    white: frozenset[str] = WHITE  # white, black: Ascend types; of mixed modes
    black: frozenset[str] = BLACK
    kept: frozenset[str] = frozenset()  # what keeps the graph's dtype
    custom: Mapping[str, CustomDtypes] = field(default_factory=dict)
    # of op_precision_mode or op_select_implmode; "" is every type
    implementations: Mapping[str, str] = field(default_factory=dict)


def assign(graph: AscendGraph, precision: Precision, boundary: Mapping[str, Dtype]) -> None:
    """Settle every operator's dtype and insert the Casts.

    Args:
        boundary: model output → the dtype it leaves the device in.
    """
    casts: dict[tuple[str, Dtype], str] = {}
    for op in graph.ops():
        said = [*_keys(op.types, op.name, *op.nodes), ""]
        op.implementation = next(filter(None, map(precision.implementations.get, said)), "")
        if op.view:
            followed = graph.dtypes[(op.inputs or op.outputs)[0]]
            graph.dtypes[op.outputs[0]] = op.dtype = op.reads = op.writes = followed
            continue
        floats = [name for name in op.inputs if graph.dtypes.get(name) in FLOATS]
        made = [name for name in op.outputs if graph.dtypes.get(name) in FLOATS]
        if not floats and not made:
            op.dtype = op.reads = op.writes = graph.dtypes[op.outputs[0]]
            if any(graph.dtypes[name] == "int8" for name in op.inputs):
                op.dtype = "int8"
            continue
        op.reads, op.writes = _decide(graph, op, precision, floats, made)
        op.dtype = "int8" if op.type in _QUANT_TYPES else op.reads if floats else op.writes
        if op.onnx == "Cast":  # of the model's own: between floats it converts to what the mode says, or is nothing
            op.reads, target = graph.dtypes[op.inputs[0]], graph.dtypes[op.outputs[0]]
            op.writes = op.writes if target in FLOATS else target
            graph.dtypes[op.outputs[0]] = op.dtype = op.writes
            op.core = "none" if op.reads in FLOATS and op.reads == op.writes else op.core
            continue
        for name in dict.fromkeys(floats):
            if not graph.is_constant(name) and graph.dtypes[name] != op.reads:
                key = name, op.reads
                casts[key] = casts.get(key) or _cast(graph, name, op.reads, op.order)
                graph.replace_input(op, name, casts[key])
        for name in made:
            graph.dtypes[name] = op.writes
    for name in graph.outputs:
        if graph.dtypes[name] in FLOATS and graph.dtypes[name] != boundary[name]:
            producer = graph.producer(name)  # its result is what leaves the device
            if producer is not None:  # a model input that is an output too stays as it is fed
                _cast(graph, name, boundary[name], producer.order)
    graph.settled = True


def _decide(
    graph: AscendGraph, op: Op, precision: Precision, floats: list[str], made: list[str]
) -> tuple[Dtype, Dtype]:
    origin: Dtype = next((d for d in (graph.dtypes[n] for n in made or floats) if d in FLOATS), "float32")
    # of what was fused away nothing is left to customize (atc.md §3.2)
    custom = next((precision.custom[key] for key in _keys(op.types, op.name) if key in precision.custom), None)
    if custom is not None:
        if any(dtype is not None and dtype not in FLOATS for dtypes in custom for dtype in dtypes[:1]):
            raise failure("EZ3003", opname=op.name, optype=op.type)  # [inferred]: no kernel takes the dtype
        reads, writes = (next((dtype for dtype in dtypes if dtype in FLOATS), None) for dtypes in custom)
        writes = writes or reads
        if reads or writes:
            plain = _by_mode(graph, op, precision, floats, origin)
            return reads or plain[0], writes or plain[1]
    # names from before fusion count too; a LayerNorm is one, also with the Add before it in it
    if precision.kept.intersection(_keys((*op.types, *op.library), op.name, *op.nodes)):
        return origin, origin
    return _by_mode(graph, op, precision, floats, origin)


def _by_mode(graph: AscendGraph, op: Op, precision: Precision, floats: list[str], origin: Dtype) -> tuple[Dtype, Dtype]:
    cube = op.type in CUBE_TYPES
    match precision.mode:
        case "force_fp16":
            return "float16", "float16"
        case "force_fp32":
            return ("float16", "float32") if cube else ("float32", "float32")
        case "allow_fp32_to_fp16":
            return ("float16", "float16") if cube else (origin, origin)
        case "must_keep_origin_dtype" | "allow_fp32_to_bf16":
            return origin, origin  # every float32 kernel that is modelled here exists on 910B3 [inferred]
    low: Dtype = "bfloat16" if precision.mode.endswith("bf16") else "float16"
    if precision.white.intersection(op.types):
        return low, low
    if not precision.black.intersection(op.types):
        # a grey operator has that of what it reads; behind integer products, which are white, the low one
        read = (graph.dtypes[n] for n in floats if not graph.is_constant(n) and n not in graph.inputs)
        origin = next(read, low if op.type == DEQUANT else origin)
    return origin, origin


def _keys(types: Iterable[str], *names: str) -> list[str]:
    """What files call an operator by."""
    return [*names, *(f"{OF_TYPE}{kind}" for kind in types)]


def _cast(graph: AscendGraph, source: str, dtype: Dtype, order: int) -> str:
    """A Cast put into the graph, which stands for no ONNX node; its result."""
    name = f"trans_Cast_{len(graph.casts)}"
    target = f"{source}/{name}"
    graph.casts.append(name)
    graph.shapes[target], graph.dtypes[target] = graph.shapes[source], dtype
    cast = Op(name=name, type="Cast", core="vector", inputs=[source], outputs=[target], order=order, dtype=dtype)
    cast.reads, cast.writes = graph.dtypes[source], dtype
    graph.add(cast)
    return target
