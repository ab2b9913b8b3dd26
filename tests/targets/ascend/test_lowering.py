from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.model_zoo import ZOO
from workbench.cann_emulator.atc.operator_types import core_of
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.operators import AICPU_START_US, ON_AN_AICPU, check_operators
from workbench.testing.encoder import model_of, run, value
from workbench.values.errors import LoweringError
from workbench.values.modelled_times.device_data import load_device_data


def model(
    nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray] | None = None, *, opset: int = 13, **inputs: int
) -> onnx.ModelProto:
    """Of x and these inputs of one size, whole numbers."""
    taken = [value("x", ["batch", 8]), *(value(n, [size], TensorProto.INT64) for n, size in inputs.items())]
    return model_of(nodes, constants or {}, taken, [value(nodes[-1].output[0], ["batch", 8])], opset)


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_model_of_the_zoo_keeps_its_values_and_loses_what_atc_lacks(name: str, tmp_path: Path) -> None:
    zoo = ZOO[name]
    zoo.write(tmp_path / "model.onnx")
    proto = load_graph(read_model(tmp_path / "model.onnx"))
    feeds = zoo.feeds(2, 0)

    lowered = atc_form(proto)

    onnx.checker.check_model(lowered)
    assert [o.domain for o in lowered.opset_import] == [""]
    assert [i for i in check_operators(lowered) if i.severity == "error"] == []
    assert not {"LayerNormalization", "Gelu"} & {node.op_type for node in lowered.graph.node}
    assert [v.name for v in lowered.graph.output] == [v.name for v in proto.graph.output]
    for expected, got in zip(run(proto, feeds), run(lowered, feeds), strict=True):
        assert np.allclose(expected, got, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_of_opset_20_is_written_in_small_operators(approximate: str) -> None:
    proto = model([helper.make_node("Gelu", ["x"], ["y"], name="gelu", approximate=approximate)], opset=20)
    x = np.linspace(-6, 6, 32, dtype=np.float32).reshape(4, 8)

    lowered = atc_form(proto)

    assert lowered.opset_import[0].version == 18
    assert np.allclose(run(proto, {"x": x})[0], run(lowered, {"x": x})[0], atol=2e-6)


def test_what_atc_has_no_form_for_is_refused_by_name() -> None:
    fast = model([helper.make_node("FastGelu", ["x"], ["y"], name="fast", domain="com.microsoft")], opset=17)
    fast.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    norm = helper.make_node("LayerNormalization", ["x", "gain"], ["y"], name="norm", axis=0)
    for proto, words in (
        (fast, r"fast: com\.microsoft\.FastGelu .*E16005"),
        (
            model([norm], {"gain": np.ones((4, 8), np.float32)}, opset=17),
            "norm: LayerNormalization over more than the last axis",
        ),
    ):
        with pytest.raises(LoweringError, match=words):
            atc_form(proto)


def test_operators_that_are_not_compiled_are_counted_and_named_once() -> None:
    for operator, domain in (
        *((name, "") for name in ("QuantizeLinear", "DequantizeLinear", "MatMulInteger")),
        ("SkipLayerNormalization", "com.microsoft"),
    ):
        nodes = [helper.make_node(operator, ["x"], [f"y{i}"], name=f"n{i}", domain=domain) for i in range(3)]
        found = [i for i in check_operators(model(nodes)) if operator in i.operator and "E19999" not in i.problem]
        assert [(i.severity, i.node) for i in found] == [("error", "n0 (and 2 more)")]


def test_constants_that_half_precision_cannot_hold_are_named() -> None:
    beyond = dict.fromkeys((-3.4028235e38, -np.inf, 70000.0), "infinite in fp16")
    for number, words in (
        beyond | {1e-12: "zero in fp16"} | dict.fromkeys((-65504.0, -10000.0, 1e-5, 0.0), "")
    ).items():
        with np.errstate(over="ignore"):
            rounded = np.float32(number).astype(np.float16)
        assert (bool(np.isinf(rounded)) or (number != 0 and rounded == 0)) == bool(words)  # numpy agrees with the rule

        nodes = [helper.make_node("Add", ["x", "c"], ["y"], name="mask")]
        issues = check_operators(model(nodes, {"c": np.array(number, np.float32)}))

        issues = tuple(issue for issue in issues if "dynamic" not in issue.problem)
        assert [i.node for i in issues] == (["mask"] if words else [])
        assert all(words in i.problem for i in issues)


def test_what_an_ai_cpu_runs_is_named_with_its_modelled_cost_and_the_mend() -> None:
    nodes = [
        helper.make_node("ReverseSequence", ["x", "lengths"], ["r"], name="turn"),
        helper.make_node("Add", ["lengths", "one"], ["more"], name="longer"),
        helper.make_node("ReverseSequence", ["r", "more"], ["y"], name="back"),
    ]
    proto = model(nodes, {"one": np.array([1])}, lengths=1)

    slow = {issue.node: issue for issue in check_operators(proto) if issue.slow}

    assert set(slow) == {"turn (and 1 more)", "longer"}
    assert "at least 120 us a call (modelled)" in slow["turn (and 1 more)"].problem
    assert "Gather with a constant index" in slow["turn (and 1 more)"].remedy
    assert "64-bit integers" in slow["longer"].problem
    assert "int32" in slow["longer"].remedy
    assert load_device_data("Ascend910B3").aicpu_launch_us == AICPU_START_US
    assert {core_of(operator) for operator in ON_AN_AICPU} == {"aicpu"}
