"""What of ATC's JSON decides a time; the emulated atc's own files go through the conformance suite."""

import copy
from pathlib import Path
from typing import Any

import pytest

from workbench.targets.ascend.om_form import structure_of
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.values.artifact import Artifact, CompiledFile, Toolchain
from workbench.values.candidate import Candidate, Precision, Serving


def model(**changed: Any) -> dict[str, Any]:
    """A quantizing operator behind an input, as ATC's JSON tells of them."""
    quant = {
        "name": "dense.quant",
        "type": "AscendQuant",
        "input": ["ids:0"],
        "input_desc": [{"name": "ids", "dtype": "DT_FLOAT16", "shape": {"dim": [4, 16]}}],
        "output_desc": [{"name": "q", "dtype": "DT_INT8", "shape": {"dim": [4, 16]}}],
        "attr": [
            {"key": "scale", "value": {"f": 31.5}},
            {"key": "_kernelname", "value": {"s": "te_ascendquant_0123456789abcdef0123_1__kernel0"}},
            {"key": "_datadump_original_op_names", "value": {"list": {"s": ["dense.quant"]}}},
        ],
        **changed,
    }
    return {"graph": [{"op": [{"name": "ids", "type": "Data"}, quant]}]}


def attributes(**changed: Any) -> list[dict[str, Any]]:
    found = copy.deepcopy(model()["graph"][0]["op"][1]["attr"])
    return [{**each, "value": changed.get(each["key"], each["value"])} for each in found]


def test_factors_digests_and_names_do_not_count() -> None:
    other = model(
        name="another",
        attr=attributes(
            scale={"f": 12.0},
            _kernelname={"s": "te_ascendquant_fedcba9876543210fedc_1__kernel0"},
            _datadump_original_op_names={"list": {"s": ["another"]}},
        ),
    )

    assert structure_of(other) == structure_of(model())


def test_which_tensor_of_the_file_an_output_is_does_not_count_and_its_other_attributes_do() -> None:
    def output(*attributes: dict[str, Any]) -> dict[str, Any]:
        plain = model()["graph"][0]["op"][1]["output_desc"][0]
        return model(output_desc=[{**plain, "attr": list(attributes)}])

    named = output({"key": "_datadump_origin_name", "value": {"s": "dense"}})
    other = output({"key": "_datadump_origin_name", "value": {"s": "another"}})

    assert structure_of(named) == structure_of(other) == structure_of(model())
    assert structure_of(output({"key": "origin_shape", "value": {"i": 1}})) != structure_of(model())


@pytest.mark.parametrize(
    "other",
    [
        model(type="AscendAntiQuant"),
        model(input=["ids:1"]),
        model(output_desc=[{"name": "q", "dtype": "DT_INT8", "shape": {"dim": [8, 16]}}]),
        model(attr=attributes(_kernelname={"s": "te_ascendquant_fast_0123456789abcdef0123_1__kernel0"})),
        model(attr=attributes(_datadump_original_op_names={"list": {"s": ["dense", "dense.quant"]}})),
    ],
    ids=["operator", "edge", "shape", "kernel", "what was fused"],
)
def test_all_else_counts(other: dict[str, Any]) -> None:
    assert structure_of(other) != structure_of(model())


@pytest.mark.parametrize("data", [None, {}, {"graph": []}, {"graph": [{"op": [{"name": "no type"}]}]}])
def test_another_document_is_told(data: Any) -> None:
    with pytest.raises(ValueError, match=r"list `graph`|no type"):
        structure_of(data)


def om_set(batches: tuple[int, ...], lengths: tuple[int, ...], *, changed: int = 0) -> Artifact:
    """Files whose content is told by their shape, but for those of one batch."""
    chain = Toolchain(target="ascend910b3", components={"cann": "8.5.0"}, device="910B3", features=())
    files = tuple(
        CompiledFile(
            batch=batch,
            sequence_bin=length,
            file=f"b{batch}-n{length}.om",
            sha256=f"{batch:032d}{length:032d}" if batch != changed else "f" * 64,
            size_bytes=1,
        )
        for batch in batches
        for length in lengths
    )
    return Artifact(target="ascend910b3", files=files, toolchain=chain, int8_ops=1, float_matmuls_left=0, kernels={})


def test_sets_whose_scored_files_are_the_same_give_the_same_answers() -> None:
    """Samples come in the serving batch; what else a set holds is a service's."""

    def form(artifact: Artifact, batch: int = 1) -> str:
        settings = AscendCompile(shapes="static", batches=(1, 4, 8), sequence_bins=(16, 32, 64))
        served = Candidate(
            target="ascend910b3",
            precision=Precision(mode="allow_fp32_to_fp16"),
            compile=settings,
            serving=Serving(batch=batch),
        )
        return AscendTarget().numerics_form(artifact, Path(), served)

    plain = form(om_set((1, 4), (16, 32)))

    assert form(om_set((1, 8), (16, 32))) == plain
    assert form(om_set((1, 4), (16, 32), changed=4)) == plain
    assert form(om_set((1, 4), (16, 32), changed=1)) != plain
    assert form(om_set((1, 4), (16, 64))) != plain
    assert form(om_set((1, 4), (16, 32)), batch=4) != plain
