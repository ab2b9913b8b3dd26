"""The pre-check and its report (atc.md §5.6, §8)."""

import json
from pathlib import Path

from tests.cann_emulator.atc.compiling import encoder, options
from tests.targets.encoder import tiny_encoder
from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.conversion import run_precheck
from workbench.cann_emulator.atc.operator_types import is_registered


def test_a_good_model_passes_without_shapes_or_output(tmp_path: Path) -> None:
    run_precheck(options(encoder(tmp_path)), Console())
    report = json.loads((tmp_path / "check_result.json").read_text())
    assert (report["name"], report["result"], report["fail"]) == ("encoder", "success", 0)
    proto = tiny_encoder()
    assert report["total"] == report["pass"] == len(proto.graph.node) + 1 + len(proto.graph.initializer)
    assert [op["type"] for op in report["op"]][-1] == "Constant"
    assert {"name": "ids", "result": "success", "type": "Input"} in report["op"]
    assert {op["type"] for op in report["op"]} >= {"ai.onnx::17::MatMul"}
    assert all("cause" not in op for op in report["op"])


def test_plugins_are_registered_by_opset() -> None:
    """atc.md §8; amct.md §6.1. GridSample at 11 is MMCV's export; for MMCVModulatedDeformConv2d users write
    DeformableConv2D instead."""
    yes = {11: "MatMul GridSample DeformableConv2D", 8: "AscendDequant", 14: "Trilu", 16: "GridSample"}
    yes |= {18: "MatMul BitwiseAnd", 22: "AscendQuant AscendRequantS16"}
    no = {7: "MatMul", 19: "MatMul", 23: "AscendQuant", 17: "LayerNormalization QuantizeLinear BitwiseAnd"}
    no |= {13: "MatMulInteger Loop Trilu", 15: "GridSample", 11: "Scan MMCVModulatedDeformConv2d", 14: "Bernoulli"}
    for known, kinds in ((True, yes), (False, no)):
        for opset, names in kinds.items():
            for kind in names.split():
                assert is_registered("", opset, kind) is known, (opset, kind)
    assert is_registered("npu", 1, "NPURmsNorm")
    for domain, opset, kind in (("npu", 1, "Add"), ("com.microsoft", 1, "MatMul"), ("com.microsoft", 11, "Add")):
        assert not is_registered(domain, opset, kind)
