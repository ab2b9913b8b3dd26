"""Findings about the processor, its limits, memory, the workspace and a team's server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.commands.doctor import exit_code
from workbench.commands.doctor.machine import (
    cores_finding,
    int8_finding,
    tracking_findings,
    workspace_findings,
)
from workbench.values.finding import Finding
from workbench.values.system.cpu import control_group_limits, cpu_of


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
        "from pathlib import Path\nfrom workbench.commands.doctor.machine import workspace_findings\n"
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
