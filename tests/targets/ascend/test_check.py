"""What is said of a candidate before any work, without a CANN."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.small_graphs import graph_of, saved
from tests.targets.encoder import save, tiny_encoder
from workbench.graph.read import read_model
from workbench.targets.ascend.check import candidate_issues
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.testing.conformance import STATIC
from workbench.values.candidate import Candidate, Precision

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
