"""What the fusion passes join, and that each can be switched (atc.md §4.2, §4.3)."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import (
    STATIC,
    Array,
    compiled,
    encoder,
    quantized_encoder,
    types_of,
)
from tests.targets.encoder import model_of
from workbench.cann_emulator.om import OfflineModel


def switched(folder: Path, model: Path, states: dict[str, dict[str, str]], **flags: str) -> OfflineModel:
    (folder / "switch.json").write_text(json.dumps({"Switch": states}))
    return compiled(model, input_shape=STATIC, fusion_switch_file=str(folder / "switch.json"), **flags)


def test_an_encoder_becomes_library_operators(tmp_path: Path) -> None:
    model = compiled(encoder(tmp_path), input_shape=STATIC)
    assert model.graph_fusions == {
        "AddLayerNormFusionPass": (1, 1),
        "BatchMatMulToBatchMatmulV3FusionPass": (2, 2),
        "GeluFusionPass": (1, 1),
        "GemmToMatmulFusionPass": (1, 1),
        "LayerNormONNXFusionPass": (1, 1),
        "MatMulBiasAddFusionPass": (6, 6),
        "MatMulToMatmulV3FusionPass": (7, 7),
        "ReshapeTransposeFusionPass": (3, 3),
        "TransposeReshapeFusionPass": (1, 1),
    }
    up = next(kernel for kernel in model.gears[0].kernels if "up" in kernel.nodes)
    assert up.core == "mix"
    assert {"up", "up_bias", "erf", "gelu"} <= set(up.nodes)


@pytest.mark.parametrize("quantized", [False, True])
def test_every_pass_that_matched_can_be_switched_off_and_changes_the_kernels(quantized: bool, tmp_path: Path) -> None:
    path = quantized_encoder(tmp_path, products=True) if quantized else encoder(tmp_path)
    plain = compiled(path, input_shape=STATIC)
    matched = [("GraphFusion", name) for name in plain.graph_fusions] + [("UBFusion", n) for n in plain.ub_fusions]
    assert len(matched) > 8
    for group, name in matched:
        model = switched(tmp_path, path, {group: {name: "off"}})
        assert name not in {**model.graph_fusions, **model.ub_fusions}
        assert [k for k in model.gears[0].kernels] != [k for k in plain.gears[0].kernels], name


def test_o1_switches_off_what_can_be_switched_off(tmp_path: Path) -> None:
    """atc.md §2.3, --oo_level."""
    path = encoder(tmp_path)
    model = compiled(path, input_shape=STATIC, oo_level="O1")
    assert not model.graph_fusions
    assert not model.ub_fusions
    (tmp_path / "switch.json").write_text('{"ExceptionalPassOfO1Level": ["GeluFusionPass"]}')
    kept = compiled(path, input_shape=STATIC, oo_level="O1", fusion_switch_file=str(tmp_path / "switch.json"))
    assert kept.graph_fusions == {"GeluFusionPass": (1, 1)}


def write(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Array], shape: list[int | str]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    onnx.save(model_of(nodes, weights, [x], [y], opset=14), path)


def node(op_type: str, inputs: str, output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], name=f"{op_type}_{output}", **attributes)


TANH_GELU = [
    node("Pow", "x three", "cube"),
    node("Mul", "cube small", "weighted"),
    node("Add", "x weighted", "sum"),
    node("Mul", "sum root", "inner"),
    node("Tanh", "inner", "t"),
    node("Add", "t one", "plus"),
    node("Mul", "x half", "halved"),
    node("Mul", "halved plus", "y"),
]
TANH_CONSTANTS: dict[str, Array] = {
    name: np.array(value, np.float32)
    for name, value in {"three": 3, "small": 0.044715, "root": 0.7978846, "one": 1, "half": 0.5}.items()
}


def test_a_gelu_with_tanh_becomes_one_at_static_shapes_only(tmp_path: Path) -> None:
    """atc.md §4.3: static shape only (atlasrr_30_0011)."""
    write(tmp_path / "m.onnx", TANH_GELU, TANH_CONSTANTS, ["n", 8])
    assert compiled(tmp_path / "m.onnx", input_shape="x:2,8").graph_fusions == {"GeluFusionPass": (1, 1)}
    assert not compiled(tmp_path / "m.onnx", input_shape="x:1~4,8").graph_fusions


def test_dumpable_quantization_stays_in_kernels_of_its_own(tmp_path: Path) -> None:
    """atc.md §2.3, --quant_dumpable."""
    path = quantized_encoder(tmp_path)
    kinds = types_of(compiled(path, input_shape=STATIC, quant_dumpable="1"))
    assert kinds["AscendDequant", "int8"] == 7
    assert kinds["AscendQuant", "int8"] == 5
    assert ("AscendDequant", "int8") not in types_of(compiled(path, input_shape=STATIC))


def test_fusion_result_names_what_matched(tmp_path: Path) -> None:
    """atc.md §4.4: strings, repository_hit_times for UB passes only, 4 blanks of indent."""
    model = compiled(encoder(tmp_path), input_shape=STATIC)
    text = (tmp_path / "fusion_result.json").read_text()
    (graph,) = json.loads(text).values()
    assert graph["graph_fusion"]["GeluFusionPass"] == {"effect_times": "1", "match_times": "1"}
    assert set(graph["graph_fusion"]) == set(model.graph_fusions)
    first = next(iter(graph["ub_fusion"].values()))
    assert set(first) == {"effect_times", "match_times", "repository_hit_times"}
    assert text.startswith('{\n    "session_and_graph_id_')
