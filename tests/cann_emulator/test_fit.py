"""Refitting the time model to an op_summary of msprof."""

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cann_emulator.test_timing import B3, elementwise, matmul, model
from workbench.cann_emulator.fit import Row, fit, main, override_text, read_op_summary
from workbench.cann_emulator.om import OfflineModel, write_om
from workbench.cann_emulator.timing import kernel_times, stream_us
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import load_device_data, with_parameters

HEADER = [
    "Device_id",
    "Op Name",
    "OP Type",
    "Task Type",
    "Task Start Time(us)",
    "Task Duration(us)",
    "Task Wait Time(us)",
]
TRUTH = {"cube_efficiency_float16": 0.31, "cube_efficiency_int8": 0.22}


def profiled() -> OfflineModel:
    """Products of several sizes in float16 and INT8, and kernels that only move memory."""
    kernels = []
    for index, size in enumerate((16, 128, 512, 1024, 2048)):
        for dtype in ("float16", "int8"):
            kernels.append(replace(matmul(1, size, 512, 2048, dtype), name=f"mm_{dtype}_{index}"))
        kernels.append(elementwise(size * 4, 2048, name=f"add_{index}"))
    return model(*kernels)


def write_summary(path: Path, om: OfflineModel, *, launch_us: float = 1.5, wait_us: float = 0.75) -> Path:
    truth = with_parameters(B3, {**TRUTH, "kernel_launch_us": launch_us})
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(HEADER)
        for iteration, noise in enumerate((1.0, 1.04, 0.97)):
            for time in kernel_times(om, 0, truth):
                duration = time.duration_us * noise
                writer.writerow([0, time.name, time.op_type, "AI_CORE", iteration, f"{duration:.4f}", wait_us])
        writer.writerow([0, "N/A", "N/A", "EVENT_RECORD", 9, "N/A", "N/A"])
    return path


def test_the_parameters_of_a_device_are_found_again(tmp_path: Path) -> None:
    om = profiled()

    result = fit(read_op_summary(write_summary(tmp_path / "op_summary_0.csv", om)), om)

    for name, value in TRUTH.items():
        assert result.parameters[name] == pytest.approx(value, rel=0.03), name
    assert result.parameters["kernel_launch_us"] == pytest.approx(1.5 + 0.75, rel=0.05)
    assert (result.matched, result.unmatched) == (15, ())
    assert result.after < 0.01 < result.before
    assert result.total_after == pytest.approx(1, abs=0.01)


def test_what_no_kernel_depends_on_is_left_alone(tmp_path: Path) -> None:
    om = model(*[matmul(1, size, 512, 2048) for size in (512, 1024, 2048)])
    rows = [
        Row(name=f"{i}", op_type="MatMulV2", duration_us=t.duration_us * 0.6, wait_us=None)
        for i, t in enumerate(kernel_times(om, 0, B3))
    ]

    result = fit(rows, om)

    assert "cube_efficiency_float16" in result.parameters
    assert not {"cube_efficiency_int8", "aicpu_launch_us", "vector_efficiency"} & set(result.parameters)


def test_the_command_writes_a_file_that_the_emulator_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    om = profiled()
    summary = write_summary(tmp_path / "op_summary_0.csv", om)
    (tmp_path / "model.om").write_bytes(write_om(om))
    target = tmp_path / "fitted.yaml"

    assert main([str(summary), "--om", str(tmp_path / "model.om"), "--to", str(target)]) == 0

    monkeypatch.setenv("CANN_EMULATOR_DEVICE_DATA", str(target))
    fitted = load_device_data("Ascend910B3")
    assert fitted.cube_efficiency_float16 == pytest.approx(0.31, rel=0.03)
    assert fitted.origins["cube_efficiency_float16"].startswith("measured: op_summary_0.csv")
    assert stream_us(om, 0, fitted) > stream_us(om, 0, B3)
    assert "15 kernels matched, 0 not" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fitted.yaml", "model.om", "op_summary_0.csv"]


def test_equal_input_gives_an_equal_file(tmp_path: Path) -> None:
    om = profiled()
    rows = read_op_summary(write_summary(tmp_path / "op_summary_0.csv", om))

    assert override_text(fit(rows, om), "x") == override_text(fit(rows, om), "x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column 'Op Name'"),
        ("Op Name,OP Type\na,b\n", "no column 'Task Duration"),
        ("Op Name,OP Type,Task Duration(us)\na,b,N/A\n", "no operator with a duration"),
    ],
    ids=["empty", "task time l0", "no durations"],
)
def test_a_summary_without_what_is_needed_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "op_summary.csv"
    file.write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_op_summary(file)


def test_of_a_run_with_files_for_several_lengths_the_rows_of_the_given_file_count(tmp_path: Path) -> None:
    summary = tmp_path / "op_summary.csv"
    lines = ["Model Name,Op Name,OP Type,Task Duration(us)"]
    lines += [f"b1_s64,mm,MatMulV2,{duration}" for duration in (4.0, 4.2, 3.8)]
    lines += [f"b1_s512,mm,MatMulV2,{duration}" for duration in (30.0, 31.0, 29.0)]
    summary.write_text("\n".join([*lines, "N/A,N/A,EVENT_RECORD,N/A"]) + "\n", encoding="utf-8")

    (row,) = read_op_summary(summary, "b1_s512")

    assert row.duration_us == 30.0
    with pytest.raises(ConfigError, match=r"2 models \(b1_s512, b1_s64\), and none of 'model'"):
        read_op_summary(summary, "model")


def test_where_a_run_had_one_model_its_name_does_not_matter(tmp_path: Path) -> None:
    summary = tmp_path / "op_summary.csv"
    summary.write_text(
        "Model Name,Op Name,OP Type,Task Duration(us)\nbert,mm,MatMulV2,4\nN/A,x,Cast,2\n", encoding="utf-8"
    )

    assert [row.name for row in read_op_summary(summary, "b1_s64")] == ["mm", "x"]


def test_a_summary_of_another_model_is_refused() -> None:
    rows = [Row(name="conv", op_type="Conv2D", duration_us=5, wait_us=None)]

    with pytest.raises(ConfigError, match="only 0 of the model's 15 kernels"):
        fit(rows, profiled())


def test_the_module_is_a_program_that_ends_with_1_and_a_message_on_bad_input(tmp_path: Path) -> None:
    (tmp_path / "bad.om").write_bytes(b"x" * 100)
    command = [sys.executable, "-m", "workbench.cann_emulator.fit", "none.csv", "--om", "bad.om", "--to", "out.yaml"]

    here = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=here,
    )

    assert done.returncode == 1
    assert "bad.om: the file does not begin with the emulator's mark" in done.stderr
    assert not (tmp_path / "out.yaml").exists()
