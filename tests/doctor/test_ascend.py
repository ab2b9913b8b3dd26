from pathlib import Path

import pytest

from workbench.doctor import Finding, exit_code
from workbench.doctor.ascend import ASCEND, ascend_findings, module_at, version_in

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


def ascend(
    home: Path | None = None,
    *,
    tools: Path = Path("/nowhere"),
    driver: Path = Path("/nowhere/version.info"),
    modules: bool = False,
    targets: tuple[str, ...] = ("onnxruntime",),
) -> dict[str, Finding]:
    environment = {"PATH": f"{tools}:/bin:/usr/bin"} | ({"ASCEND_HOME_PATH": str(home)} if home else {})
    findings = ascend_findings(
        environment,
        driver_file=driver,
        place_of=lambda name: f"/cann/{name}.so" if modules else None,
        targets=targets,
    )
    return {finding.name: finding for finding in findings}


def write_cann(home: Path, version: str, place: str = "share/info/runtime") -> Path:
    (home / place).mkdir(parents=True)
    (home / place / "version.info").write_text(f"package_name=x\nVersion={version}\nversion_dir=8.5.0\n")
    return home


def write_tool(path: Path, output: str, code: int = 0) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)


def test_each_missing_part_is_one_warning_with_where_to_get_it() -> None:
    findings = ascend()

    assert list(findings) == ["workbench", "toolkit", "compiler", "runtime", "AMCT", "driver", "device"]
    assert {finding.status for finding in findings.values()} == {"warn"}
    assert all(finding.remedy for finding in findings.values())
    assert exit_code(findings.values()) == 0
    assert findings["toolkit"].value == "ASCEND_HOME_PATH is not set"
    assert "CANN 8.5.0" in findings["toolkit"].remedy
    assert "set_env.sh" in findings["toolkit"].remedy
    assert "25.2.0 or newer" in findings["driver"].remedy


def test_a_ready_machine_is_all_well_but_for_a_workbench_without_the_target(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin" / "atc", "")
    write_tool(tmp_path / "bin" / "npu-smi", NPU_SMI)
    (tmp_path / "version.info").write_text("Version=25.3.rc1\n")
    home = write_cann(tmp_path / "cann", "8.5.0")

    def ready(*targets: str) -> dict[str, Finding]:
        return ascend(home, tools=tmp_path / "bin", driver=tmp_path / "version.info", modules=True, targets=targets)

    found = ready("onnxruntime")
    assert [f.name for f in found.values() if f.status != "ok"] == ["workbench"]
    assert "no Ascend target" in found["workbench"].value
    assert found["toolkit"].value == f"CANN 8.5.0 at {home}"
    assert found["compiler"].value == str(tmp_path / "bin" / "atc")
    assert found["runtime"].value == "/cann/acl.so"
    assert found["driver"].value == "25.3.rc1"
    assert found["device"].value == "2 × 910B3"
    assert {f.status for f in ready("onnxruntime", ASCEND).values()} == {"ok"}


@pytest.mark.parametrize("version", ["8.2.RC1", "8.5.1", "9.0.0"])
def test_another_cann_is_warned_about_with_both_versions(tmp_path: Path, version: str) -> None:
    toolkit = ascend(write_cann(tmp_path, version))["toolkit"]

    assert (toolkit.status, toolkit.value) == ("warn", f"CANN {version} at {tmp_path}, wanted 8.5.0")


def test_the_version_is_taken_from_where_atc_is_found_first(tmp_path: Path) -> None:
    write_cann(tmp_path, "8.2.RC1", "opp")
    write_cann(tmp_path, "8.5.0", "share/info/ge-compiler")

    assert ascend(tmp_path)["toolkit"].status == "ok"


def test_a_toolkit_of_unknown_version_or_place_is_warned_about(tmp_path: Path) -> None:
    assert "of unknown version" in ascend(tmp_path)["toolkit"].value
    assert "is no folder" in ascend(tmp_path / "gone")["toolkit"].value


@pytest.mark.parametrize(
    ("version", "status"), [("25.2.0", "ok"), ("25.2", "ok"), ("25.10.0", "ok"), ("24.1.rc3", "warn"), ("?", "warn")]
)
def test_driver_versions_are_ordered_by_their_numbers(tmp_path: Path, version: str, status: str) -> None:
    (tmp_path / "version.info").write_text(f"Version={version}\n")

    assert ascend(driver=tmp_path / "version.info")["driver"].status == status


def test_a_version_file_without_a_version_or_with_any_bytes_gives_none(tmp_path: Path) -> None:
    (tmp_path / "version.info").write_bytes(b"\xff\xfe\x00Ver")

    assert version_in(tmp_path / "version.info") == ""
    assert version_in(tmp_path / "absent") == ""


def test_an_npu_smi_that_lists_nothing_is_no_device(tmp_path: Path) -> None:
    write_tool(tmp_path / "bin" / "npu-smi", "dcmi module initialize failed", code=1)

    device = ascend(tools=tmp_path / "bin")["device"]

    assert (device.status, device.value) == ("warn", "npu-smi lists no device (exit code 1)")


def test_an_npu_smi_that_cannot_be_started_is_no_device(tmp_path: Path) -> None:
    (tmp_path / "npu-smi").write_bytes(b"\x7fELF of another machine")
    (tmp_path / "npu-smi").chmod(0o755)

    assert ascend(tools=tmp_path)["device"].value.startswith("npu-smi does not answer")


def test_modules_are_found_without_being_imported() -> None:
    assert str(module_at("this")).endswith("this.py")
    assert module_at("a_module_of_tomorrow") is None
