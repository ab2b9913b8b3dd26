"""What `init` cannot go on with is refused as the user's to change, with the next step."""

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.small_graphs import saved, weight
from tests.targets.encoder import model_of
from workbench.commands.init import Wishes, initialize
from workbench.values.errors import ConfigError


def started(tmp_path: Path, kind: int, output: str) -> None:
    """`init` for one matrix product, computed in a type of its own."""
    nodes = [
        helper.make_node("Cast", ["x"], ["x_as"], "x_as", to=kind),
        helper.make_node("Cast", ["w"], ["w_as"], "w_as", to=kind),
        helper.make_node("MatMul", ["x_as", "w_as"], ["product"], "product"),
        helper.make_node("Cast", ["product"], [output], "wide", to=TensorProto.FLOAT),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", 1])
    model = saved(model_of(nodes, {"w": weight(4, 1)}, [x], [y]), tmp_path)
    for seed in (1, 2):
        np.savez(tmp_path / f"{seed}.npz", x=np.random.default_rng(seed).normal(size=(60, 4)).astype(np.float32))
    initialize(model, [tmp_path / "1.npz", tmp_path / "2.npz"], tmp_path, name="m", targets=(), wishes=Wishes())


def test_a_model_that_the_reference_cannot_open_is_refused_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.onnx: ONNX Runtime refused the model.*MatMul.*Export it"):
        started(tmp_path, TensorProto.BFLOAT16, "logits")


def test_the_option_to_write_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"such as --output 'my y=values'"):
        started(tmp_path, TensorProto.FLOAT, "my y")
