"""Refitting the time model to an op_summary of msprof."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cann_emulator.test_timing import B3, elementwise, matmul, model
from workbench.cann_emulator.fit import Row, fit, main, read_op_summary
from workbench.cann_emulator.om import OfflineModel, write_om
from workbench.cann_emulator.timing import kernel_times, stream_us
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import load_device_data, with_parameters

TRUTH = {"cube_efficiency_float16": 0.31, "cube_efficiency_int8": 0.22}


def profiled() -> OfflineModel:
    """Products of several sizes in float16 and INT8, and kernels that only move memory."""
    kernels = []
    for index, size in enumerate((16, 128, 512, 1024, 2048)):
        for dtype in ("float16", "int8"):
            kernels.append(replace(matmul(1, size, 512, 2048, dtype), name=f"mm_{dtype}_{index}"))
        kernels.append(elementwise(size * 4, 2048, name=f"add_{index}"))
    return model(*kernels)


def write_summary(path: Path, om: OfflineModel) -> Path:
    truth = with_parameters(B3, {**TRUTH, "kernel_launch_us": 1.5})
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Op Name", "OP Type", "Task Duration(us)", "Task Wait Time(us)"])
        for noise in (1.0, 1.04, 0.97):
            for time in kernel_times(om, 0, truth):
                writer.writerow([time.name, time.op_type, f"{time.duration_us * noise:.4f}", 0.75])
        writer.writerow(["N/A", "EVENT_RECORD", "N/A", "N/A"])
    return path


def test_the_command_finds_the_parameters_of_a_device_again_and_the_emulator_takes_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    om, target = profiled(), tmp_path / "fitted.yaml"
    summary = write_summary(tmp_path / "op_summary_0.csv", om)
    (tmp_path / "model.om").write_bytes(write_om(om))

    assert main([str(summary), "--om", str(tmp_path / "model.om"), "--to", str(target)]) == 0
    first = target.read_bytes()
    assert main([str(summary), "--om", str(tmp_path / "model.om"), "--to", str(target)]) == 0

    assert target.read_bytes() == first
    assert "15 of 15 kernels matched\nmedian error of a kernel: " in capsys.readouterr().out
    monkeypatch.setenv("CANN_EMULATOR_DEVICE_DATA", str(target))
    fitted = load_device_data("Ascend910B3")
    for name, value in TRUTH.items():
        assert getattr(fitted, name) == pytest.approx(value, rel=0.03), name
        assert fitted.origins[name].startswith("measured: op_summary_0.csv")
    assert fitted.kernel_launch_us == pytest.approx(1.5 + 0.75, rel=0.05)
    assert stream_us(om, 0, fitted) > stream_us(om, 0, B3)


def test_a_summary_or_model_without_what_is_needed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "op_summary.csv"
    for text, message in (
        ("", "no column 'Op Name'"),
        ("Op Name,OP Type\na,b\n", "no column 'Task Duration"),
        ("Op Name,OP Type,Task Duration(us)\na,b,N/A\n", "no operator with a duration"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=message):
            read_op_summary(file)
    with pytest.raises(ConfigError, match="only 0 of the model's 15 kernels"):
        fit({"conv": Row(op_type="Conv2D", duration_us=5)}, profiled())
    (tmp_path / "bad.om").write_bytes(b"x" * 100)
    assert main([str(file), "--om", str(tmp_path / "bad.om"), "--to", str(tmp_path / "out.yaml")]) == 1
    assert "bad.om: the file does not begin with the emulator's mark" in capsys.readouterr().err
    assert not (tmp_path / "out.yaml").exists()
