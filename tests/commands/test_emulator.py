"""`workbench emulator`: a door to a program that nothing of the workbench imports."""

import subprocess
import sys
from pathlib import Path

WORKBENCH = [sys.executable, "-m", "workbench", "emulator"]


def run(*arguments: str, cwd: Path | None = None, program: list[str] = WORKBENCH) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*program, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_env_prints_nothing_but_lines_for_eval(tmp_path: Path) -> None:
    done = run("env", "--root", str(tmp_path / "cann"), "--devices", "2")

    assert (done.returncode, done.stderr) == (0, "")
    assert all(line.startswith("export ") and line.endswith(";") for line in done.stdout.splitlines())
    assert "export CANN_EMULATOR_DEVICES=2;" in done.stdout.splitlines()
    assert str(Path(__file__).parents[2]) not in done.stdout  # how the child finds the workbench does not leak


def test_words_and_exit_codes_go_through(tmp_path: Path) -> None:
    wrong, foreign = run("env", "--chips", "2"), run("remove", "--root", str(tmp_path))

    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "unrecognized arguments: --chips 2" in wrong.stderr
    assert (foreign.returncode, "nothing was deleted" in foreign.stderr) == (1, True)


def test_a_module_in_the_working_directory_is_not_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('the wrong argparse')")
    console = str(Path(sys.executable).with_name("workbench"))

    done = run("env", "--root", "cann", cwd=tmp_path, program=[console, "emulator"])

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "cann/set_env.sh").is_file()  # where the caller stands
