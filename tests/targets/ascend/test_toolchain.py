import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.emulated_cann import emulated_environment
from tests.targets.ascend.conftest import CAPTURES, Host
from workbench.cann_emulator.tree import write_tree
from workbench.targets.ascend.installation import cann_problem, driver_problem
from workbench.targets.ascend.toolchain import ascend_toolchain, choose_chip, device_ids, forget_toolchain
from workbench.values.errors import ConfigError, ToolchainError


@pytest.fixture
def vendor(host: Host, monkeypatch: pytest.MonkeyPatch) -> Host:
    """CANN and an npu-smi, without the module acl."""
    host.cann("8.5.0.2.220", "share/info/ge-compiler")
    host.npu_smi()
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(sys.modules, "acl", None)  # type: ignore[arg-type]  # how Python marks one that must not load
    forget_toolchain()
    return host


def test_it_holds_and_follows_what_can_change_a_result(vendor: Host, caplog: pytest.LogCaptureFixture) -> None:
    found = ascend_toolchain()
    assert (found.target, found.device, found.emulated) == ("ascend910b3", "Ascend910B3", False)
    known = {"cann": "8.5.0", "cann build": "8.5.0.2.220", "driver": "25.5.1", "firmware": "7.8.0.6.201"}
    assert known.items() <= found.components.items()
    assert "emulator" not in found.components
    clocks = ("1800 MHz AI core clock", "20 AI cores", "65536 MB HBM")
    assert found.features == (*clocks, "kernels ascend910b")

    prints = [found.fingerprint]
    forget_toolchain()
    prints.append(ascend_toolchain().fingerprint)
    assert caplog.messages == []
    vendor.npu_smi("info_23_0_6")
    forget_toolchain()
    prints.append(ascend_toolchain().fingerprint)
    vendor.cann("7.0.0", "share/info/ge-compiler")
    forget_toolchain()
    prints += [ascend_toolchain().fingerprint for _ in range(2)]

    assert prints[0] == prints[1]
    assert prints[3] == prints[4]
    assert len(set(prints)) == 3
    assert [message.partition(":")[0] for message in caplog.messages] == [
        "driver 23.0.6, wanted 25.2.0 or newer",
        "CANN 7.0.0, wanted 8.5.0",
        "driver 23.0.6, wanted 25.2.0 or newer",
    ], "versions that it is not written for are told once"


def test_an_emulated_compiler_makes_all_emulated(vendor: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = write_tree(tmp_path / "other")
    monkeypatch.setenv("PATH", f"{vendor.bin}:{other}/bin:/usr/bin:/bin")
    for linked in (False, True):
        if linked:
            (vendor.bin / "atc").symlink_to(other / "bin/atc")
        forget_toolchain()
        found = ascend_toolchain()
        assert (found.components["atc"], found.emulated) == ("of another CANN, 8.5.0", True)


def test_no_chip_says_what_acl_and_npu_smi_said(vendor: Host) -> None:
    vendor.tool(vendor.bin / "npu-smi", "echo 'dcmi module initialize failed. ret is -8005'; exit 1")

    words = r"no NPU is seen: the module acl cannot be imported.*ret is -8005.*workbench doctor"
    with pytest.raises(ToolchainError, match=words):
        ascend_toolchain()


def test_the_emulators_revision_is_part_of_it_and_a_refitted_time_model_is_another(tmp_path: Path) -> None:
    """Else latencies of the former model would be taken from the cache."""
    code = (
        "from workbench.targets.ascend.toolchain import ascend_toolchain as t\n"
        "print(t().emulated, t().device, t().components['driver'], t().components['emulator'], sep='|')"
    )
    fitted, said = tmp_path / "fitted.yaml", []
    for content in ("", "a: 1", "a: 2"):
        fitted.write_text(content)
        variables = {"CANN_EMULATOR_DEVICE_DATA": str(fitted)} if content else {}
        environment = emulated_environment(tmp_path, CANN_EMULATOR_DRIVER="25.2.0", **variables)
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=True
        )
        said.append(done.stdout.strip().split("|"))

    assert said[0][:3] == ["True", "Ascend910B3", "25.2.0"]
    assert (tmp_path / "cann/opp/version.info").read_text().partition("Emulator=")[2].strip() in said[0][3]
    assert len({each[3] for each in said}) == 3
    assert all(" fit " in each[3] for each in said[1:])


def test_a_chosen_chip_is_emulated_until_an_experiment_without_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two experiments of one process: what the first chose is not the second's."""
    monkeypatch.delenv("WORKBENCH_EMULATED_SOC", raising=False)
    monkeypatch.setenv("CANN_EMULATOR_SOC", "Ascend910B1")
    monkeypatch.setitem(sys.modules, "acl", ModuleType("acl"))  # none that knows its chip

    monkeypatch.delenv("CANN_EMULATOR_VERSION", raising=False)
    choose_chip("Ascend910B4")
    assert os.environ["CANN_EMULATOR_SOC"] == "Ascend910B1", "a device is what it is"

    monkeypatch.setenv("CANN_EMULATOR_VERSION", "8.5.0")
    seen = []
    for asked in ("Ascend910B4", "Ascend910B2", ""):
        choose_chip(asked)
        seen.append(os.environ["CANN_EMULATOR_SOC"])
    assert seen == ["Ascend910B4", "Ascend910B2", "Ascend910B1"]
    with pytest.raises(ConfigError, match=r"'Ascend910B7' is no chip of the 910B family\. Did you mean"):
        choose_chip("Ascend910B7")

    sys.modules["acl"].get_soc_name = lambda: "Ascend910B1"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"emulates Ascend910B1 already, and Ascend910B4 .* process of its own"):
        choose_chip("Ascend910B4")


def test_devices_are_those_of_npu_smi_or_those_that_the_variable_leaves_and_an_unknown_machine_has_one(
    vendor: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES", raising=False)
    rows = (CAPTURES / "info_25_5_1.txt").read_text().splitlines()
    assert len(device_ids()) == sum("910B3" in line for line in rows)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "2,5,6")
    assert device_ids() == (2, 5, 6)
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0")
    with pytest.raises(ToolchainError, match=r"0 does not ascend after 1.*Name devices that are there"):
        device_ids()
    monkeypatch.delenv("ASCEND_RT_VISIBLE_DEVICES")
    (vendor.bin / "npu-smi").unlink()
    assert device_ids() == (0,)
    assert "device 0 alone is used" in caplog.text


def test_versions_are_held_against_the_wanted_ones_by_release() -> None:
    for version in ("8.5.1", "8.1.RC1", "9.0.0", "8.5.0.alpha002", "8.5.T8.0.B060", "7.6.0.1.220"):
        assert cann_problem(version) == f"CANN {version}, wanted 8.5.0"
    assert [cann_problem(build) for build in ("8.5.0", "8.5.0.2.220", "8.5")] == ["", "", ""]
    assert "unknown version" in cann_problem("")
    assert [driver_problem(version) for version in ("25.2.0", "25.2", "25.10.0", "25.3.rc1")] == [""] * 4
    assert all(driver_problem(version) for version in ("25.2.rc1", "24.1.rc3"))
    assert "unknown version (?)" in driver_problem("?")
