"""The order of calls, what each writes, and the wrong orders of amct.md §12."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.quantization.deploy_models import data, mlp, plain_run
from workbench.cann_emulator import amct_onnx as amct
from workbench.quantization.interpreter import Interpreter
from workbench.testing.encoder import ids, tiny_encoder

Feeds = dict[str, Any]


def write(proto: onnx.ModelProto) -> str:
    onnx.save(proto, "float.onnx")
    return "float.onnx"


def mlp_feeds(count: int = 2) -> list[Feeds]:
    return [{"x": data((16, 8), batch)} for batch in range(count)]


def run(file: str | Path, feeds: list[Feeds], options: Any = None) -> list[list[Any]]:
    session = onnxruntime.InferenceSession(str(file), options)
    return [session.run(None, each) for each in feeds]


def test_too_few_forwards_leave_the_record_without_scales() -> None:
    model = write(mlp())
    amct.create_quant_config("config.json", model, batch_num=2)
    amct.quantize_model("config.json", model, "modified.onnx", "record.txt")
    run("modified.onnx", mlp_feeds(1), amct.AMCT_SO)

    with pytest.raises(RuntimeError, match="cannot find scale_d of layer fc1 in record_file, please check data calib"):
        amct.save_model("modified.onnx", "record.txt", "net")


def test_the_fake_quant_model_is_the_deploy_model_in_float() -> None:
    """With learned rounding, which no record file holds."""
    model, feeds = write(tiny_encoder()), [ids(3, 6, seed) for seed in range(3)]
    Path("quant.cfg").write_text("batch_num: 2\ncommon_config { ada_quantize { num_iteration: 5 } }")
    amct.create_quant_config("config.json", model, config_defination="quant.cfg")
    amct.quantize_model("config.json", model, "modified.onnx", "record.txt")
    run("modified.onnx", feeds[:2], amct.AMCT_SO)
    amct.save_model("modified.onnx", "record.txt", "net")
    interpreter = Interpreter(onnx.load("net_deploy_model.onnx"))

    for each, (exact,) in zip(feeds, run(model, feeds), strict=True):
        logits = interpreter.run(each)["logits"]
        np.testing.assert_array_equal(plain_run(Path("net_fake_quant_model.onnx"), each)["logits"], logits)
        assert 0 < np.abs(logits - exact).max() < 0.25 * np.abs(exact).max()


def test_balancing_needs_the_preprocess_forward() -> None:
    model = write(mlp())
    Path("quant.cfg").write_text("common_config { dmq_balancer { migration_strength: 0.5 } }")
    amct.create_quant_config("config.json", model, config_defination="quant.cfg")

    with pytest.raises(RuntimeError, match="cannot find tensor_balance_factor of layer fc1"):
        amct.quantize_model("config.json", model, "modified.onnx", "record.txt")

    amct.quantize_preprocess("config.json", "record.txt", model, "mod0.onnx")
    run("mod0.onnx", mlp_feeds(1), amct.AMCT_SO)
    once = Path("record.txt").read_text()
    assert once.count("tensor_balance_factor") == 8 + 6
    run("mod0.onnx", [{"x": 3 * mlp_feeds(1)[0]["x"]}], amct.AMCT_SO)
    assert Path("record.txt").read_text() != once, "each forward overwrites the factors (amct.md §1.7)"
    amct.quantize_model("config.json", model, "modified.onnx", "record.txt")


def test_nodes_need_names_of_their_own_and_updated_model_gives_them() -> None:
    """amct.md §1.2, §5."""
    proto = mlp()
    proto.graph.node[0].name = ""
    proto.graph.node[2].name = "act"
    model = write(proto)
    with pytest.raises(RuntimeError, match=r"without a name\. Please use updated_model"):
        amct.create_quant_config("config.json", model)

    amct.create_quant_config("config.json", model, updated_model="named.onnx")

    assert [node.name for node in onnx.load("named.onnx").graph.node] == ["Gemm_0", "act", "act_1"]
    assert {"Gemm_0", "act_1"} <= json.loads(Path("config.json").read_text()).keys()
