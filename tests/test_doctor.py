import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from workbench import doctor
from workbench.doctor import Finding, control_group_limits, examine, exit_code, findings_json, findings_table


def by_name(findings: tuple[Finding, ...]) -> dict[tuple[str, str], Finding]:
    return {(f.group.split()[0] + f.group.partition("target ")[2], f.name): f for f in findings}


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finding, ...]:
    return examine(tmp_path_factory.mktemp("workspace"))


def test_this_machine_is_usable_and_int8_really_ran(findings: tuple[Finding, ...]) -> None:
    usable = by_name(findings)["targetonnxruntime", "usable"]

    assert exit_code(findings) == 0
    assert usable.status == "ok"
    assert "a test layer was quantized, compiled and run" in usable.value


def test_every_finding_that_is_not_ok_says_what_to_do(findings: tuple[Finding, ...]) -> None:
    assert {f.status for f in findings} <= {"ok", "warn", "fail"}
    for finding in findings:
        assert finding.value
        assert (finding.status == "ok") == (finding.remedy == ""), finding


def test_a_missing_optional_package_is_a_warning() -> None:
    found = {f.name: f for f in doctor._packages(export=("numpy", "a_package_of_tomorrow"))}["export"]

    assert (found.status, found.value) == ("warn", "missing: a_package_of_tomorrow")
    assert "int8-workbench[export]" in found.remedy


def test_a_missing_required_package_fails() -> None:
    assert exit_code(tuple(doctor._packages(base=("numpy", "a_package_of_tomorrow")))) == 1


def test_looking_writes_nothing_into_the_workspace(tmp_path: Path) -> None:
    examine(tmp_path / "not" / "there")

    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (tmp_path / "mlruns").write_text("a file in the way")

    found = {f.name: f for f in doctor._workspace(tmp_path)}

    assert (found["mlruns"].status, found[".workbench"].status) == ("fail", "ok")
    assert "cannot be written" in found["mlruns"].value


def test_a_read_only_mount_fails_even_for_root(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a read-only mount needs root")
    code = f"import pathlib, workbench.doctor as d; print([f.status for f in d._workspace(pathlib.Path('{tmp_path}'))])"
    script = f'mount -t tmpfs -o ro tmpfs {tmp_path} && exec {sys.executable} -c "{code}"'

    done = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=60)

    if not done.stdout:
        pytest.skip(f"no private mount here: {done.stderr.strip()}")
    assert done.stdout.strip().endswith("'fail', 'fail']")


# --- Ascend --------------------------------------------------------------------------------------------------------


def ascend(environment: dict[str, str]) -> dict[str, Finding]:
    return {f.name: f for f in doctor._ascend(environment)}


def test_without_cann_every_missing_part_is_named_with_where_to_get_it() -> None:
    if importlib.util.find_spec("acl"):
        pytest.skip("this machine has CANN")
    found = ascend({"PATH": "/nowhere"})

    assert {name: f.status for name, f in found.items() if name != "workbench"} == dict.fromkeys(
        ("toolkit", "compiler", "runtime", "AMCT", "device"), "warn"
    )
    assert found["toolkit"].value == "ASCEND_HOME_PATH is not set"
    assert "set_env.sh" in found["toolkit"].remedy


def write_tool(path: Path, output: str, code: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)


NPU_SMI = """\
+------------------------------------------------------------------------------------------------+
| npu-smi 25.3.rc1                 Version: 25.3.rc1                                             |
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | OK            | 94.3        53                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          4487 / 65536         |
| 1     910B3               | OK            | 91.0        50                0    / 0             |
| 0                         | 0000:C2:00.0  | 0           0    / 0          4487 / 65536         |
+===========================+===============+====================================================+
| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |
+===========================+===============+====================================================+
| No running processes found in NPU 0                                                            |"""


def test_with_cann_version_compiler_and_devices_are_shown(tmp_path: Path) -> None:
    info = tmp_path / "cann" / "share" / "info" / "runtime"
    info.mkdir(parents=True)
    (info / "version.info").write_text("Version=8.5.0\nversion_dir=8.5.0\n")
    write_tool(tmp_path / "bin" / "atc", "")
    write_tool(tmp_path / "bin" / "npu-smi", NPU_SMI)

    found = ascend({"ASCEND_HOME_PATH": str(tmp_path / "cann"), "PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin"})

    assert found["toolkit"].value == f"CANN 8.5.0 at {tmp_path / 'cann'}"
    assert found["compiler"].value == str(tmp_path / "bin" / "atc")
    assert found["device"].value == "2 × 910B3"


def test_an_npu_smi_without_an_answer_is_no_device(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin" / "npu-smi", "dcmi module initialize failed", code=1)

    found = ascend({"PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin", "ASCEND_HOME_PATH": str(tmp_path / "gone")})

    assert (found["device"].status, found["device"].value) == ("warn", "npu-smi lists no device (exit code 1)")
    assert "is no folder" in found["toolkit"].value


# --- control groups ------------------------------------------------------------------------------------------------


def write(files: dict[str, str], root: Path) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_limits_of_version_2_come_from_the_tightest_group(tmp_path: Path) -> None:
    root = write(
        {
            "pod/cpu.max": "150000 100000\n",
            "pod/memory.max": "8000000000\n",
            "pod/app/cpu.max": "max 100000\n",
            "pod/app/memory.max": "4000000000\n",
        },
        tmp_path / "cgroup",
    )
    (tmp_path / "self").write_text("0::/pod/app\n")

    assert control_group_limits(root, tmp_path / "self") == (1.5, 4_000_000_000)


def test_limits_of_version_1_are_read_and_its_no_limit_is_none(tmp_path: Path) -> None:
    root = write(
        {
            "cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
            "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
        tmp_path / "cgroup",
    )
    (tmp_path / "self").write_text("5:cpu,cpuacct:/\n4:memory:/\n")

    assert control_group_limits(root, tmp_path / "self") == (2.0, None)
    write({"cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}, root)
    assert control_group_limits(root, tmp_path / "self") == (None, None)


def test_a_system_without_control_groups_has_no_limits(tmp_path: Path) -> None:
    assert control_group_limits(tmp_path, tmp_path / "missing") == (None, None)


# --- showing -------------------------------------------------------------------------------------------------------

MADE = (
    Finding(group="machine", name="CPU", status="ok", value="a [bracketed] CPU"),
    Finding(group="workspace", name="disk", status="fail", value="0.1 GB free", remedy="Free some space."),
)


def test_one_failure_decides_the_exit_code() -> None:
    assert (exit_code(MADE[:1]), exit_code(MADE)) == (0, 1)


def test_the_json_form_says_whether_the_machine_is_usable() -> None:
    data = json.loads(json.dumps(findings_json(MADE)))

    assert (data["version"], data["usable"]) == (1, False)
    assert data["findings"][1] == {
        "group": "workspace",
        "name": "disk",
        "status": "fail",
        "value": "0.1 GB free",
        "remedy": "Free some space.",
    }


def test_the_table_shows_groups_values_and_remedies() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(findings_table(MADE))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()

    assert "a [bracketed] CPU" in text
    assert "→ Free some space." in text
    assert text.index("machine") < text.index("workspace")
