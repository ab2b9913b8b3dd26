"""Which differences of two graphs are only numbers."""

import numpy as np
import onnx
from onnx import ModelProto, TensorProto, helper, numpy_helper

from workbench.graph.form import graph_form
from workbench.graph.nodes import rename_tensors
from workbench.testing.encoder import Array, model_of, tiny_encoder, value

QUANTIZE = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantize")
DEQUANTIZE = helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="dequantize")


def quantizer(scale: float = 0.1, zero: Array | None = None) -> ModelProto:
    numbers: dict[str, Array] = {"scale": np.array(scale, np.float32), "zero": np.array(3, np.int8)}
    return model_of(
        [QUANTIZE, DEQUANTIZE],
        numbers if zero is None else {**numbers, "zero": zero},
        [value("x", ["n", 4])],
        [value("y", ["n", 4])],
    )


def one_operator(kind: str, constant: Array, **attributes: object) -> ModelProto:
    node = helper.make_node(kind, ["x", "c"], ["y"], name="only", **attributes)
    return model_of([node], {"c": constant}, [value("x", ["n", 4])], [value("y", ["n", 4])])


def renamed(model: ModelProto) -> ModelProto:
    """Every tensor and node under another name; ports keep theirs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inner = {name for node in copy.graph.node for name in (*node.input, *node.output) if name}
    inner -= {port.name for port in (*copy.graph.input, *copy.graph.output)}
    rename_tensors(copy.graph.node, {name: f"other {name}" for name in inner})
    for one in (*copy.graph.initializer, *copy.graph.node):
        one.name, one.doc_string = f"other {one.name}", "another exporter"
    return copy


def test_the_form_of_a_zero_point_what_decides_how_much_is_computed_and_attributes_count() -> None:
    without = quantizer()
    del without.graph.node[0].input[2]
    ones, number = np.ones((4, 4), np.float32), np.float32
    for differs, first, second in (
        ("another type", quantizer(), quantizer(zero=np.array(3, np.uint8))),
        ("one for each column", quantizer(), quantizer(zero=np.array([3, 3, 3, 3], np.int8))),
        ("left out", quantizer(), without),
        ("a shape", one_operator("Reshape", np.array([0, 4])), one_operator("Reshape", np.array([-1, 4]))),
        ("a power", one_operator("Pow", np.array(2, number)), one_operator("Pow", np.array(3, number))),
        ("repeats", one_operator("Tile", np.array([1, 2])), one_operator("Tile", np.array([2, 1]))),
        ("an attribute", one_operator("Gemm", ones, transB=1), one_operator("Gemm", ones, transB=0)),
    ):
        assert graph_form(first) != graph_form(second), differs


def test_a_zero_point_of_zero_may_be_left_out_where_its_type_is_told_otherwise() -> None:
    """ONNX Runtime's optimizer does so."""

    def product(*zero_points: Array) -> ModelProto:
        names = [f"zero {place}" for place in range(len(zero_points))]
        node = helper.make_node("MatMulInteger", ["x", "w", *names], ["y"], name="only")
        numbers = {"w": np.ones((4, 4), np.int8), **dict(zip(names, zero_points, strict=True))}
        ports = [helper.make_tensor_value_info(n, t, ["n", 4]) for n, t in (("x", TensorProto.UINT8), ("y", 6))]
        return model_of([node], numbers, ports[:1], ports[1:])

    nothing, scalar, columns = np.array(128, np.uint8), np.array(0, np.int8), np.zeros(4, np.int8)

    assert graph_form(product(nothing)) == graph_form(product(nothing, scalar))
    assert graph_form(product(nothing)) != graph_form(product(nothing, columns))
    assert graph_form(product(nothing), values=True) != graph_form(product(nothing, scalar), values=True)


def test_branches_and_which_large_constant_is_read_count() -> None:
    def sums(second: str) -> ModelProto:
        nodes = [helper.make_node("Add", ["x", "a"], ["s"]), helper.make_node("Add", ["s", second], ["y"])]
        table = np.zeros((200, 200), np.float32)
        ports = [value("x", [200, 200])], [value("y", [200, 200])]
        return model_of(nodes, {"a": table, "b": table}, *ports)

    def choice(inner: str) -> ModelProto:
        branches = [
            helper.make_graph([helper.make_node(kind, ["x"], ["r"])], kind, [], [value("r", ["n", 4])])
            for kind in (inner, "Neg")
        ]
        node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
        condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
        return model_of([node], {}, [condition, value("x", ["n", 4])], [value("y", ["n", 4])])

    assert graph_form(sums("a")) != graph_form(sums("b"))
    assert graph_form(choice("Relu")) == graph_form(choice("Relu"))
    assert graph_form(choice("Relu")) != graph_form(choice("Abs"))


def test_names_places_of_constants_and_numbers_that_are_not_asked_for_do_not_count() -> None:
    """ONNX Runtime merges scalars whose values happen to agree."""
    another, as_node, apart = quantizer(scale=0.2, zero=np.array(-5, np.int8)), quantizer(), quantizer()
    del as_node.graph.initializer[0]
    tensor = numpy_helper.from_array(np.array(0.1, np.float32), "another")
    as_node.graph.node.insert(0, helper.make_node("Constant", [], ["scale"], value=tensor))
    apart.graph.node[1].input[1] = "another"
    apart.graph.initializer.append(tensor)

    for first, second in ((renamed(tiny_encoder()), tiny_encoder()), (as_node, quantizer()), (apart, quantizer())):
        for values in (False, True):
            assert graph_form(first, values=values) == graph_form(second, values=values)
    assert graph_form(another) == graph_form(quantizer())
    assert graph_form(another, values=True) != graph_form(quantizer(), values=True)
