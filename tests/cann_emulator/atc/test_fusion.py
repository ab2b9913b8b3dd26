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
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.fusion import ALWAYS_ON_AT_O1, BUILT_IN, FORBIDDEN_TO_CLOSE, Switches, read_switches
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


def read(folder: Path, text: str, oo_level: str = "O3") -> Switches:
    (folder / "switch.cfg").write_text(text)
    return read_switches(str(folder / "switch.cfg"), oo_level)


def test_lines_of_text_switch_both_groups(tmp_path: Path) -> None:
    switches = read(tmp_path, "GeluFusionPass:off\n\nTbeEltwiseFusionPass: off\n")
    for group in BUILT_IN:
        assert not switches.is_on("GeluFusionPass", group)
        assert not switches.is_on("TbeEltwiseFusionPass", group)


def test_all_does_not_reach_passes_with_a_line_of_their_own_in_the_built_in_file(tmp_path: Path) -> None:
    """atc.md §4.2: explicit entries, the built-in ones too, come before "ALL"."""
    off = read(tmp_path, '{"Switch": {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}}}')
    on = read(tmp_path, '{"Switch": {"GraphFusion": {"ALL": "on"}}}')
    assert off.is_on("LayerNormGradV3FusionPass", "GraphFusion")
    assert off.is_on("TbeMatmulFixPipeFusionPass", "UBFusion")
    assert not off.is_on("GeluFusionPass", "GraphFusion")
    assert not on.is_on("SoftmaxSmallOpFusionPass", "GraphFusion")


def test_protected_passes_stay_on_whatever_is_said(tmp_path: Path) -> None:
    for name in FORBIDDEN_TO_CLOSE | ALWAYS_ON_AT_O1:
        text = json.dumps({"Switch": {"GraphFusion": {name: "off", "ALL": "off"}, "UBFusion": {name: "off"}}})
        assert all(read(tmp_path, text, level).is_on(name, group) for level in ("O3", "O1") for group in BUILT_IN), name


def test_files_of_another_form_are_refused_by_code(tmp_path: Path) -> None:
    json_forms = ('{"Switch": {"GraphFusion": {"A": "OFF"}}}', '{"Switches": {}}', '{"Switch": {"Graph": {}}}', "[]")
    for code, texts in {
        "E21001": ("",),
        "E21002": (*json_forms, '{"Priority": []}', '{"ExceptionalPassOfO1Level": {"A": "on"}}'),
        "E20003": ("A:off\nA:on", "A:Off", "A off", '{"Switch": {"GraphFusion": {"A": "off"}}'),  # broken JSON is text
    }.items():
        for text in texts:
            with pytest.raises(AtcFailure) as caught:
                read(tmp_path, text)
            assert [record.code for record in caught.value.records] == [code], text
