"""Candidates: impossible ones cannot be constructed, equal ones have equal ids."""

import json
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.values.test_installed_targets import installing
from workbench.report.written.document import Language
from workbench.report.written.wording import candidate_name, speaking
from workbench.targets.onnxruntime.settings import OnnxRuntimeCompile
from workbench.targets.openvino.settings import OpenVinoCompile
from workbench.values.candidate import Candidate, Precision, Quantization, Serving, candidate_from_json
from workbench.values.documents.canonical import DecodeError, decode
from workbench.values.errors import ConfigError
from workbench.values.installed_targets import installed_target
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


def compiled(**settings: Any) -> Candidate:
    return Candidate(target="onnxruntime", quantization=STATIC, compile=OnnxRuntimeCompile(**settings))


def test_a_candidate_survives_json_with_its_id_and_another_version_is_refused() -> None:
    candidate = Candidate(
        target="onnxruntime",
        quantization=STATIC,
        compile=OnnxRuntimeCompile(disabled_fusions=("GeluFusionL2",)),
        serving=Serving(sequence_bins=(32, 64)),
    )

    again = candidate_from_json(json.loads(json.dumps(candidate.to_json())))

    assert again == candidate
    assert again.id == candidate.id
    assert candidate.short_id == candidate.id[:12]
    with pytest.raises(DecodeError, match="candidate version 2 is unknown"):
        candidate_from_json({**candidate.to_json(), "version": 2})


def test_what_cannot_be_is_not_constructed() -> None:
    for build, settings, message in (
        (Quantization, {"scheme": "static"}, "quantization.algorithm: must be set when the scheme is 'static'"),
        (Quantization, {"scheme": "none", "algorithm": "kl"}, "'kl' means nothing with scheme 'none'"),
        (Quantization, {"scheme": "dynamic"}, "quantization.weight_granularity: must be set"),
        (Quantization, {"scheme": "dynamic", "weight_granularity": "row"}, "'row' is none of 'tensor', 'channel'"),
        (Quantization, {"scheme": "int4"}, "'int4' is none of 'none', 'dynamic', 'static'"),
        (partial(replace, STATIC), {"percentile": 49.0}, r"outside \(50, 100\]"),
        (partial(replace, STATIC), {"keep_float": -1}, "-1 is negative"),
        (partial(replace, STATIC), {"algorithm": "kl"}, "99.99 means nothing"),
        (compiled, {"graph_optimization": "disabled"}, "leaves INT8 layers in float"),
        (compiled, {"graph_optimization": "basic"}, "leaves INT8 layers in float"),
        (compiled, {"disabled_fusions": ("GeluFusionL3",)}, "Did you mean 'GeluFusionL2' or 'GeluFusionL1'"),
        (compiled, {"disabled_fusions": ("GeluFusionL2", "BiasGeluFusion")}, "sorted and unique"),
        (compiled, {"disabled_fusions": ("GeluFusionL2", "GeluFusionL2")}, "sorted and unique"),
        (Serving, {"batch": 0}, "serving.batch: 0 is not from 1 to 65536"),
        *(
            (Serving, {"sequence_bins": bins}, "are not ascending lengths from 1 to")
            for bins in ((), (32, 16), (0, 16))
        ),
        (Serving, {"sequence_bins": (16, 16)}, "are not ascending lengths from 1 to"),
    ):
        with pytest.raises((ConfigError, KeyError), match=message):
            build(**settings)


def test_a_description_says_what_differs_from_plain_float() -> None:
    def words(target: str = "onnxruntime", **settings: Any) -> str:
        return describe(Candidate(target=target, **settings))

    assert words() == "fp32"
    assert words(quantization=STATIC) == (
        "INT8 static, percentile 99.99, asymmetric, weights per channel, attention too, 2 layers in float"
    )
    assert words(quantization=replace(STATIC, keep_float=1, keep_float_unit="group")).endswith("1 group in float")
    assert words(serving=Serving(sequence_bins=(32, 64, 256))) == "fp32, bins 32 64 256"
    assert words(serving=Serving(sequence_bins=(256,))) == "fp32, length 256"
    assert words("openvino") == "OpenVINO, fp32"
    openvino = {"performance_hint": "throughput"}, {"inference_precision": "bf16"}
    assert [words("openvino", compile=OpenVinoCompile(**each)) for each in openvino] == [
        "OpenVINO, fp32, hint throughput",
        "OpenVINO, fp32, the rest in bf16",
    ]


OTHERWISE: dict[str, tuple[object, ...]] = {
    "scheme": ("dynamic",),
    "algorithm": ("minmax",),
    "percentile": (99.9,),
    "activation_symmetric": (True,),
    "weight_granularity": ("tensor",),
    "weight_algorithm": ("mse",),
    "attention_matmul": (False,),
    "balance": (0.5,),
    "bias_correction": (True,),
    "keep_float": (3,),
    "keep_float_unit": ("group",),
    "sensitivity": ("kl",),
    "operators": ("matmul", "conv"),
    "elementwise": ("int8",),
}


def test_no_two_ways_to_quantize_are_described_in_the_same_words() -> None:
    assert set(OTHERWISE) == {f.name for f in fields(Quantization)} - {"cfg", "calibrator"}
    for name, values in OTHERWISE.items():
        for value in values:
            change = {name: value, **({"percentile": None} if value == "minmax" else {})}
            dynamic = Quantization(scheme="dynamic", weight_granularity="channel")
            pair = STATIC, dynamic if name == "scheme" else replace(STATIC, **change)
            for language in get_args(Language):
                with speaking(language):
                    assert len({candidate_name(Candidate(target="onnxruntime", quantization=q)) for q in pair}) == 2
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


def test_the_flat_view_leaves_out_what_does_not_apply_and_ids_are_older_than_bins() -> None:
    plain, binned = (
        Candidate(target="onnxruntime"),
        Candidate(target="onnxruntime", serving=Serving(sequence_bins=(32, 64))),
    )

    assert "quantization.percentile" not in plain.parameters()
    assert Candidate(target="onnxruntime", quantization=STATIC).parameters()["quantization.percentile"] == 99.99
    assert (plain.sequence_bins, binned.sequence_bins) == (None, (32, 64))
    assert binned.parameters()["serving.sequence_bins"] == "32 64"
    assert "serving.sequence_bins" not in plain.parameters()
    assert "sequence_bins" not in plain.to_json()["serving"]
    assert plain.short_id == "738e6d3d3801"


STORED = Path(__file__).with_name("stored_candidates.json")
"""Written down when the settings of all targets stood in one module."""

SETTINGS = """
from dataclasses import dataclass, field
from workbench.targets.description import TargetDescription
from workbench.values.compile_settings import CompileSettings
from workbench.values.documents.canonical import added_later

@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeSettings(CompileSettings):
    level: int = 1
    {more}

TARGET = TargetDescription(name="acme", title="Acme", settings=AcmeSettings, make=lambda: None)
"""


def test_a_stored_candidate_keeps_its_id_and_its_form() -> None:
    for stored in json.loads(STORED.read_text(encoding="utf-8")):
        candidate = candidate_from_json(stored["candidate"])

        assert candidate.id == stored["id"]
        assert candidate.to_json() == stored["candidate"]
        kind = installed_target(candidate.target).settings
        assert candidate.compile == decode(kind, stored["candidate"]["compile"])


def test_a_target_whose_settings_gain_a_field_keeps_the_ids_of_its_candidates(tmp_path: Path) -> None:
    stored = {"version": 1, "target": "acme", "compile": {"level": 3}}
    with installing(tmp_path) as install:
        install("acme-int8", "acme", "acme_first", SETTINGS.format(more=""))
        before = candidate_from_json(stored)
        install("acme-int8", "acme", "acme_later", SETTINGS.format(more="tiles: int = added_later(0)"))
        after, other = candidate_from_json(before.to_json()), candidate_from_json({**stored, "compile": {"tiles": 2}})

        assert after.parameters()["compile.tiles"] == 0
        assert after.id == before.id
        assert after.to_json() == before.to_json()
        assert other.to_json()["compile"] == {"level": 1, "tiles": 2}
        assert other.id != before.id
