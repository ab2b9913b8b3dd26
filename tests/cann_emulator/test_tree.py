"""The CANN-shaped folder: atc.md §7.1, pyacl.md §6.5; the environment that switches it on."""

import os
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment
from workbench.cann_emulator.__main__ import main
from workbench.cann_emulator.tree import default_root, remove_tree, write_tree

SHELLS = [shell for shell in ("sh", "bash", "dash") if shutil.which(shell)]
COMMAND = [sys.executable, "-m", "workbench.cann_emulator"]


def run(command: list[str], environment: dict[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)


def test_a_folder_that_is_not_ours_is_neither_overwritten_nor_deleted(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("x")

    with pytest.raises(FileExistsError, match="no tree of the emulator"):
        write_tree(tmp_path / "mine")
    with pytest.raises(FileExistsError, match="nothing was deleted"):
        remove_tree(tmp_path / "mine")
    assert (tmp_path / "mine/thesis.tex").exists()


def test_many_writers_at_once_leave_one_whole_tree(tmp_path: Path) -> None:
    versions = ["8.5.0", "8.1.RC1"] * 3
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda version: write_tree(tmp_path / "cann", version), versions))  # type: ignore[arg-type]  # of str

    names = [p.name for p in tmp_path.iterdir()]
    assert names == ["cann"]
    version = (tmp_path / "cann/.emulator").read_text().splitlines()[1]
    assert (tmp_path / "cann/compiler/version.info").read_text().startswith(f"Version={version}\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["plain", 'it\'s a "folder" $HOME `x` ünï;&'])
def test_eval_switches_it_on_whatever_the_folder_is_called(tmp_path: Path, shell: str, name: str) -> None:
    root = tmp_path / name
    env = shlex.join([*COMMAND, "env", "--root", str(root), "--devices", "2"])
    places = '"$ASCEND_HOME_PATH" "$(command -v atc)" "$(command -v npu-smi)"'
    script = f'eval "$({env})"; printf "%s\\n" {places}; npu-smi info -l'

    done = run([shell, "-eu", "-c", script], dict(os.environ))

    assert done.stderr == ""
    home, atc, npu_smi, count, *_ = done.stdout.splitlines()
    assert (home, atc, npu_smi) == (str(root), f"{root}/bin/atc", f"{root}/bin/npu-smi")
    assert count.split() == ["Total", "Count", ":", "2"]


def test_switching_on_twice_or_another_one_leaves_no_trace_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = write_tree(tmp_path / "one"), tmp_path / "two"
    monkeypatch.setenv("PATH", f"{first}/bin:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", f"{first}/python/site-packages:/mine")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(first))

    assert main(["env", "--root", str(second), "--cann", "8.1.RC1", "--hbm-mb", "32768"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert f"export PATH={second}/bin:/usr/bin;" in lines
    assert next(line for line in lines if "PYTHONPATH" in line).endswith(":/mine;")
    assert not any(str(first) in line for line in lines)
    assert "export CANN_EMULATOR_VERSION=8.1.RC1;" in lines
    assert "export CANN_EMULATOR_HBM_MB=32768;" in lines


def test_replacing_a_real_cann_is_told_beside_the_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/cann")

    main(["env", "--root", str(tmp_path / "cann")])

    streams = capsys.readouterr()
    assert "replaces the CANN at /usr/local/Ascend/cann" in streams.err
    assert all(line.startswith("export ") for line in streams.out.splitlines())


@pytest.mark.parametrize(
    "arguments", [["env", "--devices", "99"], ["env", "--hbm-mb", "0"], ["env", "--root", "/a:b"], []]
)
def test_wrong_arguments_print_nothing_that_a_shell_could_evaluate(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)

    assert caught.value.code == 2
    assert capsys.readouterr().out == ""


def test_a_place_without_rights_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["env", "--root", "/proc/cann"]) == 1

    streams = capsys.readouterr()
    assert streams.out == ""
    assert streams.err.startswith("error: ")


def test_remove_deletes_the_trees_of_the_cache_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = write_tree(default_root("8.5.0"))
    (root.parent / "notes").mkdir()

    assert main(["remove"]) == 0
    assert capsys.readouterr().out == f"removed {root}\n"
    assert [p.name for p in root.parent.iterdir()] == ["notes"]
    assert main(["remove", "--root", str(root)]) == 0
    assert "nothing at" in capsys.readouterr().out


@pytest.mark.parametrize("module", ["acl", "amct_onnx"])
def test_a_fresh_process_imports_the_vendors_modules_through_the_tree(tmp_path: Path, module: str) -> None:
    code = (
        f"import {module} as vendor, workbench.cann_emulator.{module} as real\n"
        f"assert '/cann/python/site-packages/{module}/' in vendor.__file__, vendor.__file__\n"
        "public = [n for n in vars(real) if not n.startswith('_')]\n"
        "assert public and all(getattr(vendor, n) is getattr(real, n) for n in public)"
    )

    done = run([sys.executable, "-c", code], emulated_environment(tmp_path), tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


def test_another_interpreter_is_told_which_one_has_the_emulator(tmp_path: Path) -> None:
    environment = emulated_environment(tmp_path)
    site = tmp_path / "cann/python/site-packages"
    code = (
        f"import sys\nown = [p for p in sys.path if p.startswith(sys.base_prefix) and 'site-packages' not in p]\n"
        f"sys.path = [{str(site)!r}, *own]\nimport acl"
    )

    done = run([sys.executable, "-I", "-S", "-c", code], environment, tmp_path)

    assert f"runs in the interpreter of the workbench: {sys.executable}" in done.stderr
