"""Golden cases: models and data given by formula, and what AMCT wrote for them (amct.md §11). No files needed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from workbench.graph.layers import quantizable_layers
from workbench.graph.read import load_graph
from workbench.quantization.recipe import ActivationRecipe, LayerRecipe, ModelRecipe, WeightRecipe
from workbench.values.model import Model

Floats = npt.NDArray[np.float32]

BATCHES = 3


def weights(shape: tuple[int, ...], a: int, b: int, m: int, d: int) -> Floats:
    """((a·k + b) mod m - m // 2) / d over the flat index k."""
    k = np.arange(np.prod(shape))
    return (((a * k + b) % m - m // 2) / d).astype(np.float32).reshape(shape)


def data(shape: tuple[int, ...], batch: int) -> Floats:
    size = int(np.prod(shape))
    k = 1 + batch * size + np.arange(size)
    u = ((7919 * k) % 2003 - 1001) / 1001
    return (3 * u**3 + 0.2).astype(np.float32).reshape(shape)


def mlp() -> onnx.ModelProto:
    """x[16, 8] → fc1 → ReLU → fc2 → y[16, 3]."""
    constants = {
        "fc1.weight": weights((6, 8), 37, 5, 101, 160),
        "fc1.bias": weights((6,), 13, 3, 17, 40),
        "fc2.weight": weights((3, 6), 29, 7, 61, 90),
        "fc2.bias": weights((3,), 5, 1, 7, 20),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], name="fc1", alpha=1.0, beta=1.0, transB=1),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Gemm", ["r", "fc2.weight", "fc2.bias"], ["y"], name="fc2", alpha=1.0, beta=1.0, transB=1),
    ]
    return _model(nodes, constants, [16, 8], [16, 3])


def cnn() -> onnx.ModelProto:
    """x[2, 3, 6, 6] → conv1 → ReLU → conv2 (two groups) → y[2, 4, 6, 6]."""
    constants = {
        "conv1.weight": weights((4, 3, 3, 3), 41, 9, 127, 300),
        "conv1.bias": weights((4,), 3, 1, 11, 30),
        "conv2.weight": weights((4, 2, 3, 3), 53, 4, 149, 400),
        "conv2.bias": weights((4,), 7, 2, 13, 30),
    }
    common = {"dilations": [1, 1], "kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "conv1.weight", "conv1.bias"], ["h"], name="conv1", group=1, **common),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Conv", ["r", "conv2.weight", "conv2.bias"], ["y"], name="conv2", group=2, **common),
    ]
    return _model(nodes, constants, [2, 3, 6, 6], [2, 4, 6, 6])


def _model(
    nodes: list[onnx.NodeProto], constants: dict[str, Floats], given: list[int], result: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "golden",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(values, name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What AMCT wrote for one layer."""

    layer: str
    scale_d: float
    offset_d: int
    scale_w: tuple[float, ...]
    balance: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One case.

    Attributes:
        settings: of `ActivationRecipe`.
        balance: DMQ's strength.
    """

    name: str
    build: Callable[[], onnx.ModelProto]
    settings: dict[str, Any]
    layers: tuple[Expected, ...]
    balance: float | None = None

    def feeds(self) -> list[dict[str, Floats]]:
        shape = (2, 3, 6, 6) if self.build is cnn else (16, 8)
        return [{"x": data(shape, batch)} for batch in range(BATCHES)]


_W1, _W2 = (0.0024114174,), (0.002537183,)
_IFMR = {"algorithm": "ifmr", "symmetric": False}
_NARROW = {"max_percentile": 0.98, "min_percentile": 0.97, "search_start": 0.5, "search_end": 1.2, "search_step": 0.05}


def _mlp_case(name: str, settings: dict[str, Any], fc1: tuple[float, int], fc2: tuple[float, int]) -> Golden:
    return Golden(
        name=name,
        build=mlp,
        settings=settings,
        layers=(
            Expected(layer="fc1", scale_d=fc1[0], offset_d=fc1[1], scale_w=_W1),
            Expected(layer="fc2", scale_d=fc2[0], offset_d=fc2[1], scale_w=_W2),
        ),
    )


GOLDEN = (
    _mlp_case("G1", _IFMR, (0.024950497, -18), (0.003287937, -128)),
    _mlp_case("G2", {"algorithm": "ifmr", "symmetric": True}, (0.024944881, 0), (0.0064735743, 0)),
    _mlp_case("G3", _IFMR | _NARROW, (0.02132526, -19), (0.0032692454, -128)),
    _mlp_case("G4", {"algorithm": "hfmg", "symmetric": False, "bins": 1024}, (0.023296352, -10), (0.0031890546, -128)),
    _mlp_case("G5", {"algorithm": "hfmg", "symmetric": True, "bins": 1024}, (0.025151126, 0), (0.00640322, 0)),
    Golden(
        name="G6",
        build=mlp,
        settings=_IFMR,
        balance=0.5,
        layers=(
            Expected(
                layer="fc1",
                scale_d=0.007708579,
                offset_d=-17,
                scale_w=(0.007432306,),
                balance=(3.0752144, 2.8546426, 3.8863168, 3.1064005, 3.3916337, 3.4121954, 2.916578, 4.014011),
            ),
            Expected(
                layer="fc2",
                scale_d=0.0021961946,
                offset_d=-128,
                scale_w=(0.003931428,),
                balance=(1.3943005, 2.4725897, 1.4258189, 1.698449, 1.5617259, 1.6439464),
            ),
        ),
    ),
    Golden(
        name="G7",
        build=cnn,
        settings=_IFMR,
        layers=(
            Expected(
                layer="conv1",
                scale_d=0.02485988,
                offset_d=-17,
                scale_w=(0.0016145833, 0.0016272966, 0.0016535432, 0.001640625),
            ),
            Expected(
                layer="conv2",
                scale_d=0.0055603585,
                offset_d=-128,
                scale_w=(0.0014257813, 0.0014370079, 0.0013779528, 0.00140625),
            ),
        ),
    ),
)


def amct_recipe(model: Model, settings: dict[str, Any], balance: float | None = None) -> ModelRecipe:
    """AMCT's defaults for every layer: ARQ, per channel for convolutions."""
    activation = ActivationRecipe(**settings)
    layers = quantizable_layers(load_graph(model))
    return ModelRecipe(
        layers={
            layer.name: LayerRecipe(
                activation=activation,
                weight=WeightRecipe(algorithm="arq", per_channel=layer.op_type in ("Conv", "ConvTranspose"))
                if layer.weight is not None
                else None,
                balance=balance if layer.weight is not None else None,
            )
            for layer in layers
        },
        source={"procedure of": "the test"},
    )
