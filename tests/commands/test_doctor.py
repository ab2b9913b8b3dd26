"""What this machine can do, as findings of `doctor`: packages, processor, limits, workspace, server; and as shown."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from workbench.commands.doctor import (
    Finding,
    cores_finding,
    examine,
    exit_code,
    findings_json,
    findings_table,
    int8_finding,
    tracking_findings,
    workspace_findings,
)
from workbench.values.system.cpu import control_group_limits, cpu_of


def test_this_machine_is_usable_int8_really_ran_and_what_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    findings = examine(tmp_path / "not" / "there")
    usable = next(f for f in findings if (f.group, f.name) == ("target onnxruntime", "usable"))
    assert exit_code(findings) == 0
    assert usable.status == "ok"
    assert "a test layer was quantized, compiled and run" in usable.value
    for finding in findings:
        assert finding.value
        assert (finding.status == "ok") == (finding.remedy == ""), finding
    groups = [finding.group for finding in findings]
    assert groups == [group for group in dict.fromkeys(groups) for _ in range(groups.count(group))]
    assert len({(f.group, f.name) for f in findings}) == len(findings)
    assert list(tmp_path.iterdir()) == [], "looking writes nothing into the workspace"


def examined_in_a_process(before: str) -> str:
    """What a fresh interpreter says after running the lines `before`."""
    code = f"""\
import sys
from pathlib import Path
{before}
from workbench.commands.doctor import examine, exit_code
findings = examine(Path())
print("exit code", exit_code(findings))
for f in findings:
    print(f.group, f.name, f.status, f.value, sep="|")
print("loaded", *(m for m in ("torch", "transformers", "mlflow", "optuna", "numpy") if m in sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)
    return done.stdout


def test_the_examination_imports_none_of_the_heavy_libraries() -> None:
    assert examined_in_a_process("").endswith("loaded numpy\n")


def test_missing_packages_are_findings_although_most_modules_need_them(tmp_path: Path) -> None:
    hide = """\
import importlib.metadata
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "onnx", "rich"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
there = importlib.metadata.version
def version(name):
    if name in HIDDEN:
        raise importlib.metadata.PackageNotFoundError(name)
    return there(name)
importlib.metadata.version = version
"""
    said = examined_in_a_process(f"HIDDEN = ('numpy', 'onnx', 'rich', 'torch')\n{hide}")
    assert "exit code 1" in said
    assert "packages|required|fail|missing: numpy, onnx, rich\n" in said
    assert "packages|export|warn|missing: torch\n" in said
    assert "machine|" not in said
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libonnxruntime.so is missing')")
    damaged = examined_in_a_process(f"sys.path.insert(0, {str(tmp_path)!r})")
    assert "exit code 1" in damaged
    assert "packages|loading|fail|libonnxruntime.so is missing" in damaged


def test_findings_are_shown_as_they_are_and_to_programs() -> None:
    made = (
        Finding(group="machine", name="CPU", status="ok", value="a [bold]bracketed[/bold] CPU"),
        Finding(group="packages", name="export", status="warn", value="missing: torch", remedy="pip install 'a[x]'"),
        Finding(group="workspace [x]", name="disk", status="fail", value="0.1 GB free", remedy="Free some space."),
    )
    assert (exit_code(made[:2]), exit_code(made)) == (0, 1)
    data = json.loads(json.dumps(findings_json(made)))
    assert (data["version"], data["usable"], len(data["findings"])) == (1, False, 3)
    assert list(data["findings"][2].values()) == ["workspace [x]", "disk", "fail", "0.1 GB free", "Free some space."]
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(findings_table(made))
    text = console.export_text()
    assert "a [bold]bracketed[/bold] CPU" in text
    assert "→ pip install 'a[x]'" in text
    assert text.index("machine") < text.index("workspace [x]") < text.index("0.1 GB free")


def test_the_instructions_are_explained_for_int8() -> None:
    for flags, status, says in (
        ("avx2 avx512f avx512_vnni amx_int8", "ok", "AMX"),
        ("avx2 avx_vnni", "ok", "without overflow"),
        ("avx2", "warn", "AVX2 without VNNI"),
        ("sse2", "warn", "of no known class"),
    ):
        finding = int8_finding(cpu_of(flags.split(), "Test"))
        assert finding.status == status
        assert says in finding.value


def test_a_limit_on_cpu_time_is_a_warning_with_the_number_of_threads_to_use() -> None:
    free, bound, throttled = cores_finding(8, 8, None), cores_finding(8, 4, None), cores_finding(8, 8, 2.0)
    assert (free.status, free.value) == ("ok", "8 of 8 usable")
    assert (bound.status, bound.value) == ("ok", "4 of 8 usable (this process may run on 4)")
    assert throttled.status == "warn"
    assert "serving.intra_op_threads up to 2" in throttled.remedy
    assert "--cpuset-cpus" in throttled.remedy
    for affinity, quota, usable in ((8, 2.9, 2), (2, 64.0, 2), (4, 0.5, 1), (4, 4.0, 4)):
        assert cores_finding(8, affinity, quota).value.startswith(f"{usable} of 8 usable")


def write(root: Path, **files: str) -> Path:
    """Files of control groups; a name's double underline is a slash."""
    for name, text in files.items():
        file = root / name.replace("__", "/").replace("_max", ".max").replace("cpu_cfs", "cpu.cfs")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def test_limits_of_control_groups_are_the_tightest_and_what_cannot_be_read_is_none(tmp_path: Path) -> None:
    own = tmp_path / "self"
    pods = {"pod__cpu_max": "150000 100000\n", "pod__memory_max": "8000000000\n"}
    root = write(tmp_path / "a", **pods, pod__app__cpu_max="max 100000\n", pod__app__memory_max="4000000000\n")
    own.write_text("0::/pod/app\n")
    assert control_group_limits(root, own) == (1.5, 4_000_000_000)
    own.write_text("0::/kubepods/pod1/app\n")  # a container sees its own root alone
    assert control_group_limits(write(tmp_path / "b", cpu_max="400000 100000\n", memory_max="max\n"), own) == (
        4.0,
        None,
    )
    assert control_group_limits(tmp_path, tmp_path / "missing") == (None, None)
    own.write_text("0::/\n")
    for text in ("rubbish", "", "100000", "100000 0", "max 100000"):
        root = write(tmp_path / "c", cpu_max=text, memory_max=text and "rubbish")
        assert control_group_limits(root, own) == (None, None), text
    own.write_text("5:cpu,cpuacct:/\n4:memory:/\n")  # version 1, and how it says no limit
    first = write(tmp_path / "d", cpu__cpu_cfs_quota_us="200000\n", cpu__cpu_cfs_period_us="100000\n")
    (first / "memory").mkdir()
    (first / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert control_group_limits(first, own) == (2.0, None)
    assert control_group_limits(write(first, cpu__cpu_cfs_quota_us="-1\n"), own) == (None, None)


def found_in(workspace: Path) -> dict[str, Finding]:
    return {finding.name: finding for finding in workspace_findings(workspace)}


def test_a_workspace_can_be_created_and_what_stands_in_its_way_fails_and_stays(tmp_path: Path) -> None:
    new = found_in(tmp_path / "not" / "there")
    assert [f.status for f in new.values()][1:] == ["ok", "ok"]
    assert new[".workbench"].value == "cache and journals: will be created"
    (tmp_path / "mlruns").write_text("a file in the way")
    (tmp_path / ".workbench").mkdir()
    findings = found_in(tmp_path)
    assert (findings["mlruns"].status, findings[".workbench"].status) == ("fail", "ok")
    assert "cannot be written" in findings["mlruns"].value
    assert findings[".workbench"].value == "cache and journals: writable"
    assert (tmp_path / "mlruns").read_text() == "a file in the way"
    assert exit_code(found_in(tmp_path / "mlruns").values()) == 1, "a workspace that is a file"
    (tmp_path / ".workbench").rmdir()
    (tmp_path / ".workbench").symlink_to(tmp_path / "gone" / "away")
    assert found_in(tmp_path)[".workbench"].status == "fail", "a link to nowhere"


def test_a_read_only_mount_fails_even_for_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a read-only mount needs root")
    code = (
        "from pathlib import Path\nfrom workbench.commands.doctor import workspace_findings\n"
        f"print([f.status for f in workspace_findings(Path('{tmp_path}'))])"
    )
    script = f'mount -t tmpfs -o ro tmpfs {tmp_path} && exec {sys.executable} -c "{code}"'

    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=300)

    if not done.stdout:
        pytest.skip(f"no private mount here: {done.stderr.strip()}")
    assert done.stdout.strip().endswith("'fail', 'fail']")


def test_a_server_that_cannot_be_used_is_a_warning_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(tracking_findings(tmp_path)) == []
    for address, value in (
        ("http://127.0.0.1:9", "MLflow's server http://127.0.0.1:9 failed: the connection was refused"),
        ("mlruns", "MLFLOW_TRACKING_URI: 'mlruns' is no address of an MLflow server"),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        (finding,) = tracking_findings(tmp_path)
        assert finding.status == "warn"
        assert finding.value.startswith(value)
        assert finding.remedy
