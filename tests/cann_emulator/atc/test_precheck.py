"""The pre-check and its report (atc.md §5.6, §8)."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.cann_emulator.atc.compiling import encoder, options
from tests.targets.encoder import tiny_encoder
from workbench.cann_emulator.atc.console import Console
from workbench.cann_emulator.atc.conversion import run_compile, run_precheck
from workbench.cann_emulator.atc.failure import AtcFailure, Record
from workbench.cann_emulator.atc.operator_types import is_registered


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_WORK_PATH", raising=False)
    monkeypatch.chdir(tmp_path)


def records(folder: Path, flags: Mapping[str, str], *, mode_3: bool = True) -> tuple[Record, ...]:
    with pytest.raises(AtcFailure) as caught:
        (run_precheck if mode_3 else run_compile)(flags, Console())
    return caught.value.records


def unsupported(folder: Path) -> Path:
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], name="first", domain="com.microsoft"),
        helper.make_node("Relu", ["a"], ["b"], name="good", domain="ai.onnx"),
        helper.make_node("LayerNormalization", ["b", "g"], ["y"], name="second", domain="ai.onnx"),
    ]
    graph = helper.make_graph(
        nodes,
        "bad",
        [value("x", TensorProto.FLOAT, [1, 4]), value("g", TensorProto.FLOAT, [4])],
        [value("y", TensorProto.FLOAT, [1, 4])],
    )
    imports = [helper.make_opsetid("ai.onnx", 17), helper.make_opsetid("com.microsoft", 1)]
    (folder / "bad.onnx").write_bytes(helper.make_model(graph, opset_imports=imports).SerializeToString())
    return folder / "bad.onnx"


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


@pytest.mark.parametrize("mode_3", [True, False])
def test_every_unsupported_operator_is_told_at_once_and_the_report_is_written(mode_3: bool, tmp_path: Path) -> None:
    found = records(tmp_path, options(unsupported(tmp_path)), mode_3=mode_3)
    assert [(r.code, r.arguments["opname"], r.arguments["optype"]) for r in found] == [
        ("E13010", "first", "com.microsoft::1::Gelu"),
        ("E13010", "second", "ai.onnx::17::LayerNormalization"),
    ]
    path = tmp_path / "check_result.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    report = json.loads(path.read_text())
    assert (report["result"], report["total"], report["pass"], report["fail"]) == ("failed", 5, 3, 2)
    assert report["op"][0]["cause"][0]["code"] == 1
    assert path.read_text().startswith('{\n  "')


def test_a_node_without_domain_in_a_file_of_two_is_refused(tmp_path: Path) -> None:
    """atc.md, fact 9: E16005 with the number of domains."""
    proto = tiny_encoder()
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(proto, tmp_path / "m.onnx")
    (record,) = records(tmp_path, options(tmp_path / "m.onnx"), mode_3=False)
    assert (record.code, record.arguments["domain_version_size"]) == ("E16005", "2")
    assert not (tmp_path / "check_result.json").exists()  # no operator is to blame


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
