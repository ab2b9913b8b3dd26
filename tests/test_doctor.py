import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from rich.console import Console

from workbench.doctor import (
    Finding,
    ascend_findings,
    cores_finding,
    cpu_quota,
    disk_finding,
    examine,
    exit_code,
    extra_findings,
    findings_json,
    findings_table,
    int8_finding,
    load_finding,
    memory_finding,
    memory_limit,
    python_finding,
    target_findings,
    usable_cores,
    version_in,
    workspace_findings,
)
from workbench.errors import ConfigError
from workbench.targets.onnxruntime import parse_cpu

GIB = 1 << 30


def named(findings: tuple[Finding, ...]) -> Mapping[str, Finding]:
    return {finding.name: finding for finding in findings}


def test_this_machine_can_run_the_workbench_and_nothing_is_left_behind(tmp_path: Path) -> None:
    findings = named(examine(tmp_path))

    assert exit_code(findings.values()) == 0
    assert "onnxruntime 1." in findings["target onnxruntime"].value
    assert "numpy " in findings["target onnxruntime"].value
    assert findings[".workbench"].value == "will be created"
    assert list(tmp_path.iterdir()) == []


def test_every_finding_that_is_not_ok_says_what_to_do(tmp_path: Path) -> None:
    assert all(finding.remedy for finding in examine(tmp_path) if finding.status != "ok")


def test_the_examination_imports_none_of_the_heavy_libraries(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom workbench.doctor import examine\n"
        f"examine(Path({str(tmp_path)!r}))\n"
        "print([m for m in ('torch', 'transformers', 'mlflow', 'optuna') if m in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"


# --- processor -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "status", "says"),
    [
        ("avx2 avx512f avx512_vnni amx_int8", "ok", "AMX"),
        ("avx2 avx_vnni", "ok", "one instruction"),
        ("avx2", "warn", "can overflow"),
        ("sse2", "warn", "no 8-bit dot products"),
    ],
)
def test_the_instructions_are_explained_for_int8(flags: str, status: str, says: str) -> None:
    finding = int8_finding(parse_cpu(f"model name : Test\nflags : {flags}\n"))

    assert finding.status == status
    assert says in finding.value


def test_a_system_that_does_not_tell_its_instructions_is_not_blamed_for_it() -> None:
    assert int8_finding(parse_cpu(None)).status == "ok"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu.max": "rubbish"}, None),
        ({}, None),
    ],
    ids=["v2", "v2-unlimited", "v1", "v1-unlimited", "damaged", "absent"],
)
def test_the_container_s_cpu_time_is_read(tmp_path: Path, files: dict[str, str], quota: float | None) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(
    ("text", "limit"), [("max", None), (str(4 * GIB), 4 * GIB), ("9223372036854771712", None), ("", None)]
)
def test_the_container_s_memory_is_read(tmp_path: Path, text: str, limit: int | None) -> None:
    (tmp_path / "memory.max").write_text(text)

    assert memory_limit(tmp_path) == limit


def test_usable_cores_are_whole_and_at_least_one() -> None:
    assert [usable_cores(8, None), usable_cores(8, 2.9), usable_cores(2, 64.0), usable_cores(4, 0.5)] == [8, 2, 2, 1]


def test_a_limit_on_cpu_time_is_a_warning_with_the_number_of_threads_to_use() -> None:
    free, bound, throttled = cores_finding(8, 8, None), cores_finding(8, 4, None), cores_finding(8, 8, 2.0)

    assert (free.status, free.value) == ("ok", "8 of 8 usable")
    assert (bound.status, bound.value) == ("ok", "4 of 8 usable (this process may run on 4)")
    assert throttled.status == "warn"
    assert "serving.intra_op_threads up to 2" in throttled.remedy


def test_a_busy_machine_is_warned_about() -> None:
    assert [load_finding(load, 4).status for load in (0.1, 1.0, 1.5, 9.0)] == ["ok", "ok", "warn", "warn"]


def test_little_memory_is_warned_about_and_the_container_s_limit_counts() -> None:
    assert memory_finding(16 * GIB, 8 * GIB, None).status == "ok"
    assert memory_finding(16 * GIB, 1 * GIB, None).status == "warn"
    assert "may use 1.0 GiB" in memory_finding(16 * GIB, 8 * GIB, GIB).value
    assert memory_finding(16 * GIB, 8 * GIB, GIB).status == "warn"


# --- software and workspace ----------------------------------------------------------------------------------------


def test_an_old_python_cannot_be_used() -> None:
    assert [python_finding(v).status for v in ((3, 10, 9), (3, 11, 0), (3, 14, 1))] == ["fail", "ok", "ok"]


def test_a_missing_extra_is_optional_and_says_how_to_install_it() -> None:
    there, missing = extra_findings(("torch", "transformers"), {"torch": "2.9"}.get)

    assert (there.status, there.value) == ("ok", "2.9")
    assert missing.status == "warn"
    assert 'pip install "int8-workbench[export]"' in missing.remedy


def test_only_targets_that_exist_are_asked() -> None:
    with pytest.raises(ConfigError, match="not a target"):
        target_findings(["onnxruntme"])


def test_a_workspace_that_is_no_folder_fails(tmp_path: Path) -> None:
    (finding,) = workspace_findings(tmp_path / "nowhere")

    assert exit_code([finding]) == 1
    assert "mkdir -p" in finding.remedy


def test_a_file_in_the_place_of_a_folder_fails(tmp_path: Path) -> None:
    (tmp_path / "mlruns").write_text("not a folder")
    (tmp_path / ".workbench").mkdir()

    findings = named(workspace_findings(tmp_path))

    assert (findings[".workbench"].status, findings[".workbench"].value) == ("ok", "writable")
    assert findings["mlruns"].status == "fail"
    assert (tmp_path / "mlruns").read_text() == "not a folder"


def test_disk_space_is_judged() -> None:
    assert [disk_finding(size).status for size in (GIB // 4, GIB, 50 * GIB)] == ["fail", "warn", "ok"]


# --- Ascend --------------------------------------------------------------------------------------------------------


def cann(root: Path, version: str) -> Path:
    file = root / "share" / "info" / "ge-compiler" / "version.info"
    file.parent.mkdir(parents=True)
    file.write_text(f"package_name=ge\nVersion={version}\n")
    return root


def ascend(home: str = "", driver: Path = Path("/nonexistent"), found: bool = False) -> Mapping[str, Finding]:
    return named(
        ascend_findings(
            {"ASCEND_HOME_PATH": home} if home else {},
            which=lambda program: f"/usr/bin/{program}" if found else None,
            has_module=lambda module: found,
            driver_file=driver,
            targets=("onnxruntime",),
        )
    )


def test_each_missing_part_of_ascend_is_one_warning_with_its_remedy() -> None:
    findings = ascend()

    assert list(findings) == [
        "target ascend910b3", "ASCEND_HOME_PATH", "CANN", "atc", "acl", "npu-smi", "NPU driver",
    ]  # fmt: skip
    assert {finding.status for finding in findings.values()} == {"warn"}
    assert all(finding.remedy for finding in findings.values())
    assert exit_code(findings.values()) == 0
    assert "8.5.0" in findings["CANN"].remedy
    assert "25.2.0 or newer" in findings["NPU driver"].remedy


def test_a_workbench_without_an_ascend_target_says_so_even_on_a_ready_machine(tmp_path: Path) -> None:
    driver = tmp_path / "version.info"
    driver.write_text("Version=25.3.rc1\n")

    findings = ascend(str(cann(tmp_path / "cann", "8.5.0")), driver, found=True)

    assert [f.name for f in findings.values() if f.status != "ok"] == ["target ascend910b3"]
    assert "no Ascend target" in findings["target ascend910b3"].value
    assert findings["NPU driver"].value == "25.3.rc1"


@pytest.mark.parametrize(
    ("version", "status"), [("25.2.0", "ok"), ("25.2", "ok"), ("25.10.0", "ok"), ("24.1.rc3", "warn"), ("?", "warn")]
)
def test_driver_versions_are_ordered_by_their_numbers(tmp_path: Path, version: str, status: str) -> None:
    (tmp_path / "version.info").write_text(f"Version={version}\n")

    assert ascend(driver=tmp_path / "version.info")["NPU driver"].status == status


def test_another_cann_is_warned_about_with_both_versions(tmp_path: Path) -> None:
    assert ascend(str(cann(tmp_path, "8.2.RC1")))["CANN"].value == "8.2.RC1, wanted 8.5.0"


def test_a_version_file_without_a_version_or_with_any_bytes_gives_none(tmp_path: Path) -> None:
    (tmp_path / "version.info").write_bytes(b"\xff\xfe\x00Ver")

    assert version_in(tmp_path / "version.info") == ""
    assert version_in(tmp_path / "absent") == ""


# --- shown ---------------------------------------------------------------------------------------------------------

SHOWN = (
    Finding(name="a", status="ok", value="[bold]1[/bold]"),
    Finding(name="b", status="fail", value="2", remedy="pip install x[y]"),
)


def test_the_table_shows_values_as_they_are() -> None:
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(findings_table(SHOWN))
    text = console.export_text()

    assert "[bold]1[/bold]" in text
    assert "pip install x[y]" in text


def test_the_json_says_whether_the_machine_is_usable() -> None:
    assert json.loads(json.dumps(findings_json(SHOWN))) == {
        "version": 1,
        "usable": False,
        "findings": [
            {"name": "a", "status": "ok", "value": "[bold]1[/bold]", "remedy": ""},
            {"name": "b", "status": "fail", "value": "2", "remedy": "pip install x[y]"},
        ],
    }
    assert findings_json(SHOWN[:1])["usable"] is True
