"""The program msprof: pyacl.md §5.4."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment

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
