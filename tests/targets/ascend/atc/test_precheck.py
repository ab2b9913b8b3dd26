import json
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.offline_files import gelu_model
from tests.targets.ascend.played_atc import play_atc
from tests.targets.encoder import tiny_encoder
from workbench.targets.ascend.check import check_model, read_report
from workbench.values.errors import CheckError


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
