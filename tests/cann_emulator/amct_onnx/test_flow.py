"""The order of calls, what each writes, and the wrong orders of amct.md §12."""

import json
import stat
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.cann_emulator.amct_onnx.making import (
    cnn_file,
    encoder_feeds,
    encoder_file,
    mlp_feeds,
    mlp_file,
    quantized,
    run,
    write,
)
from tests.quantization.deploy_models import plain_run
from tests.quantization.golden import data, mlp
from workbench.cann_emulator import amct_onnx as amct
from workbench.quantization.integers.interpreter import Interpreter


def calibrating(folder: Path, batches: int = 2) -> tuple[str, str]:
    """Modified model and record file before the forwards."""
    quantized(folder, mlp_file(folder), mlp_feeds(batches), save=False)
    return str(folder / "modified.onnx"), str(folder / "record.txt")


# --- sessions ------------------------------------------------------------------------------------------------------


def test_a_session_without_amct_so_is_told_that_the_domain_is_unknown(folder: Path) -> None:
    """amct.md §12: in ONNX Runtime's own words, which name it."""
    modified, _ = calibrating(folder)

    with pytest.raises(Exception, match=r"amct\.customop"):
        onnxruntime.InferenceSession(modified)


def test_other_sessions_with_amct_so_are_plain_ones(folder: Path) -> None:
    session = onnxruntime.InferenceSession(mlp_file(folder), amct.AMCT_SO)

    assert session.run(None, mlp_feeds()[0])[0].shape == (16, 3)
    assert "run" not in vars(session)


def test_too_few_forwards_leave_the_record_without_scales(folder: Path) -> None:
    modified, record = calibrating(folder, batches=2)
    run(modified, mlp_feeds(1), amct.AMCT_SO)

    with pytest.raises(RuntimeError, match="cannot find scale_d of layer fc1 in record_file, please check data calib"):
        amct.save_model(modified, record, "net")


def test_forwards_of_two_sessions_do_not_add_up(folder: Path) -> None:
    modified, record = calibrating(folder, batches=2)
    for feeds in mlp_feeds(2):
        run(modified, [feeds], amct.AMCT_SO)

    with pytest.raises(RuntimeError, match="cannot find scale_d"):
        amct.save_model(modified, record, "net")


def test_forwards_beyond_batch_num_are_ignored(folder: Path) -> None:
    modified, record = calibrating(folder, batches=2)
    session = onnxruntime.InferenceSession(modified, amct.AMCT_SO)
    for feeds in mlp_feeds(2):
        session.run(None, feeds)
    before = Path(record).read_bytes()

    session.run(None, {"x": 100 * data((16, 8), 5)})

    assert Path(record).read_bytes() == before


def test_a_feed_that_the_caller_changes_afterwards_was_seen_as_it_was(folder: Path) -> None:
    modified, record = calibrating(folder, batches=2)
    reused = np.empty((16, 8), np.float32)
    session = onnxruntime.InferenceSession(modified, amct.AMCT_SO)
    for feeds in mlp_feeds(2):
        reused[:] = feeds["x"]
        session.run(None, {"x": reused})
    first = Path(record).read_text()

    quantized(folder, str(folder / "float.onnx"), mlp_feeds(2))

    assert Path(record).read_text() == first


def test_nan_in_an_activation_fails_the_forward(folder: Path) -> None:
    """amct.md §4: NaN and infinity are errors."""
    modified, _ = calibrating(folder, batches=1)
    session = onnxruntime.InferenceSession(modified, amct.AMCT_SO)

    with pytest.raises(RuntimeError, match="holds nan at sample 0"):
        session.run(None, {"x": np.full((16, 8), np.nan, np.float32)})


# --- files ---------------------------------------------------------------------------------------------------------


def test_folders_are_750_and_files_640_and_everything_is_overwritten(folder: Path) -> None:
    model = mlp_file(folder)
    for _ in range(2):
        amct.create_quant_config("new/deep/config.json", model, batch_num=1)
    config, record, modified = "new/deep/config.json", "new/record.txt", "new/modified.onnx"
    amct.quantize_model(config, model, modified, record)
    run(modified, mlp_feeds(1), amct.AMCT_SO)
    amct.save_model(modified, record, "new/results/net")

    modes = {p.relative_to("new").as_posix(): stat.S_IMODE(p.stat().st_mode) for p in Path("new").rglob("*")}
    assert modes == {
        "deep": 0o750,
        "results": 0o750,
        **dict.fromkeys(("deep/config.json", "record.txt", "modified.onnx"), 0o640),
        **dict.fromkeys((f"results/net_{n}" for n in ("deploy_model.onnx", "fake_quant_model.onnx")), 0o640),
        "results/net_quant.json": 0o640,
    }
    assert stat.S_IMODE(Path("amct_log/amct_onnx.log").stat().st_mode) == 0o640


def test_models_name_the_emulator_as_their_producer(folder: Path) -> None:
    quantized(folder, mlp_file(folder), mlp_feeds(1))

    for name in ("modified.onnx", "net_deploy_model.onnx", "net_fake_quant_model.onnx"):
        model = onnx.load(folder / name)
        assert (model.producer_name, model.producer_version) == ("amct_onnx emulator", amct.EMULATOR)


def test_the_deploy_model_has_one_domain_and_the_information_file_names_every_layer(folder: Path) -> None:
    quantized(folder, encoder_file(folder), encoder_feeds())

    deploy = onnx.load(folder / "net_deploy_model.onnx")
    assert [entry.domain for entry in deploy.opset_import] == [""]
    assert {node.domain for node in deploy.graph.node} == {""}
    fusions = json.loads((folder / "net_quant.json").read_text())
    assert fusions["classifier"] == ["classifier.quant", "classifier", "classifier.dequant"]
    assert {"query", "scores", "context"} <= fusions.keys()


@pytest.mark.parametrize(("screen", "file"), [("ERROR", "INFO"), ("INFO", "ERROR"), ("nonsense", "INFO")])
def test_two_variables_say_what_screen_and_log_file_get(
    screen: str, file: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """amct.md §1.6; another value means INFO."""
    monkeypatch.setenv("AMCT_LOG_LEVEL", screen)
    monkeypatch.setenv("AMCT_LOG_FILE_LEVEL", file)

    amct.create_quant_config("config.json", mlp_file(folder))

    assert ("success" in capsys.readouterr().out) == (screen != "ERROR")
    assert Path("amct_log/amct_onnx.log").exists() == (file != "ERROR")


# --- arithmetic ----------------------------------------------------------------------------------------------------

CONFIGURATIONS = {
    "ifmr": "common_config { ifmr_quantize { asymmetric: true } }",
    "hfmg": "common_config { hfmg_quantize { num_of_bins: 1024 } }",
    "dmq": "common_config { dmq_balancer { migration_strength: 0.5 } }",
    "ada": "common_config { ada_quantize { num_iteration: 5 } }",
    "fp16": "fakequant_precision_mode: FORCE_FP16_QUANT",
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_fake_quant_model_is_the_deploy_model_in_float(name: str, folder: Path) -> None:
    quantized(folder, encoder_file(folder), encoder_feeds(), cfg=CONFIGURATIONS[name])
    interpreter = Interpreter(onnx.load(folder / "net_deploy_model.onnx"), force_fp16=name == "fp16")

    for feeds in encoder_feeds(3):
        expected, values = interpreter.run(feeds), plain_run(folder / "net_fake_quant_model.onnx", feeds)
        np.testing.assert_array_equal(values["logits"], expected["logits"])
    exact = run(folder / "float.onnx", feeds := encoder_feeds(1))[0][0]
    assert 0 < np.abs(interpreter.run(feeds[0])["logits"] - exact).max() < 0.25 * np.abs(exact).max()


def test_an_add_with_the_bias_on_the_left_keeps_it_in_float(folder: Path) -> None:
    """amct.md §6.4; the encoder's biases are on the left, as torch writes them."""
    quantized(folder, encoder_file(folder), encoder_feeds())

    deploy = onnx.load(folder / "net_deploy_model.onnx")
    add = next(node for node in deploy.graph.node if node.name == "query_bias")
    bias = next(tensor for tensor in deploy.graph.initializer if tensor.name == "query_b")
    assert "query.dequant.output0" in add.input
    assert bias.data_type == onnx.TensorProto.FLOAT


def test_a_record_of_ones_own_is_lowered_as_it_is(folder: Path) -> None:
    """amct.md §1.2: the way that stands in for convert_model."""
    quantized(folder, mlp_file(folder), mlp_feeds(1), save=False)
    record = "".join(
        f'record {{\n  key: "{layer}"\n  value {{ scale_d: 0.5 offset_d: 3 scale_w: 0.25 offset_w: 0 }}\n}}\n'
        for layer in ("fc1", "fc2")
    )
    Path("record.txt").write_text(record)

    amct.save_model("modified.onnx", "record.txt", "net")

    quant = next(node for node in onnx.load("net_deploy_model.onnx").graph.node if node.name == "fc1.quant")
    attributes = {a.name: helper.get_attribute_value(a) for a in quant.attribute}
    assert attributes == {"scale": 2.0, "offset": 3.0, "dst_type": b"INT8"}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("", "record_file is empty"),
        ('record { key: "nope" value { scale_d: 1 offset_d: 0 scale_w: 1 offset_w: 0 } }', "find nope failure"),
        ('record { key: "fc1" value { scale_d: 1 scale_w: 1 offset_w: 0 } }', "cannot find offset_d of layer fc1"),
        ('record { key: "fc1" value { scale_d: 0 offset_d: 0 } }', "positivate range"),
    ],
)
def test_records_that_amct_refuses_are_refused(record: str, message: str, folder: Path) -> None:
    """amct.md §3.2."""
    quantized(folder, mlp_file(folder), mlp_feeds(1), save=False)
    Path("record.txt").write_text(record)

    with pytest.raises(RuntimeError, match=message):
        amct.save_model("modified.onnx", "record.txt", "net")

    assert not Path("net_deploy_model.onnx").exists()


# --- balancing -----------------------------------------------------------------------------------------------------


def test_balancing_needs_the_preprocess_forward(folder: Path) -> None:
    model = mlp_file(folder)
    Path("quant.cfg").write_text(CONFIGURATIONS["dmq"])
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


def test_there_is_nothing_to_preprocess_without_a_balanced_layer(folder: Path) -> None:
    model = mlp_file(folder)
    amct.create_quant_config("config.json", model)

    with pytest.raises(RuntimeError, match="no layer with dmq_balancer_param"):
        amct.quantize_preprocess("config.json", "record.txt", model, "mod0.onnx")


# --- configuration -------------------------------------------------------------------------------------------------


def test_with_a_cfg_the_other_arguments_are_ignored(folder: Path) -> None:
    """amct.md §1.2."""
    model = mlp_file(folder)
    Path("quant.cfg").write_text("batch_num: 7")

    amct.create_quant_config("a.json", model, ["fc1"], 3, False, "quant.cfg")

    data = json.loads(Path("a.json").read_text())
    assert (data["batch_num"], data["activation_offset"], data["fc1"]["quant_enable"]) == (7, True, True)
    amct.create_quant_config("b.json", model, ["fc1"], 3, False)
    data = json.loads(Path("b.json").read_text())
    assert (data["batch_num"], data["activation_offset"], data["fc1"]["quant_enable"]) == (3, False, False)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"skip_layers": ["nope"]}, ValueError, "'nope' is no layer"),
        ({"skip_layers": ["fc1", "fc2"]}, ValueError, "no layer is left to quantize"),
        ({"skip_layers": "fc1"}, TypeError, "list of strings"),
        ({"batch_num": 0}, ValueError, "greater than zero"),
        ({"batch_num": 1.5}, TypeError, "should be an int"),
        ({"activation_offset": 1}, TypeError, "should be a bool"),
        ({"config_defination": "absent.cfg"}, ValueError, "no such file"),
    ],
)
def test_arguments_that_amct_refuses_are_refused(
    arguments: dict[str, object], error: type[Exception], message: str, folder: Path
) -> None:
    with pytest.raises(error, match=message):
        amct.create_quant_config("config.json", mlp_file(folder), **arguments)  # type: ignore[arg-type] # wrong on purpose

    assert not Path("config.json").exists()


def test_nodes_need_names_of_their_own_and_updated_model_gives_them(folder: Path) -> None:
    """amct.md §1.2, §5."""
    proto = mlp()
    proto.graph.node[0].name = ""
    proto.graph.node[2].name = "act"
    model = write(proto, folder)
    with pytest.raises(RuntimeError, match=r"without a name\. Please use updated_model"):
        amct.create_quant_config("config.json", model)

    amct.create_quant_config("config.json", model, updated_model="named.onnx")

    assert [node.name for node in onnx.load("named.onnx").graph.node] == ["Gemm_0", "act", "act_1"]
    assert {"Gemm_0", "act_1"} <= json.loads(Path("config.json").read_text()).keys()


def test_a_missing_model_or_configuration_is_named(folder: Path) -> None:
    with pytest.raises(RuntimeError, match=r"absent.onnx does not exist"):
        amct.create_quant_config("config.json", "absent.onnx")
    with pytest.raises(RuntimeError, match=r"absent.json does not exist"):
        amct.quantize_model("absent.json", mlp_file(folder), "modified.onnx", "record.txt")
    Path("record.txt").write_text("")
    with pytest.raises(RuntimeError, match="not the modified model"):
        amct.save_model("float.onnx", "record.txt", "net")


def test_convolutions_are_quantized_per_channel(folder: Path) -> None:
    quantized(folder, cnn_file(folder), [{"x": data((2, 3, 6, 6), 0)}])

    assert Path("record.txt").read_text().count("scale_w") == 8
