import sys
from pathlib import Path

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.conftest import CAPTURES, KERNELS, Host, write
from workbench.commands.doctor import exit_code
from workbench.targets.ascend import installation
from workbench.targets.ascend.findings import ascend_findings


def test_each_missing_part_is_one_warning_with_where_to_get_it(host: Host) -> None:
    findings = host.findings()

    assert list(findings) == ["toolkit", "compiler", "runtime", "AMCT", "driver", "device"]
    assert {finding.status for finding in findings.values()} == {"warn"}
    assert all(finding.remedy for finding in findings.values())
    assert exit_code(findings.values()) == 0
    assert findings["toolkit"].value == "ASCEND_HOME_PATH is not set"
    assert "CANN 8.5.0" in findings["toolkit"].remedy
    assert "set_env.sh" in findings["toolkit"].remedy
    assert "25.2.0 or newer" in findings["driver"].remedy


def test_a_ready_machine_is_all_well(host: Host) -> None:
    host.ready()
    host.amct()

    found = host.findings()
    assert {finding.status for finding in found.values()} == {"ok"}
    for name, value in {
        "toolkit": f"CANN 8.5.0 at {host.home}",
        "operators": "kernels of ascend910b",
        "compiler": str(host.home / "bin/atc"),
        "runtime": f"acl at {host.home}/python/acl.py, chip Ascend910B3",
        "AMCT": "amct_onnx 8.5.0 with onnx 1.",
        "driver": "25.5.1",
        "firmware": "7.8.0.6.201",
        "device": "1 × 910B3",
        "card 0": "OK, 94.3 W, 53 °C, 0 % AI core, HBM 4487 of 65536 MB used",
        "device files": "davinci0, davinci_manager, devmm_svm, hisi_hdc",
    }.items():
        assert found[name].value.startswith(value)
    assert found["AMCT"].value.endswith(sys.executable)


def test_half_an_installation_is_told_part_by_part(host: Host) -> None:
    (host.home / KERNELS / "ascend910b/ops_oam").mkdir(parents=True)
    host.environment["ASCEND_HOME_PATH"] = str(host.home)

    troubles = host.findings()

    for name, words in {
        "toolkit": "unknown version",
        "packages": "half an installation: no version.info",
        "operators": "kernels of ascend910b are missing (none)",
        "environment": "ASCEND_OPP_PATH is not set: half of set_env.sh",
        "compiler": "no atc",
    }.items():
        assert words in troubles[name].value


def container(host: Host) -> None:
    write(host.root / ".dockerenv")
    (host.root / "dev/devmm_svm").unlink()


def dormant(host: Host) -> None:
    del host.environment["ASCEND_HOME_PATH"]
    write(installation.DRIVER_ROOT / "cann/set_env.sh")


def test_one_thing_wrong_with_a_ready_machine_is_told(host: Host, tmp_path: Path) -> None:
    held, head = "echo 'ret is -8020'; exit 1", f"head -6 {CAPTURES}/info_25_5_1.txt"
    for number, (change, name, value, remedy) in enumerate(
        (
            (lambda h: h.environment.update(ASCEND_HOME_PATH="/gone"), "toolkit", "/gone, which is no folder", "8.5.0"),
            (lambda h: h.acl("raise ImportError('libascend_hal.so: no')"), "runtime", "_hal.so", "LD_LIBRARY_PATH"),
            (lambda h: h.acl("import os; os._exit(9)"), "runtime", "exit code 9", sys.executable),
            (lambda h: h.tool(h.bin / "atc", ""), "compiler", "bin/atc is not of the CANN at ", "set_env.sh"),
            (lambda h: h.driver("25.5.2"), "driver", "25.5.1 is loaded, 25.5.2 is installed", "Reboot"),
            (lambda h: h.npu_smi("info_25_3_rc1_ddr_only"), "device", "1 × 310P3, and not 910B3", "limits"),
            (lambda h: (h.root / "dev/hisi_hdc").unlink(), "device files", "/dev/hisi_hdc", "lsmod"),
            (lambda h: h.npu_smi("info_23_0_6"), "card 2", "; in use by process (907864), python (48988)", "idle"),
            (lambda h: h.npu_smi("info_23_0_6"), "card 5", "Warning", "npu-smi info -t health -i 5 -c 0"),
            (lambda h: h.npu_smi("info_23_0_6"), "driver", "driver 23.0.6, wanted 25.2.0 or newer", "25.2.0"),
            (lambda h: h.tool(h.bin / "npu-smi", held), "device", "failed with exit code 1", ""),
            (lambda h: h.tool(h.bin / "npu-smi", "echo hello"), "device", "a text that cannot be read", ""),
            (lambda h: h.tool(h.bin / "npu-smi", head), "device", "npu-smi lists no card", ""),
            (container, "container", "not mounted", "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver"),
            (container, "device files", "missing: ", "--device="),
            (dormant, "toolkit", "not set, but CANN is at ", "Run: source "),
        )
    ):
        one = Host(tmp_path / str(number))
        one.ready()
        change(one)
        found = one.findings()[name]
        assert (found.status, value in found.value, remedy in found.remedy) == ("warn", True, True), found


def test_a_driver_that_a_container_has_is_no_trouble_and_visible_devices_are_checked(host: Host) -> None:
    host.ready()
    host.npu_smi("info_23_0_6")
    write(host.root / ".dockerenv")
    host.driver("25.5.1")
    (host.root / "Ascend/driver/lib64").mkdir()
    for value, status, words in (
        ("0", "ok", "device 0 as 0"),
        ("0,7", "warn", "no device 7"),
        ("x", "warn", "no device id"),
        ("", "ok", "is empty"),
    ):
        host.environment["ASCEND_RT_VISIBLE_DEVICES"] = value
        found = host.findings()
        assert (found["visible"].status, words in found["visible"].value) == (status, True)
        assert "container" not in found


def test_the_emulator_is_shown_as_such_and_everything_it_has_is_found(host: Host, tmp_path: Path) -> None:
    environment = emulated_environment(tmp_path / "emulated", CANN_EMULATOR_DEVICES="2")
    found = {f.name: f for f in ascend_findings(environment, root=host.root)}

    assert (found["emulated"].status, "--allow-emulated" in found["emulated"].remedy) == ("warn", True)
    assert found["emulated"].value.startswith("CANN and its devices are emulated here: int8-workbench ")
    assert {found[name].status for name in ("toolkit", "operators", "compiler", "driver", "firmware")} == {"ok"}
    assert found["device"].value == "2 × 910B3"
    assert not {"device files", "rights", "container"} & set(found)
