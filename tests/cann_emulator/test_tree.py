"""The CANN-shaped folder, its environment and programs: atc.md §7.1, pyacl.md §5.4, §5.6, §6.1-6.5."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.cann_emulator import msaccucmp, npu_smi
from workbench.cann_emulator.__main__ import main
from workbench.cann_emulator.state import DeviceUse, report_use
from workbench.cann_emulator.tree import default_root, remove_tree, write_tree

SHELLS = [shell for shell in ("sh", "bash", "dash") if shutil.which(shell)]
COMMAND = [sys.executable, "-m", "workbench.cann_emulator"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["plain", 'it\'s a "folder" $HOME `x` ünï;&'])
def test_eval_switches_it_on_whatever_the_folder_is_called(tmp_path: Path, shell: str, name: str) -> None:
    root = tmp_path / name
    env = shlex.join([*COMMAND, "env", "--root", str(root), "--devices", "2"])
    places = '"$ASCEND_HOME_PATH" "$(command -v atc)" "$(command -v npu-smi)"'
    script = f'eval "$({env})"; printf "%s\\n" {places}; npu-smi info -m'

    done = subprocess.run([shell, "-eu", "-c", script], capture_output=True, text=True, timeout=300, check=False)

    assert done.stderr == ""
    home, atc, npu_smi, _, *cards = done.stdout.splitlines()
    assert (home, atc, npu_smi) == (str(root), f"{root}/bin/atc", f"{root}/bin/npu-smi")
    assert [card.split()[2] for card in cards] == ["0", "-", "1", "-"]


def test_another_one_leaves_no_trace_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = write_tree(tmp_path / "one"), tmp_path / "two"
    monkeypatch.setenv("PATH", f"{first}/bin:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", f"{first}/python/site-packages:/mine")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(first))

    assert main(["env", "--root", str(second), "--hbm-mb", "32768"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert f"export PATH={second}/bin:/usr/bin;" in lines
    assert next(line for line in lines if "PYTHONPATH" in line).endswith(":/mine;")
    assert not any(str(first) in line for line in lines)
    assert "export CANN_EMULATOR_VERSION=8.5.0;" in lines
    assert "export CANN_EMULATOR_HBM_MB=32768;" in lines
    monkeypatch.setenv("ASCEND_HOME_PATH", "/usr/local/Ascend/cann")
    main(["env", "--root", str(second)])
    streams = capsys.readouterr()
    assert "replaces the CANN at /usr/local/Ascend/cann" in streams.err
    assert all(line.startswith("export ") for line in streams.out.splitlines())


def test_wrong_arguments_or_no_rights_print_nothing_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["env", "--devices", "99"], ["env", "--hbm-mb", "0"], ["env", "--root", "/a:b"], []):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert (caught.value.code, capsys.readouterr().out) == (2, "")
    assert main(["env", "--root", "/proc/cann"]) == 1
    streams = capsys.readouterr()
    assert (streams.out, streams.err[:7]) == ("", "error: ")


def test_remove_deletes_what_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    root = write_tree(default_root())
    (root.parent / "notes").mkdir()
    (root.parent / "notes/thesis.tex").write_text("x")
    with pytest.raises(FileExistsError, match="no tree of the emulator"):
        write_tree(root.parent / "notes")
    with pytest.raises(FileExistsError, match="nothing was deleted"):
        remove_tree(root.parent / "notes")

    assert main(["remove"]) == 0
    assert capsys.readouterr().out == f"removed {root}\n"
    assert sorted(p.name for p in root.parent.rglob("*")) == ["notes", "thesis.tex"]
    assert main(["remove", "--root", str(root)]) == 0
    assert "nothing at" in capsys.readouterr().out


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
def surroundings(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANN_EMULATOR_STATE", str(own_folder / "state"))


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert npu_smi.main(arguments) == code
    return capsys.readouterr().out


def pairs(text: str) -> dict[str, str]:
    lines = [line.partition(" : ") for line in text.splitlines() if " : " in line]
    assert all(key.startswith("\t") for key, _, _ in lines)
    return {key.strip(): value for key, _, value in reversed(lines)}


def test_cards_look_as_in_a_capture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(capsys, "info") == IDLE
    monkeypatch.setenv("CANN_EMULATOR_DEVICES", "2")
    report_use({1: DeviceUse(hbm_bytes=1000 << 20, aicore_percent=70)})
    try:
        table, common = said(capsys, "info"), pairs(said(capsys, "info", "-t", "common", "-i", "1"))
        other = pairs(said(capsys, "info", "-t", "common", "-i", "0"))
    finally:
        report_use({})

    assert "| 0                         | 0000:C2:00.0  | 70          0    / 0          4358 / 65536         |" in table
    assert f"| 1       0                 | {os.getpid():<13} |" in table
    assert (common["Aicore Usage Rate(%)"], common["Aicore curFreq(MHZ)"]) == ("70", "1800")
    assert float(common["NPU Real-time Power(W)"]) > float(other["NPU Real-time Power(W)"])
    assert (other["Aicore Usage Rate(%)"], other["Aicore curFreq(MHZ)"]) == ("0", "800")


def test_a_file_that_is_no_dump_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = tmp_path / "Opdebug.Node_OpDebug.3.0.1732082705016774"
    for content in (None, b"\x5a\x5a\xff", b"[]" * 8):
        if content is not None:
            dump.write_bytes(content)
        assert msaccucmp.main(["convert", "-d", str(dump), "-out", str(tmp_path / "out"), "-v", "2"]) == 1
        assert "cannot be converted" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
