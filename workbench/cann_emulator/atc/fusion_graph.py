"""Graph fusion passes, by the vendor's names: small operators that together are one of the library's.

That 8.5.0 has each of these names, and matches just these patterns, is [inferred] (atc.md §4.3): the names are of a
9.x tree, the patterns those of the documentation where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from workbench.cann_emulator.atc.ascend_graph import AscendGraph, Op
from workbench.cann_emulator.atc.fusion import Pass, Settings
from workbench.cann_emulator.atc.fusion_patterns import (
    BATCH_MATMULS,
    MATMULS,
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

_Counted = tuple[int, int]


# --- LayerNorm -----------------------------------------------------------------------------------------------------


def _layer_norm(square: str) -> Callable[[AscendGraph, str, Settings], _Counted]:
    """(x - mean) / sqrt(mean((x - mean)²) + epsilon) · gamma + beta, with the square written as Pow or as Mul."""

    def apply(graph: AscendGraph, name: str, _: Settings) -> _Counted:
        matched = done = 0
        for mean in graph.ops():
            found = _layer_norm_at(graph, mean, square) if mean in graph else None
            if found is None:
                continue
            group, absorbed = found
            matched += 1
            joined = graph.join(group, name, type="LayerNorm", core="vector", whole=True, absorbed=absorbed)
            done += joined is not None
        return matched, done

    return apply


def _layer_norm_at(graph: AscendGraph, mean: Op, square: str) -> tuple[list[Op], set[str]] | None:
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
    return (group, absorbed) if is_private(graph, group, group[-1]) else None


def _is_square(graph: AscendGraph, op: Op, kind: str) -> bool:
    if kind == "Pow":
        return with_scalar(graph, op, "Pow", 2.0) is not None
    return op.type == "Mul" and len(op.inputs) == 2 and op.inputs[0] == op.inputs[1]


def _add_layer_norm(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """The sum of two activations before a LayerNorm; the sum itself is a second result."""
    matched = done = 0
    for norm in graph.ops():
        if norm.type != "LayerNorm":
            continue
        add = graph.producer(norm.inputs[0])
        if add is None or add.type != "Add" or any(graph.is_constant(t) for t in add.inputs):
            continue
        if not same_shape(graph, *add.inputs):
            continue
        matched += 1
        done += graph.join([add, norm], name, type="AddLayerNorm", core="vector", whole=True) is not None
    return matched, done


# --- Gelu and Softmax ----------------------------------------------------------------------------------------------


def _gelu(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    """x · (1 + erf(x / √2)) / 2, or with tanh; static shapes only (atlasrr_30_0011; the form with erf [inferred])."""
    if not settings.static:
        return 0, 0
    matched = done = 0
    for op in graph.ops():
        if op not in graph or op.type not in ("Erf", "Tanh"):
            continue
        before = _before_erf(graph, op) if op.type == "Erf" else _before_tanh(graph, op)
        group = _behind_curve(graph, op, before[0], before[1]) if before is not None else None
        if group is None or not is_private(graph, group, group[-1]):
            continue
        matched += 1
        scalars = {t for member in group for t in member.inputs if graph.scalar(t) is not None}
        done += graph.join(group, name, type="Gelu", core="vector", whole=True, absorbed=scalars) is not None
    return matched, done


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


def _softmax(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """exp(x - max(x)) / sum(exp(x - max(x))) over the last axis."""
    matched = done = 0
    for power in graph.ops():
        if power not in graph or power.type != "Exp":
            continue
        shifted = graph.producer(power.inputs[0])
        top = graph.producer(shifted.inputs[1]) if shifted and shifted.type == "Sub" else None
        total = next((r for r in graph.readers(power.outputs[0]) if reduces_last_axis(graph, r, "ReduceSumD")), None)
        divided = graph.only_reader(total.outputs[0]) if total is not None else None
        if shifted is None or top is None or total is None or divided is None or divided.type != "RealDiv":
            continue
        if not reduces_last_axis(graph, top, "ReduceMaxD") or top.inputs[0] != shifted.inputs[0]:
            continue
        group = [top, shifted, power, total, divided]
        if divided.inputs[0] != power.outputs[0] or not is_private(graph, group, divided):
            continue
        matched += 1
        absorbed = {*top.inputs[1:], *total.inputs[1:]}
        done += graph.join(group, name, type="SoftmaxV2", core="vector", whole=True, absorbed=absorbed) is not None
    return matched, done


# --- MatMul, Conv and layout ---------------------------------------------------------------------------------------


def _gemm_to_matmul(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    return _retype(graph, name, {"GEMM": "MatMulV2"}, integers=True)


def _to_v3(kind: str) -> Callable[[AscendGraph, str, Settings], _Counted]:
    def apply(graph: AscendGraph, name: str, _: Settings) -> _Counted:
        return _retype(graph, name, {f"{kind}V2": f"{kind}V3"}, integers=False)

    return apply


def _retype(graph: AscendGraph, name: str, types: dict[str, str], *, integers: bool) -> _Counted:
    """Another kernel for the same work; products of integers have no third version [inferred]."""
    count = 0
    for op in graph.ops():
        if op.type in types and (integers or graph.dtypes[op.inputs[0]] != "int8"):
            op.parts = tuple(types.get(part, part) for part in op.parts)
            op.type = types[op.type]
            op.passes = (*op.passes, name)
            count += 1
    return count, count


def _bias_add(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """A constant of one value per column, behind a product with a matrix of weights that has no bias yet."""
    matched = done = 0
    for product in graph.ops():
        if product.type not in MATMULS or product.parts != (product.type,) or len(product.inputs) > 2:
            continue
        add = graph.only_reader(product.outputs[0])
        bias = other_input(add, product.outputs[0]) if add is not None and add.type == "Add" else None
        if add is None or bias is None or not is_vector_constant(graph, bias, graph.shapes[product.outputs[0]][-1]):
            continue
        matched += 1
        done += graph.join([product, add], name, type=product.type, core="cube") is not None
    return matched, done


def _conv_batch_norm(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    return _pairs(graph, name, {"Conv2D", "Conv3D", "DepthwiseConv2D"}, {"BNInference"})


def _pairs(graph: AscendGraph, name: str, first: Collection[str], second: Collection[str]) -> _Counted:
    matched = done = 0
    for op in graph.ops():
        follower = graph.only_reader(op.outputs[0]) if op in graph and op.type in first else None
        if follower is None or follower.type not in second or graph.producer(follower.inputs[0]) is not op:
            continue
        matched += 1
        done += graph.join([op, follower], name, type=op.type, core=op.core) is not None
    return matched, done


def _batch_matmul_transpose(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    """A transpose of the last two axes before a product: it reads its operand the other way."""
    matched = done = 0
    for product in graph.ops():
        if product not in graph or product.type not in BATCH_MATMULS:
            continue
        for tensor in list(product.inputs):
            transpose = graph.producer(tensor)
            if transpose is None or transpose.type != "TransposeD" or graph.only_reader(tensor) is not product:
                continue
            rank = len(graph.shapes[tensor])
            if list(transpose.attributes.get("perm", ())) != [*range(rank - 2), rank - 1, rank - 2]:
                continue
            matched += 1
            joined = graph.join([transpose, product], name, type=product.type, core="cube")
            if joined is not None:
                joined.inputs = [transpose.inputs[0] if t == tensor else t for t in product.inputs]
                product, done = joined, done + 1
    return matched, done


def _confusion_transpose(first: str, second: str) -> Callable[[AscendGraph, str, Settings], _Counted]:
    """Transpose and Reshape next to each other: ConfusionTransposeD."""

    def apply(graph: AscendGraph, name: str, _: Settings) -> _Counted:
        matched = done = 0
        for op in graph.ops():
            follower = graph.only_reader(op.outputs[0]) if op in graph and op.type == first else None
            if follower is None or follower.type != second:
                continue
            matched += 1
            done += graph.join([op, follower], name, type="ConfusionTransposeD", core="vector", whole=True) is not None
        return matched, done

    return apply


def _matmul_reshape(graph: AscendGraph, name: str, _: Settings) -> _Counted:
    return _pairs(graph, name, MATMULS, {"Reshape"})


def _batch_matmul_dequant(graph: AscendGraph, name: str, settings: Settings) -> _Counted:
    """INT8: a product of activations, its AscendDequant, the scaling behind it and a mask that is added."""
    if settings.quant_dumpable:
        return 0, 0
    matched = done = 0
    for product in graph.ops():
        if product.type not in BATCH_MATMULS or graph.dtypes[product.outputs[0]] != "int32":
            continue
        dequant = graph.only_reader(product.outputs[0])
        scaled = graph.only_reader(dequant.outputs[0]) if dequant and dequant.type == "AscendDequant" else None
        if dequant is None or scaled is None or scaled.type not in ("Mul", "RealDiv"):
            continue
        if with_scalar(graph, scaled, scaled.type) is None:
            continue
        group = [product, dequant, scaled]
        mask = graph.only_reader(scaled.outputs[0])
        if mask is not None and mask.type == "Add" and same_shape(graph, scaled.outputs[0], mask.outputs[0]):
            group.append(mask)
        matched += 1
        done += graph.join(group, name, type=product.type, core="mix") is not None
    return matched, done


def _graph_pass(name: str, apply: Callable[[AscendGraph, str, Settings], _Counted]) -> Pass:
    return Pass(name=name, group="GraphFusion", apply=apply)


GRAPH_PASSES: tuple[Pass, ...] = (
    _graph_pass("GemmToMatmulFusionPass", _gemm_to_matmul),
    _graph_pass("ConvBatchnormFusionPass", _conv_batch_norm),
    _graph_pass("LayerNormONNXFusionPass", _layer_norm("Pow")),
    _graph_pass("LayerNormFusionPass", _layer_norm("Mul")),
    _graph_pass("GeluFusionPass", _gelu),
    _graph_pass("SoftmaxFusionPass", _softmax),
    _graph_pass("MatMulBiasAddFusionPass", _bias_add),
    _graph_pass("AddLayerNormFusionPass", _add_layer_norm),
    _graph_pass("BatchMatMulTransposeFusionPass", _batch_matmul_transpose),
    _graph_pass("ReshapeTransposeFusionPass", _confusion_transpose("Reshape", "TransposeD")),
    _graph_pass("TransposeReshapeFusionPass", _confusion_transpose("TransposeD", "Reshape")),
    _graph_pass("MatmulReshapeFusionPass", _matmul_reshape),
)
"""Before the dtypes are settled: what they join is one operator for the precision lists."""

LATE_GRAPH_PASSES: tuple[Pass, ...] = (
    _graph_pass("BatchMatMulDequantElemwiseFusionPass", _batch_matmul_dequant),
    _graph_pass("MatMulToMatmulV3FusionPass", _to_v3("MatMul")),
    _graph_pass("BatchMatMulToBatchMatmulV3FusionPass", _to_v3("BatchMatMul")),
)
"""After the dtypes are settled, so that white lists speak of V2 [inferred]."""
