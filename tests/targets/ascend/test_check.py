"""What is said of a candidate before any work, without a CANN."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.targets.encoder import save, tiny_encoder
from workbench.ascend_settings import ASCEND, AscendCompile
from workbench.candidate import Candidate, Precision
from workbench.graph import read_model
from workbench.targets.ascend.check import candidate_issues

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
        ("customize_dtypes", "OpType::Gelu:InputDtype:half,OutputDtype:", "ATC: E20003", "float16"),
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
