"""What the fusion passes join, and that each can be switched (atc.md §4.2, §4.3)."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import (
    BATCH,
    LENGTH,
    STATIC,
    Array,
    compiled,
    difference,
    encoder,
    options,
    quantized_encoder,
    types_of,
)
from tests.targets.encoder import ids, model_of
from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.conversion import run_compile
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.om import OfflineModel


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("ASCEND_WORK_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return


def switched(folder: Path, model: Path, states: dict[str, dict[str, str]], **flags: str) -> OfflineModel:
    (folder / "switch.json").write_text(json.dumps({"Switch": states}))
    return compiled(model, input_shape=STATIC, fusion_switch_file=str(folder / "switch.json"), **flags)


def running(model: OfflineModel) -> int:
    return sum(kernel.core != "none" for kernel in model.gears[-1].kernels)


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


def test_without_any_fusion_the_result_is_the_same_up_to_rounding(tmp_path: Path) -> None:
    path = encoder(tmp_path)
    fused = compiled(path, input_shape=STATIC)
    bare = switched(tmp_path, path, {"GraphFusion": {"ALL": "off"}, "UBFusion": {"ALL": "off"}})
    assert running(bare) > 2 * running(fused)
    assert not bare.graph_fusions
    assert not bare.ub_fusions
    assert all(len(kernel.nodes) <= 1 for kernel in bare.gears[0].kernels)
    assert difference(bare, path, ids(BATCH, LENGTH)) < 0.03


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


def test_a_softmax_in_pieces_becomes_one(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", "x", "top", axes=[-1]),
        node("Sub", "x top", "shifted"),
        node("Exp", "shifted", "e"),
        node("ReduceSum", "e axis", "total"),
        node("Div", "e total", "y"),
    ]
    write(tmp_path / "m.onnx", nodes, {"axis": np.array([-1])}, [2, 8])
    model = compiled(tmp_path / "m.onnx")
    assert model.graph_fusions == {"SoftmaxFusionPass": (1, 1)}
    assert ("SoftmaxV2", "float16") in types_of(model)
    assert difference(model, tmp_path / "m.onnx", {"x": np.linspace(-3, 3, 16, dtype=np.float32).reshape(2, 8)}) < 1e-3


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


def test_a_gelu_with_other_constants_is_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", TANH_GELU, {**TANH_CONSTANTS, "small": np.array(0.05, np.float32)}, [2, 8])
    assert not compiled(tmp_path / "m.onnx").graph_fusions


def test_what_somebody_else_reads_stays_outside(tmp_path: Path) -> None:
    nodes = [*TANH_GELU[:-1], node("Mul", "halved plus", "g"), node("Add", "g t", "y")]
    write(tmp_path / "m.onnx", nodes, TANH_CONSTANTS, [2, 8])
    assert not compiled(tmp_path / "m.onnx").graph_fusions


def test_a_square_written_as_a_product_is_the_other_layer_norm_pass(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMean", "x", "m", axes=[-1]),
        node("Sub", "x m", "c"),
        node("Mul", "c c", "sq"),
        node("ReduceMean", "sq", "v", axes=[-1]),
        node("Add", "v eps", "ve"),
        node("Sqrt", "ve", "s"),
        node("Div", "c s", "y"),
    ]
    write(tmp_path / "m.onnx", nodes, {"eps": np.array(1e-12, np.float32)}, [2, 8])
    model = compiled(tmp_path / "m.onnx")
    assert model.graph_fusions == {"LayerNormFusionPass": (1, 1)}
    (norm,) = [kernel for kernel in model.gears[0].kernels if kernel.op_type == "LayerNorm"]
    assert [tensor.name for tensor in norm.inputs if "Cast" not in tensor.name] == []  # epsilon is an attribute now


def test_a_transpose_before_a_product_of_activations_joins_it(tmp_path: Path) -> None:
    nodes = [
        node("Transpose", "x", "xt", perm=[0, 2, 1]),
        node("MatMul", "x xt", "y"),
    ]
    write(tmp_path / "m.onnx", nodes, {}, [2, 4, 8])
    model = compiled(tmp_path / "m.onnx")
    assert model.graph_fusions["BatchMatMulTransposeFusionPass"] == (1, 1)
    x = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
    assert difference(model, tmp_path / "m.onnx", {"x": x}) < 0.02


def test_a_sum_that_two_read_is_a_second_result_of_its_kernel(tmp_path: Path) -> None:
    nodes = [
        node("Exp", "x", "e"),
        node("Add", "x e", "sum"),
        node("ReduceMean", "sum", "m", axes=[-1]),
        node("Sub", "sum m", "c"),
        node("Pow", "c two", "sq"),
        node("ReduceMean", "sq", "v", axes=[-1]),
        node("Add", "v eps", "ve"),
        node("Sqrt", "ve", "s"),
        node("Div", "c s", "n"),
        node("Tanh", "n", "t"),
        node("Add", "t sum", "y"),
    ]
    weights: dict[str, Array] = {"eps": np.array(1e-5, np.float32), "two": np.array(2, np.float32)}
    write(tmp_path / "m.onnx", nodes, weights, [2, 8])
    model = compiled(tmp_path / "m.onnx")
    (norm,) = [kernel for kernel in model.gears[0].kernels if kernel.op_type == "AddLayerNorm"]
    assert {tensor.name for tensor in norm.outputs} == {"n", "sum"}
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    assert difference(model, tmp_path / "m.onnx", {"x": x}) < 0.02


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


def test_an_earlier_result_goes_when_the_engine_starts_and_none_is_written_on_request(tmp_path: Path) -> None:
    path, result = encoder(tmp_path), tmp_path / "fusion_result.json"
    result.write_text("old")
    with pytest.raises(AtcFailure, match="EE1001"):
        run_compile(options(path, input_shape=STATIC, soc_version="nobody"), Console())
    assert result.read_text() == "old"  # it failed before
    with pytest.raises(AtcFailure, match="E10016"):
        run_compile(options(path, input_shape=f"{STATIC};nobody:1,2"), Console())
    assert not result.exists()
    run_compile(options(path, input_shape=STATIC, export_compile_stat="0"), Console())
    assert not result.exists()


def test_the_result_goes_into_the_work_path_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASCEND_WORK_PATH", str(tmp_path / "work"))
    compiled(encoder(tmp_path), input_shape=STATIC)
    (found,) = (tmp_path / "work" / "FE").glob("*/fusion_result.json")
    assert found.parent.name.isdecimal()
