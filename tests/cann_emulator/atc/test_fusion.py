"""Fusion passes and precision: what is joined, what can be switched, which types kernels get (atc.md §3, §4)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cann_emulator.atc.compiling import STATIC, compiled, encoder, quantized_encoder
from workbench.cann_emulator.atc.failure import AtcFailure
from workbench.cann_emulator.atc.fusion import read_switches
from workbench.cann_emulator.atc.precision import CUBE_TYPES
from workbench.cann_emulator.om import Kernel, OfflineModel


def test_an_encoder_becomes_library_operators_and_fusion_result_names_what_matched(tmp_path: Path) -> None:
    """atc.md §4.4: strings, repository_hit_times for UB passes only, 4 blanks of indent."""
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
    text = (tmp_path / "fusion_result.json").read_text()
    (graph,) = json.loads(text).values()
    assert text.startswith('{\n    "session_and_graph_id_')
    assert graph["graph_fusion"]["GeluFusionPass"] == {"effect_times": "1", "match_times": "1"}
    assert set(graph["graph_fusion"]) == set(model.graph_fusions)
    assert {key for told in graph["ub_fusion"].values() for key in told} >= {"repository_hit_times"}


@pytest.mark.parametrize("quantized", [False, True])
def test_every_pass_that_matched_can_be_switched_off_and_changes_the_kernels(quantized: bool, tmp_path: Path) -> None:
    path = quantized_encoder(tmp_path, products=True) if quantized else encoder(tmp_path)
    plain = compiled(path, input_shape=STATIC)
    matched = [("GraphFusion", name) for name in plain.graph_fusions] + [("UBFusion", n) for n in plain.ub_fusions]
    assert len(matched) > 8
    for group, name in matched:
        (tmp_path / "switch.json").write_text(json.dumps({"Switch": {group: {name: "off"}}}))
        model = compiled(path, input_shape=STATIC, fusion_switch_file=str(tmp_path / "switch.json"))
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


def test_files_of_another_form_are_refused_by_code(tmp_path: Path) -> None:
    json_forms = ('{"Switch": {"GraphFusion": {"A": "OFF"}}}', '{"Switches": {}}', '{"Switch": {"Graph": {}}}', "[]")
    for code, texts in {
        "E21001": ("",),
        "E21002": (*json_forms, '{"Priority": []}', '{"ExceptionalPassOfO1Level": {"A": "on"}}'),
        "E20003": ("GeluFusionPass:off", '{"Switch": {"GraphFusion": {"A": "off"}}'),
    }.items():
        for text in texts:
            (tmp_path / "switch.cfg").write_text(text)
            with pytest.raises(AtcFailure) as caught:
                read_switches(str(tmp_path / "switch.cfg"))
            assert [record.code for record in caught.value.records] == [code], text


def dtypes(model: OfflineModel, chosen: Callable[[Kernel], bool] | str) -> set[str]:
    return {k.dtype for k in model.gears[0].kernels if (k.op_type == chosen if isinstance(chosen, str) else chosen(k))}


def is_cube(kernel: Kernel) -> bool:
    return kernel.op_type in CUBE_TYPES and "MatMul" in kernel.op_type


def test_modes_decide_by_kind_of_operator(tmp_path: Path) -> None:
    path, half, single, both = encoder(tmp_path), {"float16"}, {"float32"}, {"float16", "float32"}
    for flag, modes in {
        "precision_mode": {
            "force_fp16": (half, half),
            "force_fp32": (half, single),
            "cube_fp16in_fp32out": (half, single),
            "allow_fp32_to_fp16": (half, single),
            "must_keep_origin_dtype": (single, single),
            "allow_mix_precision": (half, both),
            "allow_mix_precision_bf16": ({"bfloat16"}, {"bfloat16", "float32"}),
            "allow_fp32_to_bf16": (single, single),
        },
        "precision_mode_v2": {"fp16": (half, half), "origin": (single, single), "mixed_float16": (half, both)},
    }.items():
        for mode, expected in modes.items():
            model = compiled(path, input_shape=STATIC, **{flag: mode})
            vector = dtypes(model, lambda kernel: kernel.core == "vector" and kernel.op_type != "Cast")
            assert (dtypes(model, is_cube), vector) == expected, mode


def test_keep_dtype_by_type_and_by_the_names_of_the_file(tmp_path: Path) -> None:
    for line, kind in (
        ("pool", "ReduceMeanD"),
        ("OpType::ReduceMean", "ReduceMeanD"),
        ("OpType::LayerNorm", "AddLayerNorm"),
    ):
        (tmp_path / "keep.txt").write_text(f"{line}\nnobody_has_this_name\n")
        model = compiled(encoder(tmp_path), input_shape=STATIC, keep_dtype=str(tmp_path / "keep.txt"))
        assert dtypes(model, kind) == {"float32"}
        assert dtypes(model, is_cube) == {"float16"}
    # --customize_dtypes beats --keep_dtype and the mode
    (tmp_path / "keep.txt").write_text("OpType::SoftmaxV2\n")
    (tmp_path / "custom.txt").write_text("softmax::InputDtype:float16,OutputDtype:float16\n")
    files = {"keep_dtype": str(tmp_path / "keep.txt"), "customize_dtypes": str(tmp_path / "custom.txt")}
    model = compiled(encoder(tmp_path), input_shape=STATIC, precision_mode="must_keep_origin_dtype", **files)
    assert dtypes(model, "SoftmaxV2") == {"float16"}


def test_implementation_modes_reach_the_kernels_of_their_types(tmp_path: Path) -> None:
    path = encoder(tmp_path)

    def modes(**flags: str) -> dict[str, str]:
        model = compiled(path, input_shape=STATIC, **flags)
        return {k.op_type: k.implementation for k in model.gears[0].kernels if k.implementation}

    assert modes() == {}
    assert modes(op_select_implmode="high_precision", optypelist_for_implmode="SoftmaxV2,AddLayerNorm") == {
        "SoftmaxV2": "high_precision",
        "AddLayerNorm": "high_precision",
    }
    (tmp_path / "op.ini").write_text("[ByOpType]\nSoftmaxV2=high_performance\n[ByNodeName]\npool=high_precision\nx=?\n")
    assert modes(op_precision_mode=str(tmp_path / "op.ini"), op_select_implmode="high_precision") == {
        "SoftmaxV2": "high_performance",
        "ReduceMeanD": "high_precision",
    }
    assert "GatherV2" in modes(op_select_implmode="high_precision_for_all")
