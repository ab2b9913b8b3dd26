"""Each rule of the table fires on a model made to break it, names the node, and stays silent on a sound one."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from workbench.cann_emulator.atc.operator_types import core_of
from workbench.cann_emulator.device_data import load_device_data
from workbench.targets.ascend.operators import AICPU_START_US, OPERATOR_RULES, check_operators


def model(
    nodes: list[onnx.NodeProto],
    *,
    opset: int = 13,
    constants: dict[str, np.ndarray] | None = None,
    inputs: list[onnx.ValueInfoProto] | None = None,
    domains: tuple[str, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        inputs or [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("operator", "domain", "severity"),
    [
        ("QuantizeLinear", "", "error"),
        ("DequantizeLinear", "", "error"),
        ("MatMulInteger", "", "error"),
        ("SkipLayerNormalization", "com.microsoft", "error"),
    ],
)
def test_operators_of_the_table_are_counted_and_named_once(operator: str, domain: str, severity: str) -> None:
    nodes = [helper.make_node(operator, ["x"], [f"y{i}"], name=f"n{i}", domain=domain) for i in range(3)]

    found = [i for i in check_operators(model(nodes)) if operator in i.operator and "E19999" not in i.problem]

    assert [(i.severity, i.node) for i in found] == [(severity, "n0 (and 2 more)")]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (-3.4028235e38, "infinite in fp16"),
        (-np.inf, "infinite in fp16"),
        (70000.0, "infinite in fp16"),
        (1e-12, "zero in fp16"),
        (-65504.0, None),
        (-10000.0, None),
        (1e-5, None),
        (0.0, None),
    ],
)
def test_constants_that_half_precision_cannot_hold_are_named(value: float, words: str | None) -> None:
    with np.errstate(over="ignore"):
        rounded = np.float32(value).astype(np.float16)
    broken = bool(np.isinf(rounded)) or (value != 0 and rounded == 0)
    assert broken == (words is not None)  # numpy's own rounding agrees with the rule

    nodes = [helper.make_node("Add", ["x", "c"], ["y"], name="mask")]
    issues = check_operators(model(nodes, constants={"c": np.array(value, np.float32)}))

    assert [i.node for i in issues] == (["mask"] if words else [])
    assert all(words is not None and words in i.problem for i in issues)


def test_what_an_ai_cpu_runs_is_named_with_its_modelled_cost_and_the_mend() -> None:
    nodes = [
        helper.make_node("ReverseSequence", ["x", "lengths"], ["r"], name="turn"),
        helper.make_node("Add", ["lengths", "one"], ["more"], name="longer"),
        helper.make_node("ReverseSequence", ["r", "more"], ["y"], name="back"),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 1]),
        helper.make_tensor_value_info("lengths", TensorProto.INT64, [1]),
    ]
    proto = model(nodes, constants={"one": np.array([1])}, inputs=inputs)

    slow = {issue.node: issue for issue in check_operators(proto) if issue.slow}

    assert set(slow) == {"turn (and 1 more)", "longer"}
    assert "at least 120 us a call (modelled)" in slow["turn (and 1 more)"].problem
    assert "Gather with a constant index" in slow["turn (and 1 more)"].remedy
    assert "64-bit integers" in slow["longer"].problem
    assert "int32" in slow["longer"].remedy
    assert load_device_data("Ascend910B3").aicpu_launch_us == AICPU_START_US
    named = [operator for rule in OPERATOR_RULES if rule.aicpu for operator in rule.operators]
    assert {core_of(operator) for operator in named} == {"aicpu"}
