"""Bodies are looked into, and outputs whose size depends on values are told from those that follow shapes."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.graph.intake.graphs import noisy, rate_dependent
from tests.small_graphs import write_graph
from workbench.graph.read import load_graph, read_model
from workbench.graph.structure import handed_through, structure_of


def test_layers_in_branches_and_random_operators_are_found_at_any_depth(tmp_path: Path) -> None:
    found = structure_of(onnx.load(rate_dependent(tmp_path / "m.onnx")))

    (body,) = found.bodies
    assert (body.node, body.layers, body.operators["If"]) == ("If 'by_rate'", 2, 2)
    assert structure_of(onnx.load(noisy(tmp_path / "n.onnx"))).random == ("RandomNormalLike 'noise'",)


def test_a_size_from_values_is_named_by_the_node_it_begins_at(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], name="shape"),
        helper.make_node("Reshape", ["x", "shape"], ["same"], name="by_shape"),
        helper.make_node("NonZero", ["x"], ["places"], name="places"),
        helper.make_node("Cast", ["places"], ["found"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Shape", ["found"], ["count"], name="count"),
        helper.make_node("Expand", ["one", "count"], ["ones"], name="ones"),
    ]
    outputs = dict.fromkeys(("same", "found", "ones"))
    path = write_graph(tmp_path / "m.onnx", nodes, {"x": ["n", 4]}, outputs, one=np.ones(1, np.float32))

    sized = structure_of(onnx.load(path)).sized_by_data

    assert sized == {"found": "NonZero 'places'", "ones": "NonZero 'places'"}


def test_what_is_handed_through_depends_on_no_float_arithmetic_nor_on_sizes_that_values_decide(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Identity", ["ids"], ["echo"], name="echo"),
        helper.make_node("Add", ["ids", "two"], ["whole"], name="whole"),
        helper.make_node("Cast", ["ids"], ["cast"], name="cast", to=TensorProto.FLOAT),
        helper.make_node("Mul", ["cast", "half"], ["scaled"], name="scaled"),
        helper.make_node("Relu", ["x"], ["computed"], name="computed"),
        helper.make_node("Shape", ["computed"], ["size"], name="size"),
        helper.make_node("NonZero", ["computed"], ["places"], name="places"),
        helper.make_node("Shape", ["places"], ["count"], name="count"),
        helper.make_node("ArgMax", ["computed"], ["largest"], name="largest", axis=1),
        helper.make_node("ConstantOfShape", ["size"], ["zeros"], name="zeros"),
        helper.make_node("Where", ["mask", "echo", "largest"], ["chosen"], name="chosen"),
    ]
    names = ("echo", "whole", "cast", "scaled", "computed", "size", "count", "largest", "zeros", "chosen")
    whole = ("echo", "whole", "size", "count", "largest", "chosen")
    outputs = {name: (TensorProto.INT64 if name in whole else TensorProto.FLOAT, None) for name in names}
    inputs = {"ids": (TensorProto.INT64, ["n", 1]), "x": ["n", 4], "mask": (TensorProto.BOOL, ["n", 1])}
    path = write_graph(tmp_path / "m.onnx", nodes, inputs, outputs, two=2, half=np.array(0.5, np.float32))

    assert handed_through(load_graph(read_model(path))) == {"echo", "whole", "cast", "size", "zeros"}
