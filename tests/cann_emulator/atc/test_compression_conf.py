"""atc.md §3.6: --compression_optimize_conf."""

from pathlib import Path

import pytest

from workbench.cann_emulator.atc.compression_conf import check_compression_conf, parse_compression_conf
from workbench.cann_emulator.atc.failure import AtcFailure, Record

WHOLE = """
# first layer
enable_first_layer_quantization: false
calibration: {
    input_data_dir: ./a.bin,./b.bin
    input_shape: in:16,16;in1:16,16
    config_file: simple.cfg
    infer_soc: Ascend910B3
    log: info
}
"""


def refused(file: Path, text: str | None) -> Record:
    if text is not None:
        file.write_text(text)
    with pytest.raises(AtcFailure) as caught:
        check_compression_conf(str(file))
    (record,) = caught.value.records
    return record


def test_the_documented_keys_are_read() -> None:
    assert parse_compression_conf(WHOLE, "f") == {
        "enable_first_layer_quantization": "false",
        "calibration": {
            "input_data_dir": "./a.bin,./b.bin",
            "input_shape": "in:16,16;in1:16,16",
            "config_file": "simple.cfg",
            "infer_soc": "Ascend910B3",
            "log": "info",
        },
    }


def test_without_a_calibration_nothing_happens(tmp_path: Path) -> None:
    file = tmp_path / "c.cfg"
    file.write_text("enable_first_layer_quantization:true\n")

    check_compression_conf(str(file))


def test_a_calibration_needs_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_EMULATOR_DEVICES", "0")
    record = refused(tmp_path / "c.cfg", WHOLE)

    assert record.code == "E10055"
    assert "this machine has none" in record.arguments["reason"]


def test_an_emulated_device_says_that_it_does_not_calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_EMULATOR_DEVICES", "1")
    record = refused(tmp_path / "c.cfg", WHOLE)

    assert record.code == "E10055"
    assert "emulated" in record.arguments["reason"]
    assert "amct_onnx" in record.arguments["reason"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "E21001"),
        ("enable_first_layer_quantization: yes", "E20101"),
        ("unknown: 1", "E21002"),
        ("calibration {\n input_data_dir: a\n", "E21002"),
        ("calibration { input_data_dir: a }", "E21002"),
        ("calibration {\n bits: 8\n}", "E21002"),
        (WHOLE.replace("log: info", "log: loud"), "E21002"),
        ("no colon", "E21002"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, text: str | None, code: str) -> None:
    assert refused(tmp_path / "c.cfg", text).code == code
