"""Candidates: impossible ones cannot be constructed, equal ones have equal ids."""

import json
from dataclasses import fields, replace
from typing import Any, get_args

import pytest

from workbench.report.written.cells import speaking
from workbench.report.written.document import Language
from workbench.report.written.naming import candidate_name
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate, Precision, Quantization, Serving, candidate_from_json
from workbench.values.errors import ConfigError
from workbench.values.setting_groups import describe

STATIC = Quantization(
    scheme="static",
    algorithm="percentile",
    percentile=99.99,
    activation_symmetric=False,
    weight_granularity="channel",
    attention_matmul=True,
    keep_float=2,
)


def test_a_candidate_survives_json_with_its_id() -> None:
    candidate = Candidate(
        target="onnxruntime", quantization=STATIC, compile=OnnxRuntimeCompile(disabled_fusions=("GeluFusionL2",))
    )

    again = candidate_from_json(json.loads(json.dumps(candidate.to_json())))

    assert again == candidate
    assert again.id == candidate.id
    assert candidate.short_id == candidate.id[:12]


def test_another_version_of_a_stored_candidate_is_refused() -> None:
    with pytest.raises(ConfigError, match="version 2 is unknown"):
        candidate_from_json({**Candidate(target="onnxruntime").to_json(), "version": 2})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheme": "static"}, "quantization.algorithm: must be set when the scheme is 'static'"),
        ({"scheme": "none", "algorithm": "kl"}, "'kl' means nothing with scheme 'none'"),
        ({"scheme": "dynamic"}, "quantization.weight_granularity: must be set"),
        ({"scheme": "dynamic", "weight_granularity": "row"}, "'row' is none of 'tensor', 'channel'"),
        ({"scheme": "int4"}, "'int4' is none of 'none', 'dynamic', 'static'"),
    ],
)
def test_settings_that_a_scheme_does_not_use_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises((ConfigError, KeyError), match=message):
        Quantization(**settings)  # type: ignore[arg-type]  # wrong values are the point


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"percentile": 49.0}, r"outside \(50, 100\]"),
        ({"keep_float": -1}, "-1 is negative"),
        ({"algorithm": "kl"}, "99.99 means nothing"),
    ],
)
def test_values_out_of_range_are_refused(change: dict[str, object], message: str) -> None:
    values = {name: getattr(STATIC, name) for name in STATIC.__slots__}

    with pytest.raises(ConfigError, match=message):
        Quantization(**{**values, **change})


@pytest.mark.parametrize("level", ["disabled", "basic"])
def test_int8_below_the_level_that_forms_integer_kernels_cannot_be_constructed(level: str) -> None:
    with pytest.raises(ConfigError, match="leaves INT8 layers in float"):
        Candidate(
            target="onnxruntime",
            quantization=STATIC,
            compile=OnnxRuntimeCompile(graph_optimization=level),  # type: ignore[arg-type]  # parametrized
        )


@pytest.mark.parametrize(
    ("fusions", "message"),
    [
        (("GeluFusionL3",), "Did you mean 'GeluFusionL2' or 'GeluFusionL1'"),
        (("GeluFusionL2", "BiasGeluFusion"), "sorted and unique"),
        (("GeluFusionL2", "GeluFusionL2"), "sorted and unique"),
    ],
)
def test_fusion_names_are_checked_because_the_runtime_ignores_unknown_ones(
    fusions: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        OnnxRuntimeCompile(disabled_fusions=fusions)


def test_serving_needs_at_least_one_of_everything() -> None:
    with pytest.raises(ConfigError, match=r"serving.batch: 0 is not from 1 to 65536"):
        Serving(batch=0)


def test_the_flat_view_leaves_out_what_does_not_apply() -> None:
    assert "quantization.percentile" not in Candidate(target="onnxruntime").parameters()
    assert Candidate(target="onnxruntime", quantization=STATIC).parameters()["quantization.percentile"] == 99.99


def test_a_description_says_what_differs_from_plain_float() -> None:
    assert describe(Candidate(target="onnxruntime")) == "fp32"
    assert describe(Candidate(target="onnxruntime", quantization=STATIC)) == (
        "INT8 static, percentile 99.99, asymmetric, weights per channel, attention too, 2 layers in float"
    )
    one = replace(STATIC, keep_float=1, keep_float_unit="group")
    assert describe(Candidate(target="onnxruntime", quantization=one)).endswith("1 group in float")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scheme", "dynamic"),
        ("algorithm", "minmax"),
        ("percentile", 99.9),
        ("activation_symmetric", True),
        ("weight_granularity", "tensor"),
        ("weight_algorithm", "mse"),
        ("attention_matmul", False),
        ("balance", 0.5),
        ("bias_correction", True),
        ("keep_float", 3),
        ("keep_float_unit", "group"),
        ("sensitivity", "kl"),
        ("operators", "matmul"),
        ("operators", "conv"),
    ],
)
def test_no_two_ways_to_quantize_are_described_in_the_same_words(field: str, value: object) -> None:
    settings = {f.name: getattr(STATIC, f.name) for f in fields(STATIC)} | {field: value}
    if field == "scheme":
        settings = {"scheme": value, "weight_granularity": "channel"}
    if value == "minmax":
        settings["percentile"] = None
    pair = [Candidate(target="onnxruntime", quantization=each) for each in (STATIC, Quantization(**settings))]

    for language in get_args(Language):
        with speaking(language):
            assert len({candidate_name(each) for each in pair}) == 2


def test_every_field_of_a_quantization_is_among_those_that_are_described() -> None:
    told = {case[0] for case in test_no_two_ways_to_quantize_are_described_in_the_same_words.pytestmark[0].args[1]}

    assert told == {f.name for f in fields(Quantization)} - {"cfg", "calibrator"}
    other = Candidate(
        target="ascend910b3",
        precision=Precision(mode="force_fp16"),
        quantization=replace(
            STATIC, algorithm="minmax", percentile=None, attention_matmul=False, calibrator="workbench"
        ),
    )
    assert "scales by workbench" in describe(other)
    with speaking("zh"):
        assert "标定器 workbench" in candidate_name(other)


def test_a_description_of_openvino_names_it_and_only_what_differs_from_its_defaults() -> None:
    def words(**settings: Any) -> str:
        return describe(Candidate(target="openvino", compile=OpenVinoCompile(**settings)))

    assert words() == "OpenVINO, fp32"
    assert words(performance_hint="throughput") == "OpenVINO, fp32, hint throughput"
    assert words(inference_precision="bf16") == "OpenVINO, fp32, the rest in bf16"


def test_bins_are_part_of_a_candidate_and_of_its_words() -> None:
    plain = Candidate(target="onnxruntime")
    binned = Candidate(target="onnxruntime", serving=Serving(sequence_bins=(32, 64, 256)))

    assert plain.sequence_bins is None
    assert binned.sequence_bins == (32, 64, 256)
    assert candidate_from_json(json.loads(json.dumps(binned.to_json()))) == binned
    assert binned.parameters()["serving.sequence_bins"] == "32 64 256"
    assert describe(binned) == "fp32, bins 32 64 256"
    assert describe(Candidate(target="onnxruntime", serving=Serving(sequence_bins=(256,)))) == "fp32, length 256"


def test_candidates_without_bins_kept_the_ids_they_had_before_there_were_any() -> None:
    assert "sequence_bins" not in Candidate(target="onnxruntime").to_json()["serving"]
    assert "serving.sequence_bins" not in Candidate(target="onnxruntime").parameters()
    assert Candidate(target="onnxruntime").short_id == "738e6d3d3801"
