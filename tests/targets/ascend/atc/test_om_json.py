"""ATC's JSON of an OM: what decides a time, what runs, and where it came from."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.cann_emulator.atc.compiling import built
from tests.emulated_cann import emulated_environment, switched_on
from workbench.cann_emulator.om import write_om
from workbench.targets.ascend.atc.om_json import ask_om, count_kernels, form_in, operators_in
from workbench.testing.encoder import model_of, value
from workbench.values.errors import CompileError


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


def form_of(data: Any) -> str:
    return form_in(json.dumps(data).encode())


def attributes(**changed: Any) -> list[dict[str, Any]]:
    found = copy.deepcopy(model()["graph"][0]["op"][1]["attr"])
    return [{**each, "value": changed.get(each["key"], each["value"])} for each in found]


def test_factors_digests_and_names_do_not_count_and_all_else_does() -> None:
    another = attributes(
        scale={"f": 12.0},
        _kernelname={"s": "te_ascendquant_fedcba9876543210fedc_1__kernel0"},
        _datadump_original_op_names={"list": {"s": ["another"]}},
    )
    assert form_of(model(name="another", attr=another)) == form_of(model())
    for other in (
        model(type="AscendAntiQuant"),
        model(input=["ids:1"]),
        model(output_desc=[{"name": "q", "dtype": "DT_INT8", "shape": {"dim": [8, 16]}}]),
        model(attr=attributes(_kernelname={"s": "te_ascendquant_fast_0123456789abcdef0123_1__kernel0"})),
        model(attr=attributes(_datadump_original_op_names={"list": {"s": ["dense", "dense.quant"]}})),
    ):
        assert form_of(other) != form_of(model())


def counts_of(data: Any) -> tuple[Mapping[str, int], int, int]:
    return count_kernels(json.dumps(data).encode())


def test_kernels_are_counted_once_for_all_gears_and_products_sorted_by_their_inputs() -> None:
    def op(kind: str, *types: str, name: str = "") -> dict[str, object]:
        return {"name": name or kind, "type": kind, "input_desc": [{"dtype": f"DT_{each}"} for each in types]}

    products = [
        op("MatMulV2", "INT8", "INT8", "INT32"),
        op("MatMulV2", "FLOAT16", "FLOAT16"),
        op("BatchMatMulV3", "INT8", "INT8"),
        op("WeightQuantBatchMatmulV2", "FLOAT16", "INT8"),
        op("Conv2D", "INT8", "INT8"),
        op("QuantBatchMatmulV3", "INT8", "INT8"),
    ]
    others = [op("ConcatV2D", "INT8", "INT8"), op("AscendQuant", "FLOAT16")]
    kernels, int8, left = counts_of({"graph": [{"op": [op("Data"), *products, *others, op("NetOutput")]}]})
    assert (int8, left, kernels["MatMulV2"], sum(kernels.values())) == (4, 2, 2, 8)
    assert not {"Data", "NetOutput"} & set(kernels)

    gears = [{"op": [op("MatMulV2", name=f"query_ascend_mbatch_batch_{gear}")]} for gear in range(11)]
    kernels, _, left = counts_of({"graph": [{"op": [op("Case")]}, *gears]})
    assert (dict(kernels), left) == ({"MatMulV2": 1}, 1)


def test_json_of_another_form_is_told() -> None:
    for data in ([], {}, {"graph": 1}, {"graph": []}, {"graph": [{"op": [{"name": "x"}]}]}):
        with pytest.raises(ValueError, match=r"graph|operator"):
            counts_of(data)


def test_every_node_is_in_a_kernel_and_a_file_that_atc_cannot_read_is_named(tmp_path: Path) -> None:
    """A product with bias and Relu, which are fused."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Add", ["a", "b"], ["c"], name="bias"),
        helper.make_node("Relu", ["c"], ["y"], name="activation"),
    ]
    weights = {"w": np.eye(64, dtype=np.float32), "b": np.ones(64, np.float32)}
    product = model_of(nodes, weights, [value("x", [16, 64])], [value("y", [16, 64])], 13)
    (tmp_path / "net.om").write_bytes(write_om(built(product)))
    (tmp_path / "broken.om").write_bytes(b"no model")

    with switched_on(emulated_environment(tmp_path)):
        kernels = ask_om(tmp_path / "net.om", operators_in).values()
        with pytest.raises(CompileError, match=r"broken\.om"):
            ask_om(tmp_path / "broken.om", operators_in)

    covered = [kernel.nodes for kernel in kernels if not (kernel.is_constant or kernel.is_input)]
    assert sorted(node for nodes in covered for node in nodes) == ["activation", "bias", "product"]
    assert all(len(nodes) > 1 for nodes in covered if "product" in nodes)
