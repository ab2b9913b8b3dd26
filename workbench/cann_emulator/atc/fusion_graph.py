"""Graph fusion passes, by the vendor's names: small operators that together are one of the library's.

That 8.5.0 has each of these names, and matches just these patterns, is [inferred] (atc.md §4.3): the names are of a
9.x tree, the patterns those of the documentation where there is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.fusion import (
    BATCH_MATMULS,
    MATMULS,
    Match,
    Pass,
    is_private,
    is_vector_constant,
    other_input,
    reduces_last_axis,
    same_shape,
    scalar_name,
    with_scalar,
)

_ERF_SCALE = 0.70710678
_TANH_SCALE, _TANH_CUBE = 0.79788456, 0.044715


# --- LayerNorm -----------------------------------------------------------------------------------------------------


def _layer_norm(square: str, graph: AscendGraph, mean: Op) -> Match | None:
    """(x - mean) / sqrt(mean((x - mean)²) + epsilon) · gamma + beta, with the square written as Pow or as Mul."""
    if not reduces_last_axis(graph, mean, "ReduceMeanD"):
        return None
    x, average = mean.inputs[0], mean.outputs[0]
    centres = [op for op in graph.readers(average) if op.type == "Sub" and op.inputs == [x, average]]
    if not centres or len(centres) != len(graph.readers(average)):
        return None
    squares = [op for centre in centres for op in graph.readers(centre.outputs[0]) if _is_square(graph, op, square)]
    if len(squares) != 1:
        return None
    variance = graph.only_reader(squares[0].outputs[0])
    if variance is None or not reduces_last_axis(graph, variance, "ReduceMeanD"):
        return None
    stable = graph.only_reader(variance.outputs[0])
    root = graph.only_reader(stable.outputs[0]) if stable and with_scalar(graph, stable, "Add") else None
    divided = graph.only_reader(root.outputs[0]) if root and root.type == "Sqrt" else None
    if stable is None or root is None or divided is None or divided.type != "RealDiv":
        return None
    if divided.inputs[0] not in {centre.outputs[0] for centre in centres}:
        return None
    group = [mean, *centres, squares[0], variance, stable, root, divided]
    absorbed = {scalar_name(graph, stable), *mean.inputs[1:], *variance.inputs[1:]}
    if square == "Pow":
        absorbed.add(squares[0].inputs[1])
    width = graph.shapes[x][-1]
    for kind in ("Mul", "Add"):
        following = graph.only_reader(group[-1].outputs[0])
        parameter = other_input(following, group[-1].outputs[0]) if following and following.type == kind else None
        if following is None or parameter is None or not is_vector_constant(graph, parameter, width):
            break
        group.append(following)
    return _whole(graph, group, "LayerNorm", absorbed)


def _is_square(graph: AscendGraph, op: Op, kind: str) -> bool:
    if kind == "Pow":
        return with_scalar(graph, op, "Pow", 2.0) is not None
    return op.type == "Mul" and len(op.inputs) == 2 and op.inputs[0] == op.inputs[1]


def _whole(graph: AscendGraph, group: list[Op], kind: str, absorbed: Collection[str]) -> Match | None:
    """One operator of the library, where nobody else needs what is inside."""
    return Match(group, kind, "vector", absorbed, whole=True) if is_private(graph, group, group[-1]) else None


def _add_layer_norm(graph: AscendGraph, norm: Op) -> Match | None:
    """The sum of two activations before a LayerNorm; the sum itself is a second result."""
    add = graph.producer(norm.inputs[0]) if norm.type == "LayerNorm" else None
    if add is None or add.type != "Add" or any(graph.is_constant(t) for t in add.inputs):
        return None
    return Match([add, norm], "AddLayerNorm", "vector", whole=True) if same_shape(graph, *add.inputs) else None


# --- Gelu and Softmax ----------------------------------------------------------------------------------------------


def _gelu(graph: AscendGraph, curve: Op) -> Match | None:
    """x · (1 + erf(x / √2)) / 2, or with tanh; static shapes only (atlasrr_30_0011; the form with erf [inferred])."""
    if curve.type not in ("Erf", "Tanh"):
        return None
    before = _before_erf(graph, curve) if curve.type == "Erf" else _before_tanh(graph, curve)
    group = _behind_curve(graph, curve, *before) if before is not None else None
    if group is None:
        return None
    return _whole(graph, group, "Gelu", {t for op in group for t in op.inputs if graph.scalar(t) is not None})


def _before_erf(graph: AscendGraph, erf: Op) -> tuple[str, list[Op]] | None:
    scaled = graph.producer(erf.inputs[0])
    x = with_scalar(graph, scaled, "RealDiv", 1 / _ERF_SCALE) or with_scalar(graph, scaled, "Mul", _ERF_SCALE)
    return (x, [scaled]) if x is not None and scaled is not None else None


def _before_tanh(graph: AscendGraph, tanh: Op) -> tuple[str, list[Op]] | None:
    scaled = graph.producer(tanh.inputs[0])
    total = with_scalar(graph, scaled, "Mul", _TANH_SCALE)
    add = graph.producer(total) if total is not None else None
    if scaled is None or add is None or add.type != "Add" or len(add.inputs) != 2:
        return None
    for x, cubic in ((add.inputs[0], add.inputs[1]), (add.inputs[1], add.inputs[0])):
        weighted = graph.producer(cubic)
        power = with_scalar(graph, weighted, "Mul", _TANH_CUBE)
        cube = graph.producer(power) if power is not None else None
        if weighted is None or cube is None:
            continue
        if with_scalar(graph, cube, "Pow", 3.0) == x:
            return x, [cube, weighted, add, scaled]
        square = graph.producer(other_input(cube, x) or "") if cube.type == "Mul" else None
        if square is not None and square.type == "Mul" and square.inputs == [x, x]:
            return x, [square, cube, weighted, add, scaled]
    return None


def _behind_curve(graph: AscendGraph, curve: Op, x: str, before: list[Op]) -> list[Op] | None:
    """1 + curve, times x and a half in any order."""
    plus = graph.only_reader(curve.outputs[0])
    if plus is None or with_scalar(graph, plus, "Add", 1.0) is None:
        return None
    first = graph.only_reader(plus.outputs[0])
    if first is None or first.type != "Mul":
        return None
    group = [*before, curve, plus]
    if with_scalar(graph, first, "Mul", 0.5) is not None:
        second = graph.only_reader(first.outputs[0])
        if second is None or second.type != "Mul" or other_input(second, first.outputs[0]) != x:
            return None
        return [*group, first, second]
    factor = other_input(first, plus.outputs[0])
    if factor == x:
        second = graph.only_reader(first.outputs[0])
        return [*group, first, second] if second and with_scalar(graph, second, "Mul", 0.5) is not None else None
    half = graph.producer(factor or "")
    if half is not None and with_scalar(graph, half, "Mul", 0.5) == x:
        return [*group, half, first]
    return None


def _softmax(graph: AscendGraph, power: Op) -> Match | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) over the last axis."""
    shifted = graph.producer(power.inputs[0]) if power.type == "Exp" else None
    top = graph.producer(shifted.inputs[1]) if shifted and shifted.type == "Sub" else None
    if shifted is None or top is None:
        return None
    total = next((r for r in graph.readers(power.outputs[0]) if reduces_last_axis(graph, r, "ReduceSumD")), None)
    divided = graph.only_reader(total.outputs[0]) if total is not None else None
    if total is None or divided is None or divided.type != "RealDiv" or divided.inputs[0] != power.outputs[0]:
        return None
    if not reduces_last_axis(graph, top, "ReduceMaxD") or top.inputs[0] != shifted.inputs[0]:
        return None
    group = [top, shifted, power, total, divided]
    return _whole(graph, group, "SoftmaxV2", {*top.inputs[1:], *total.inputs[1:]})


# --- MatMul, Conv and layout ---------------------------------------------------------------------------------------


def _retyped(types: Mapping[str, str], graph: AscendGraph, op: Op, *, name: str, integers: bool = False) -> bool:
    """Another kernel for the same work; products of integers have no third version [inferred]."""
    if op.type not in types or not (integers or graph.dtypes[op.inputs[0]] != "int8"):
        return False
    op.parts = tuple(types.get(part, part) for part in op.parts)
    op.type = types[op.type]
    op.passes = (*op.passes, name)
    return True


def _retyping(name: str, types: Mapping[str, str], *, integers: bool = False) -> Pass:
    return Pass(name, partial(_retyped, types, name=name, integers=integers))


def _bias_add(graph: AscendGraph, product: Op) -> Match | None:
    """A constant of one value per column, behind a product with a matrix of weights that has no bias yet."""
    if product.type not in MATMULS or product.parts != (product.type,) or len(product.inputs) > 2:
        return None
    result = product.outputs[0]
    add = graph.only_reader(result)
    bias = other_input(add, result) if add is not None and add.type == "Add" else None
    if add is None or bias is None or not is_vector_constant(graph, bias, graph.shapes[result][-1]):
        return None
    return Match([product, add], product.type, "cube")


def _pair(first: Collection[str], second: Collection[str], graph: AscendGraph, op: Op) -> Match | None:
    follower = graph.only_reader(op.outputs[0]) if op.type in first else None
    if follower is None or follower.type not in second or graph.producer(follower.inputs[0]) is not op:
        return None
    return Match([op, follower], op.type, op.core)


def _transposed_operand(graph: AscendGraph, product: Op) -> Match | None:
    """A transpose of the last two axes before a product: it reads its operand the other way."""
    for tensor in product.inputs if product.type in BATCH_MATMULS else ():
        transpose = graph.producer(tensor)
        if transpose is None or transpose.type != "TransposeD" or graph.only_reader(tensor) is not product:
            continue
        rank = len(graph.shapes[tensor])
        if list(transpose.attributes.get("perm", ())) == [*range(rank - 2), rank - 1, rank - 2]:
            inputs = [transpose.inputs[0] if name == tensor else name for name in product.inputs]
            return Match([transpose, product], product.type, "cube", inputs=inputs)
    return None


def _confusion_transpose(first: str, second: str, graph: AscendGraph, op: Op) -> Match | None:
    """Transpose and Reshape next to each other: ConfusionTransposeD."""
    follower = graph.only_reader(op.outputs[0]) if op.type == first else None
    if follower is None or follower.type != second:
        return None
    return Match([op, follower], "ConfusionTransposeD", "vector", whole=True)


def _batch_matmul_dequant(graph: AscendGraph, product: Op) -> Match | None:
    """INT8: a product of activations, its AscendDequant, the scaling behind it and a mask that is added."""
    if product.type not in BATCH_MATMULS or graph.dtypes[product.outputs[0]] != "int32":
        return None
    dequant = graph.only_reader(product.outputs[0])
    scaled = graph.only_reader(dequant.outputs[0]) if dequant and dequant.type == "AscendDequant" else None
    if dequant is None or scaled is None or scaled.type not in ("Mul", "RealDiv"):
        return None
    if with_scalar(graph, scaled, scaled.type) is None:
        return None
    group = [product, dequant, scaled]
    mask = graph.only_reader(scaled.outputs[0])
    if mask is not None and mask.type == "Add" and same_shape(graph, scaled.outputs[0], mask.outputs[0]):
        group.append(mask)
    return Match(group, product.type, "mix")


GRAPH_PASSES: tuple[Pass, ...] = (
    _retyping("GemmToMatmulFusionPass", {"GEMM": "MatMulV2"}, integers=True),
    Pass("ConvBatchnormFusionPass", partial(_pair, {"Conv2D", "Conv3D", "DepthwiseConv2D"}, {"BNInference"})),
    Pass("LayerNormONNXFusionPass", partial(_layer_norm, "Pow")),
    Pass("LayerNormFusionPass", partial(_layer_norm, "Mul")),
    Pass("GeluFusionPass", _gelu),
    Pass("SoftmaxFusionPass", _softmax),
    Pass("MatMulBiasAddFusionPass", _bias_add),
    Pass("AddLayerNormFusionPass", _add_layer_norm),
    Pass("BatchMatMulTransposeFusionPass", _transposed_operand, again=True),
    Pass("ReshapeTransposeFusionPass", partial(_confusion_transpose, "Reshape", "TransposeD")),
    Pass("TransposeReshapeFusionPass", partial(_confusion_transpose, "TransposeD", "Reshape")),
    Pass("MatmulReshapeFusionPass", partial(_pair, MATMULS, {"Reshape"}), built_in="off"),
)
"""Before the dtypes are settled: what they join is one operator for the precision lists."""

LATE_GRAPH_PASSES: tuple[Pass, ...] = (
    Pass("BatchMatMulDequantElemwiseFusionPass", _batch_matmul_dequant, quant=True),
    _retyping("MatMulToMatmulV3FusionPass", {"MatMulV2": "MatMulV3"}),
    _retyping("BatchMatMulToBatchMatmulV3FusionPass", {"BatchMatMulV2": "BatchMatMulV3"}),
)
"""After the dtypes are settled, so that white lists speak of V2 [inferred]."""
