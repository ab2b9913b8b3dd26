"""What is said of a candidate before any work: settings, their files, entries, and ATC's pre-check."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.emulated_cann import emulated_environment
from tests.reference_pages import fixed_passes
from tests.small_graphs import graph_of, saved
from tests.targets.ascend.offline_files import gelu_model
from tests.targets.ascend.played_atc import play_atc
from workbench.graph.read import read_model
from workbench.targets.ascend.check import candidate_issues, check_model, read_report
from workbench.targets.ascend.config_files import FUSION_GROUPS
from workbench.targets.ascend.settings import ASCEND, AscendCompile
from workbench.testing.conformance import STATIC
from workbench.testing.encoder import tiny_encoder
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.errors import CheckError, ConfigError
from workbench.values.setting_groups import describe

TWICE = "a::InputDtype:float,OutputDtype:float"
STATIC_IFMR = replace(STATIC, algorithm="ifmr")


def candidate(
    mode: str = "force_fp16", quantization: Quantization | None = None, batch: int = 1, **settings: object
) -> Candidate:
    return Candidate(
        target="ascend910b3",
        precision=Precision(mode=mode),
        quantization=quantization or Quantization(),
        compile=AscendCompile(**settings),  # type: ignore[arg-type]  # a test names fields by keyword
        serving=Serving(batch=batch),
    )


@pytest.mark.parametrize("mode", ["mixed_hif8", "cube_hif8"])
def test_hif8_is_refused_because_the_vendor_check_lets_it_pass(mode: str) -> None:
    """atc.md, fact 10."""
    with pytest.raises(ConfigError, match=r"not supported by CANN 8\.5"):
        candidate(mode)


@pytest.mark.parametrize("mode", ["force_fp32", "cube_fp16in_fp32out", "must_keep_origin_dtype", "origin"])
def test_int8_refuses_modes_that_give_neither_speed_nor_precision(mode: str) -> None:
    """atc.md, fact 5."""
    with pytest.raises(ConfigError, match="neither the speed nor the precision"):
        candidate(mode, STATIC_IFMR)


def test_int8_refuses_gears() -> None:
    """atc.md, fact 4."""
    with pytest.raises(ConfigError, match="cannot be compiled for dynamic shapes"):
        candidate(quantization=STATIC_IFMR, shapes="gears", sequence_bins=(32, 64))


def test_int8_refuses_high_precision_kernels() -> None:
    for settings in ({"op_select_implmode": "high_precision"}, {"op_precision_mode": ("Gelu=high_precision",)}):
        with pytest.raises(ConfigError, match="high_precision kernels"):
            candidate(quantization=STATIC_IFMR, **settings)


def test_int8_of_attention_products_must_be_symmetric() -> None:
    with pytest.raises(ConfigError, match="can only be symmetric"):
        candidate(quantization=replace(STATIC_IFMR, attention_matmul=True))
    candidate(quantization=replace(STATIC_IFMR, attention_matmul=True, activation_symmetric=True))


def test_dynamic_int8_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="no dynamic INT8"):
        candidate(quantization=Quantization(scheme="dynamic", weight_granularity="channel"))


@pytest.mark.parametrize(
    ("mode", "settings", "fault"),
    [
        ("origin", {"keep_dtype": ("OpType::LayerNorm",)}, "is void"),
        (
            "force_fp16",
            {"op_precision_mode": ("Gelu=high_performance",), "op_select_implmode": "high_performance"},
            "is void",
        ),
        ("force_fp16", {"oo_level": "O1", "disabled_fusions": ("gelu",)}, "O1 closes every fusion"),
        ("force_fp16", {"op_precision_mode": ("Gelu=fast",)}, "ATC would skip it"),
        ("force_fp16", {"customize_dtypes": (TWICE, TWICE.replace("float,", "int8,"))}, "the first wins"),
        ("force_fp16", {"disabled_fusions": ("softmax_small",)}, "no such group"),
        ("force_fp16", {"enabled_fusions": ("gelu",)}, "no such group"),
        ("force_fp16", {"disabled_fusions": ("softmax", "gelu")}, "sorted and unique"),
        ("force_fp16", {"batches": ()}, "no batch size"),
        ("force_fp16", {"sequence_bins": (64, 32)}, "not ascending"),
    ],
)
def test_settings_that_atc_ignores_are_refused(mode: str, settings: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        candidate(mode, **settings)


def test_a_batch_that_is_not_compiled_is_refused() -> None:
    with pytest.raises(ConfigError, match="larger than every compiled batch"):
        candidate(batch=16, batches=(1, 8))


def test_bins_on_ascend_are_compiled_ones() -> None:
    assert candidate(sequence_bins=(64, 128)).sequence_bins == (64, 128)
    assert candidate().sequence_bins is None
    with pytest.raises(ConfigError, match=r"Name the bins in compile\.sequence_bins"):
        replace(candidate(sequence_bins=(64, 128)), serving=Serving(sequence_bins=(64, 128)))


def test_a_candidate_is_described_by_what_differs_from_the_defaults() -> None:
    one = candidate("allow_mix_precision", STATIC_IFMR, sequence_bins=(64, 128), disabled_fusions=("gelu",))
    several = candidate(sequence_bins=(128,), batches=(1, 8))

    assert describe(one) == (
        "INT8 static, ifmr, asymmetric, weights per tensor, bins 64 128, the rest allow_mix_precision, no gelu"
    )
    assert describe(several) == "force_fp16, length 128, batches 1 8"


def test_groups_become_a_switch_file_in_json_with_every_pass_named() -> None:
    """atc.md §4.1 (JSON form) and §4.2 rule 6: only a name in the user's file beats a built-in entry."""
    settings = AscendCompile(disabled_fusions=("add_layer_norm",), enabled_fusions=("softmax_small",))

    name, text = settings.handed_files()["fusion_switch_file"]

    assert name == "fusion_switch.cfg"
    assert json.loads(text) == {
        "Switch": {
            "GraphFusion": {"AddLayerNormFusionPass": "off", "SoftmaxSmallOpFusionPass": "on"},
            "UBFusion": {"AddLayernormV3FusionPass": "off"},
        }
    }


def test_no_pass_is_in_two_groups_and_none_stays_on_whatever_is_said() -> None:
    """atc.md §4.3, Not closable; and §4.3, ExceptionalPassOfO1Level."""
    passes = [name for group in FUSION_GROUPS.values() for name in (*group.graph, *group.ub)]

    assert len(passes) == len(set(passes))
    assert not set(passes) & fixed_passes()


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
