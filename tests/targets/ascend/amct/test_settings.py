"""Search points as AMCT configurations, and AMCT's integers taken from its deploy model."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.quantization.amct_files import conv, matmul, pool, product
from tests.quantization.deploy_models import min_max_record
from tests.quantization.networks import perceptron, rows
from workbench.quantization.amct.cfg import parse_cfg
from workbench.quantization.amct.recipe import recipe_of_config
from workbench.quantization.lowering.deploy import lower_deploy
from workbench.quantization.lowering.normalize import normalized
from workbench.quantization.recipe import recipe_of
from workbench.quantization.record import QuantizationRecord
from workbench.targets.ascend.amct.amct import with_amcts_integers
from workbench.targets.ascend.amct.calibrator import quantization_to_amct_cfg
from workbench.values.candidate import Quantization
from workbench.values.errors import CalibrationError

LAYERS = (matmul("query"), product("scores"), pool("pool"), matmul("fc", op_type="Gemm"))


def point(**changes: Any) -> Quantization:
    settings: dict[str, Any] = {
        "scheme": "static",
        "algorithm": "ifmr",
        "weight_algorithm": "arq",
        "weight_granularity": "tensor",
        "activation_symmetric": False,
        "attention_matmul": False,
        "keep_float": 0,
    }
    return Quantization(**settings | changes)


def test_what_both_know_is_the_same_recipe() -> None:
    for algorithm, symmetric, attention in itertools.product(("ifmr", "hfmg"), (True, False), (True, False)):
        chosen = {"algorithm": algorithm, "activation_symmetric": symmetric, "attention_matmul": attention}
        quantization = point(**chosen, balance=0.5)

        text = quantization_to_amct_cfg(quantization, LAYERS, ["fc"], batch_num=3)

        given = recipe_of_config(parse_cfg(text), LAYERS)
        expected = recipe_of(quantization, LAYERS, ["fc"]).layers
        forced = {name: replace(s, activation=replace(s.activation, symmetric=True)) for name, s in expected.items()}
        assert given.layers == {n: forced[n] if n == "scores" else s for n, s in expected.items()}
        assert set(given.float_layers) == {"fc", "pool"} | (set() if attention else {"scores"})
        assert given.source["batch_num"] == 3
        assert "dst_type" not in text


def test_one_kind_of_operators_alone_becomes_int8_by_both() -> None:
    layers = (conv("conv"), *LAYERS)
    for operators, names in (
        ("all", {"conv", "query", "scores", "fc"}),
        ("matmul", {"query", "scores", "fc"}),
        ("conv", {"conv"}),
    ):
        quantization = point(operators=operators, attention_matmul=True)
        given = recipe_of_config(parse_cfg(quantization_to_amct_cfg(quantization, layers)), layers)
        assert set(recipe_of(quantization, layers).layers) == names == set(given.layers)
        assert ("operators" in quantization.settings()) == (operators != "all")


def test_what_amct_cannot_do_says_what_to_set_instead() -> None:
    for changes, message in (
        ({"algorithm": "mse"}, "find ranges by 'mse'.*ifmr, hfmg or percentile"),
        ({"weight_granularity": "channel"}, "give MatMul layers such as 'query' a scale per channel"),
        ({"weight_algorithm": "mse"}, "find weight scales by 'mse'"),
        ({"bias_correction": True}, "correct biases"),
        ({"balance": "auto"}, "search a strength"),
        ({"balance": 0.1}, "balance with strength 0.1"),
    ):
        with pytest.raises(CalibrationError, match=rf"AMCT cannot {message}.*or let the workbench calibrate\."):
            quantization_to_amct_cfg(point(**changes), LAYERS)


def given(gemm: bool = True) -> tuple[onnx.ModelProto, QuantizationRecord, onnx.ModelProto]:
    """Normalized model, record, deploy model."""
    proto = normalized(perceptron(gemm=gemm))
    record = min_max_record(proto, rows(8))
    return proto, record, lower_deploy(proto, record)


def weight_of(deploy: onnx.ModelProto, layer: str) -> onnx.TensorProto:
    name = next(node for node in deploy.graph.node if node.name == layer).input[1]
    return next(tensor for tensor in deploy.graph.initializer if tensor.name == name)


def changed(deploy: onnx.ModelProto, layer: str, steps: Any) -> np.ndarray[Any, Any]:
    tensor = weight_of(deploy, layer)
    values = np.clip(numpy_helper.to_array(tensor).astype(np.int32) + steps, -128, 127).astype(np.int8)
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return values


def test_integers_of_another_model_are_refused() -> None:
    proto, record, deploy = given()
    changed(deploy, "fc1", 5)

    with pytest.raises(CalibrationError, match=r"fc1: an integer of AMCT's weight is \d\.\d steps"):
        with_amcts_integers(record, proto, deploy, learned=False)
