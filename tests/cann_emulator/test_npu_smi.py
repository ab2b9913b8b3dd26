"""The program npu-smi: pyacl.md §6.1-6.2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment
from workbench.cann_emulator import npu_smi
from workbench.cann_emulator.state import DeviceUse, report_use

# A capture of one idle card (pyacl.md §6.1); only figures differ
IDLE = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.3.rc1                 Version: 25.3.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 94.3        36                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3358 / 65536         |
+===========================+===============+====================================================+
+---------------------------+---------------+----------------------------------------------------+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |
+===========================+===============+====================================================+
"""


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CANN_EMULATOR_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CANN_EMULATOR_STATE", str(tmp_path / "state"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert npu_smi.main(arguments) == code
    return capsys.readouterr().out


def pairs(text: str) -> dict[str, str]:
    lines = [line.partition(" : ") for line in text.splitlines() if " : " in line]
    assert all(key.startswith("\t") for key, _, _ in lines)
    return {key.strip(): value for key, _, value in reversed(lines)}


def test_an_idle_card_looks_as_in_a_capture(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "info") == IDLE


def test_load_memory_and_processes_of_a_device_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_EMULATOR_DEVICES", "2")
    report_use({1: DeviceUse(hbm_bytes=1000 << 20, aicore_percent=70)})
    try:
        table, common = said(capsys, "info"), pairs(said(capsys, "info", "-t", "common", "-i", "1"))
        other = pairs(said(capsys, "info", "-t", "common", "-i", "0"))
        memory = said(capsys, "info", "-t", "proc-mem", "-i", "1")
    finally:
        report_use({})

    assert "| 0                         | 0000:C2:00.0  | 70          0    / 0          4358 / 65536         |" in table
    assert f"| 1       0                 | {os.getpid():<13} |" in table
    assert (common["Aicore Usage Rate(%)"], common["Aicore curFreq(MHZ)"]) == ("70", "1800")
    assert float(common["NPU Real-time Power(W)"]) > float(other["NPU Real-time Power(W)"])
    assert (other["Aicore Usage Rate(%)"], other["Aicore curFreq(MHZ)"]) == ("0", "800")
    assert f"Process id:{os.getpid()}" in memory
    assert "Process memory(MB):1000" in memory


def test_each_kind_has_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """pyacl.md §6.2."""
    for kind, keys in {
        "usages": ["HBM Capacity(MB)", "HBM Usage Rate(%)", "Aicore Usage Rate(%)", "HBM Bandwidth Usage Rate(%)"],
        "power": ["NPU Real-time Power(W)"],
        "common": ["Aicore Freq(MHZ)", "Aicore curFreq(MHZ)", "Aicore Count", "Temperature(C)"],
        "temp": ["NPU Temperature (C)"],
        "memory": ["HBM Capacity(MB)", "HBM Temperature(C)"],
        "board": ["Product Name", "Software Version", "Firmware Version", "Compatibility", "PCIe Bus Info"],
        "health": ["Health Status", "Error Code", "Error Information"],
    }.items():
        assert set(keys) <= set(pairs(said(capsys, "info", "-t", kind, "-i", "0")))
    assert len(said(capsys, "info", "-t", "health", "-i", "0", "-c", "0").splitlines()) == 3


def test_a_machine_without_devices_fails_as_the_library_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANN_EMULATOR_DEVICES", "0")

    assert said(capsys, "info", code=1) == "dcmi module initialize failed. ret is -8005\n"


def test_a_wrong_parameter_is_named_before_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, wrong in (
        (["-i", "0"], "-t"),
        (["-t", "nothing", "-i", "0"], "-t"),
        (["-t", "power", "-i", "7"], "-i"),
        (["-t", "power"], "-i"),
        (["-t", "power", "-i", "0", "-c", "3"], "-c"),
        (["-x"], "-x"),
    ):
        text = said(capsys, "info", *arguments, code=1)
        assert text.startswith(f"Error parameter of {wrong}\nUsage: npu-smi info <watch|proc|-h|-m|-l|-t type>")


def test_another_chip_shows_its_own_name_memory_and_clock_and_an_unknown_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CANN_EMULATOR_SOC", "Ascend910B4")
    assert npu_smi.main(["info"]) == 0
    shown = capsys.readouterr().out
    assert "| 0     910B4 " in shown
    assert "/ 32768 " in shown
    assert npu_smi.main(["info", "-t", "common", "-i", "0"]) == 0
    assert "1650" in capsys.readouterr().out
    monkeypatch.setenv("CANN_EMULATOR_SOC", "Ascend910C")
    assert npu_smi.main(["info"]) == 1
    assert "no chip whose times are modelled: Ascend910B1" in capsys.readouterr().out


# Stands for a program whose acl was told to profile; what acl itself writes is tested with acl
APPLICATION = """\
import os, pathlib
folder = pathlib.Path(os.environ["CANN_EMULATOR_PROFILE"]) / "PROF_000001_1_A" / "mindstudio_profiler_output"
folder.mkdir(parents=True)
(folder / "op_summary_1.csv").write_text("OP Type\\n")
"""


def msprof(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = emulated_environment(folder)
    return subprocess.run(
        ["msprof", *arguments], env=environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("form", ["application", "words"])
def test_an_application_runs_with_profiling_on_and_its_result_is_named(tmp_path: Path, form: str) -> None:
    (tmp_path / "run it.py").write_text(APPLICATION)
    output = f"--output={tmp_path}/out"
    command = (
        [f"--application={sys.executable} 'run it.py'", output, "--task-time=on"]
        if form == "application"
        else [output, "--aic-metrics=PipeUtilization", sys.executable, "run it.py"]
    )

    done = msprof(tmp_path, *command)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"Process profiling data complete. Data is saved in {tmp_path}/out/PROF_000001_1_A\n")
    again = msprof(tmp_path, "--export=on", f"--output={tmp_path}/out/PROF_000001_1_A")
    assert "op_summary_1.csv" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--application=sh -c 'exit 7'"], 7, "exits with 7"),
        (["--application=true"], 1, "No profiling data"),
        (["--application=/nowhere/x"], 1, "cannot be started"),
        (["--aplication=true"], 1, "Argument --aplication=true is invalid"),
        ([], 1, "No application"),
        (["--export=on", "--output=."], 1, "no profiling data"),
    ],
)
def test_a_failure_has_a_message_and_an_exit_code(tmp_path: Path, arguments: list[str], code: int, words: str) -> None:
    done = msprof(tmp_path, *arguments)

    assert (done.returncode, words in done.stderr) == (code, True)


@pytest.mark.parametrize("content", [b"\x5a\x5a\xff", b"[]" * 8, None])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    dump = tmp_path / "Opdebug.Node_OpDebug.3.0.1732082705016774"
    if content is not None:
        dump.write_bytes(content)
    environment = emulated_environment(tmp_path)
    program = Path(environment["ASCEND_HOME_PATH"]) / "tools/operator_cmp/compare/msaccucmp.py"

    command = [sys.executable, str(program), "convert", "-d", str(dump), "-out", str(tmp_path / "out"), "-v", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert (done.returncode, "cannot be converted" in done.stdout) == (1, True)
    assert not (tmp_path / "out").exists()
