"""The program `amct_onnx` and what evaluators of it import (amct.md §1.4)."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cann_emulator.amct_onnx.making import mlp_feeds, mlp_file, quantized
from workbench.cann_emulator.amct_onnx.__main__ import main
from workbench.cann_emulator.amct_onnx.common.cmd_line_utils.arguments_handler import (
    process_data_shape,
    process_multi_data_path,
)
from workbench.cann_emulator.amct_onnx.common.cmd_line_utils.data_handler import load_data
from workbench.cann_emulator.amct_onnx.custom_op.amct_custom_op import AMCT_SO


@pytest.fixture(autouse=True)
def raw_files(folder: Path) -> None:
    Path("data").mkdir()
    for index, feeds in enumerate(mlp_feeds(3)):
        feeds["x"].tofile(f"data/{index}.bin")


DATA = ["--input_shape=x:16,8", "--data_dir=data/;", "--data_types", "float32"]


def test_calibration_over_raw_files_gives_what_the_functions_give(folder: Path) -> None:
    model = mlp_file(folder)
    quantized(folder, model, mlp_feeds(2))

    assert main(["calibration", f"--model={model}", "--save_path=out/net", "--batch_num=2", *DATA]) == 0

    for kind in ("deploy", "fake_quant"):
        a, b = onnx.load(f"out/net_{kind}_model.onnx"), onnx.load(f"net_{kind}_model.onnx")
        assert a.graph.SerializeToString(deterministic=True) == b.graph.SerializeToString(deterministic=True)


def test_an_evaluator_takes_the_place_of_the_data(folder: Path) -> None:
    """As the vendor's sample has it: a class, and an instance of it in the module."""
    Path("evaluator.py").write_text(
        "import onnxruntime as ort\n"
        "import workbench.cann_emulator.amct_onnx as amct\n"
        "from workbench.cann_emulator.amct_onnx.common.cmd_line_utils import data_handler\n"
        "class Evaluator():\n"
        "    def calibration(self, modified_model):\n"
        "        session = ort.InferenceSession(modified_model, amct.AMCT_SO)\n"
        "        for feeds in data_handler.load_data({'x': [16, 8]}, ['data/'], ['float32'], 1):\n"
        "            session.run(['y'], feeds)\n"
        "customize_evaluator = Evaluator()\n"
    )

    assert main(["calibration", f"--model={mlp_file(folder)}", "--save_path=net", "--evaluator=evaluator.py"]) == 0

    assert Path("net_deploy_model.onnx").is_file()


def test_a_configuration_file_says_how_many_batches(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Path("quant.cfg").write_text("batch_num: 4")
    command = ["calibration", f"--model={mlp_file(folder)}", "--save_path=net", *DATA]

    assert main([*command, "--calibration_config=quant.cfg"]) == 1

    assert "Total batches found: 3, but trying to load: 4" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["calibration", "--model=m.onnx"], "--save_path"),
        (["calibration", "--model=m", "--save_path=s"], "--input_shape is required unless --evaluator"),
        (["calibration", "--model=m", "--save_path=s", "--evaluator=e", *DATA], "cannot be used with --evaluator"),
        (
            ["calibration", "--model=m", "--save_path=s", "--batch_num=1", "--calibration_config=c", *DATA],
            "--batch_num cannot be used with --calibration_config",
        ),
        (["convert", "--model=m"], "--save_path"),
        ([], "command"),
    ],
)
def test_arguments_that_exclude_or_need_each_other(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_convert_reports_what_cannot_be_converted(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", f"--model={mlp_file(folder)}", "--save_path=net"]) == 1

    assert "no layer between QuantizeLinear" in capfd.readouterr().err


def test_shapes_and_folders_of_several_inputs() -> None:
    assert process_data_shape("a:1,3;b:0:16") == {"a": [1, 3], "b:0": [16]}
    assert process_multi_data_path("x/;y/;") == [str(Path("x").resolve()), str(Path("y").resolve())]
    with pytest.raises(ValueError, match="should be ':' split"):
        process_data_shape("1,3,224,224")


def test_data_is_read_in_the_order_of_file_names() -> None:
    batches = list(load_data({"x": [16, 8]}, ["data"], ["float32"]))

    assert len(batches) == 3
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(batches, mlp_feeds(3), strict=True))
    with pytest.raises(TypeError, match="Unsupported data type"):
        next(load_data({"x": [16, 8]}, ["data"], ["float12"]))


def test_the_options_have_a_second_place() -> None:
    """Published scripts import them from there, and test for None."""
    from workbench.cann_emulator import amct_onnx

    assert AMCT_SO is amct_onnx.AMCT_SO is not None
