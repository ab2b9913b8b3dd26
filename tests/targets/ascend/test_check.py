"""What is said of a candidate before any work, without a CANN."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.emulated_cann import emulated_environment
from tests.small_graphs import graph_of, saved
from tests.targets.ascend.offline_files import gelu_model
from tests.targets.ascend.played_atc import play_atc
from tests.targets.encoder import save, tiny_encoder
from workbench.graph.read import read_model
from workbench.targets.ascend.check import candidate_issues, check_model, read_report
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.testing.conformance import STATIC
from workbench.values.candidate import Candidate, Precision
from workbench.values.errors import CheckError

MIXED = Candidate(
    target=ASCEND,
    precision=Precision(mode="allow_mix_precision"),
    compile=AscendCompile(batches=(1,), sequence_bins=(8,)),
)


@pytest.fixture(autouse=True)
def _no_cann(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


@pytest.mark.parametrize(
    ("setting", "entry", "problem", "remedy"),
    [
        ("modify_mixlist", "SoftmaxV2", "ATC: E21002", "black-list.to-add:SoftmaxV2"),
        ("op_precision_mode", "Gelu=fast", "no entry of --op_precision_mode", "ATC would skip it"),
        ("keep_dtype", "OpType::layerNorm", "ATC: E10003", "OpType::LayerNorm"),
    ],
)
def test_an_entry_that_atc_would_refuse_or_skip_is_an_error_with_its_remedy(
    tmp_path: Path, setting: str, entry: str, problem: str, remedy: str
) -> None:
    model = read_model(save(tiny_encoder(), tmp_path / "model.onnx"))
    changes: dict[str, Any] = {setting: (entry,)}

    first, *_ = candidate_issues(model, replace(MIXED, compile=replace(MIXED.compile, **changes)))

    assert (first.severity, first.node) == ("error", f"compile.{setting}")
    assert problem in first.problem
    assert remedy in first.remedy
    assert [issue for issue in candidate_issues(model, MIXED) if issue.severity == "error"] == []


@pytest.mark.parametrize(("dense", "severity"), [(False, "error"), (True, "warning")])
def test_layers_that_amct_leaves_in_float_are_said_before_anything_is_calibrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: bool, severity: str
) -> None:
    """AMCT has no convolution along one axis (amct.md §5); without AMCT the native engine calibrates."""
    kernel = np.ones((3, 3, 2), np.float32)
    nodes = [helper.make_node("Conv", ["x", "kernel"], ["seen" if dense else "y"], name="conv")]
    if dense:
        nodes.append(helper.make_node("MatMul", ["seen", "weight"], ["y"], name="dense"))
    constants = {"kernel": kernel, **({"weight": np.ones((4, 4), np.float32)} if dense else {})}
    model = read_model(saved(graph_of(nodes, constants, ["batch", 3, 5]), tmp_path))
    int8 = replace(STATIC, algorithm="ifmr")
    candidate = replace(MIXED, quantization=int8, compile=replace(MIXED.compile, sequence_bins=()))

    assert [i for i in candidate_issues(model, candidate) if i.node == "conv"] == []
    monkeypatch.setenv("WORKBENCH_AMCT_PYTHON", "/opt/amct/bin/python")
    (issue,) = [i for i in candidate_issues(model, candidate) if i.node == "conv"]

    assert issue.severity == severity
    assert "3 dimensions, AMCT takes 4 or 5" in issue.problem
    native = replace(candidate, quantization=replace(int8, calibrator="workbench"))
    assert [i for i in candidate_issues(model, native) if i.node == "conv"] == []


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return emulated_environment(tmp_path_factory.mktemp("cann"))


def test_every_operator_that_atc_lacks_is_an_issue(environment: dict[str, str], tmp_path: Path) -> None:
    issues = check_model(gelu_model(tmp_path), soc_version="Ascend910B3", environment=environment)

    assert [(issue.node, issue.operator, issue.severity) for issue in issues] == [
        ("encoder/gelu_7", "Gelu", "error"),
        ("r", "Relu", "error"),
    ]
    assert "ai.onnx::20::Gelu" in issues[0].problem
    assert issues[0].source == "atc --mode=3 on this machine"


def test_a_file_that_is_refused_as_a_whole_is_one_issue(environment: dict[str, str], tmp_path: Path) -> None:
    proto = tiny_encoder()
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(proto, tmp_path / "my model.onnx")

    (issue,) = check_model(tmp_path / "my model.onnx", soc_version="Ascend910B3", environment=environment)

    assert "more than one operator set" in issue.problem
    assert "E16005" in issue.problem


@pytest.mark.parametrize(
    ("body", "words", "transient"),
    [
        ("kill -KILL $$", "killed", True),
        ("sleep 60", "did not finish", True),
        ("exit 255", "gave no reason", False),
        ("echo '{' > \"$report\"; exit 255", "cannot be read", True),
    ],
    ids=["killed", "hangs", "says nothing", "half a report"],
)
def test_a_run_that_dies_says_nothing_about_the_model(tmp_path: Path, body: str, words: str, transient: bool) -> None:
    with pytest.raises(CheckError, match=words) as raised:
        check_model(
            tmp_path / "m.onnx",
            soc_version="Ascend910B3",
            environment=play_atc(tmp_path, body) | {"WORKBENCH_ATC_TIMEOUT_S": "1"},
        )

    assert raised.value.transient is transient


def test_causes_of_a_report_become_words(tmp_path: Path) -> None:
    """atc.md §5.6: cause codes 1, 2, 8 and 9."""
    report = {
        "op": [
            {"name": "a", "type": "ai.onnx::11::Add", "result": "success"},
            {
                "name": "b",
                "type": "ai.onnx::11::Foo",
                "result": "failed",
                "cause": [{"code": 1, "message": "m1"}, {"code": 9, "message": "m2"}],
            },
            {"name": "c", "type": "ai.onnx::11::Bar", "result": "failed", "cause": [{"code": 77, "message": ""}]},
        ]
    }
    (tmp_path / "r.json").write_text(json.dumps(report))

    issues = list(read_report(tmp_path / "r.json"))

    assert [(issue.node, issue.operator) for issue in issues] == [("b", "Foo"), ("b", "Foo"), ("c", "Bar")]
    assert "no parser" in issues[0].problem
    assert "m1" in issues[0].problem
    assert "same name" in issues[1].problem
    assert "cause 77" in issues[2].problem


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"op": [1]}'])
def test_a_report_of_another_form_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)

    with pytest.raises(ValueError, match=r"op|Expecting"):
        list(read_report(tmp_path / "r.json"))
