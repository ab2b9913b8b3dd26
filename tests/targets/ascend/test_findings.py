import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.conftest import CAPTURES, KERNELS, Host, write
from workbench.commands.doctor import exit_code
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
    assert found["toolkit"].value == f"CANN 8.5.0 at {host.home}"
    assert found["operators"].value == "kernels of ascend910b"
    assert found["compiler"].value == str(host.home / "bin/atc")
    assert found["runtime"].value == f"acl at {host.home}/python/acl.py, chip Ascend910B3"
    assert found["AMCT"].value.startswith("amct_onnx 8.5.0 with onnx 1.")
    assert found["AMCT"].value.endswith(sys.executable)
    assert found["driver"].value == "25.5.1"
    assert found["firmware"].value == "7.8.0.6.201"
    assert found["device"].value == "1 × 910B3"
    assert found["card 0"].value == "OK, 94.3 W, 53 °C, 0 % AI core, HBM 4487 of 65536 MB used"
    assert found["device files"].value.startswith("davinci0, davinci_manager, devmm_svm, hisi_hdc")


def test_a_root_that_is_no_folder_and_one_that_is_not_switched_on(host: Host, tmp_path: Path) -> None:
    host.environment["ASCEND_HOME_PATH"] = "/gone"
    assert host.findings()["toolkit"].value == "ASCEND_HOME_PATH names /gone, which is no folder"
    del host.environment["ASCEND_HOME_PATH"]
    write(tmp_path / "usual/cann/set_env.sh")
    assert host.findings()["toolkit"].remedy == f"Run: source {tmp_path}/usual/cann/set_env.sh"


def test_half_an_installation_is_told_part_by_part(host: Host) -> None:
    (host.home / KERNELS / "ascend910b/ops_oam").mkdir(parents=True)
    host.environment["ASCEND_HOME_PATH"] = str(host.home)

    troubles = host.troubles()

    assert "unknown version" in troubles["toolkit"]
    assert "half an installation: no version.info" in troubles["packages"]
    assert "kernels of ascend910b are missing (none)" in troubles["operators"]
    assert troubles["environment"] == "ASCEND_OPP_PATH is not set: half of set_env.sh"
    assert troubles["compiler"] == "no atc"


def test_an_acl_that_does_not_load_is_told_and_ends_nothing(host: Host) -> None:
    host.ready()
    for code, value, remedy in (
        ("raise ImportError('libascend_hal.so: cannot open shared')", "libascend_hal.so", "LD_LIBRARY_PATH"),
        ("import os; os._exit(9)", "exit code 9", sys.executable),
    ):
        host.acl(code)
        runtime = host.findings()["runtime"]
        assert (runtime.status, value in runtime.value, remedy in runtime.remedy) == ("warn", True, True)


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        (lambda host: host.tool(host.bin / "atc", ""), "compiler", "{0.bin}/atc is not of the CANN at {0.home}"),
        (lambda host: host.driver("25.5.2"), "driver", "25.5.1 is loaded, 25.5.2 is installed"),
        (lambda host: host.npu_smi("info_25_3_rc1_ddr_only"), "device", "1 × 310P3, and not 910B3"),
        (lambda host: (host.root / "dev/hisi_hdc").unlink(), "device files", "missing: {0.root}/dev/hisi_hdc"),
    ],
    ids=["atc of another CANN", "driver not loaded", "another chip", "device file"],
)
def test_one_thing_wrong_with_a_ready_machine_is_told(
    host: Host, change: Callable[[Host], object], name: str, words: str
) -> None:
    host.ready()
    change(host)

    assert host.troubles()[name] == words.format(host)


def test_a_sick_card_and_a_busy_one_are_told(host: Host) -> None:
    host.ready()
    host.npu_smi("info_23_0_6")

    troubles = host.troubles()

    assert troubles["card 2"].endswith("; in use by process (907864), python (48988)")
    assert troubles["card 5"] == "Warning"
    assert "npu-smi info -t health -i 5 -c 0" in host.findings()["card 5"].remedy
    assert troubles["driver"] == "driver 23.0.6, wanted 25.2.0 or newer"


def test_an_npu_smi_without_cards_is_unknown_or_none(host: Host) -> None:
    for script, value in (
        ("echo 'initialized failed. ret is -8020'; exit 1", "`npu-smi info` failed with exit code 1"),
        ("echo hello", "npu-smi gives a text that cannot be read"),
        (f"head -6 {CAPTURES}/info_25_5_1.txt", "npu-smi lists no card"),
    ):
        host.tool(host.bin / "npu-smi", script)
        assert host.findings()["device"].value.startswith(value)


def test_a_container_without_the_driver_says_how_it_is_started(host: Host) -> None:
    host.ready()
    write(host.root / ".dockerenv")
    (host.root / "dev/devmm_svm").unlink()

    findings = host.findings()

    assert "-v /usr/local/Ascend/driver:/usr/local/Ascend/driver" in findings["container"].remedy
    assert "--device=" in findings["device files"].remedy
    host.driver("25.5.1")
    (host.root / "Ascend/driver/lib64").mkdir()
    assert "container" not in host.findings()


def test_visible_devices_are_checked(host: Host) -> None:
    host.ready()
    host.npu_smi("info_23_0_6")
    for value, status, words in (
        ("0", "ok", "device 0 as 0"),
        ("0,7", "warn", "no device 7"),
        ("x", "warn", "no device id"),
        ("", "ok", "is empty"),
    ):
        host.environment["ASCEND_RT_VISIBLE_DEVICES"] = value
        visible = host.findings()["visible"]
        assert (visible.status, words in visible.value) == (status, True)


def test_the_emulator_is_shown_as_such_and_everything_it_has_is_found(host: Host, tmp_path: Path) -> None:
    host.environment = emulated_environment(tmp_path / "emulated", CANN_EMULATOR_DEVICES="2")
    found = {f.name: f for f in ascend_findings(host.environment, root=host.root)}

    assert (found["emulated"].status, "--allow-emulated" in found["emulated"].remedy) == ("warn", True)
    assert found["emulated"].value.startswith("CANN and its devices are emulated here: int8-workbench ")
    assert {found[name].status for name in ("toolkit", "operators", "compiler", "driver", "firmware")} == {"ok"}
    assert found["device"].value == "2 × 910B3"
    assert not {"device files", "rights", "container"} & set(found)
