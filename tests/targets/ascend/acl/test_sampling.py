import os
import time
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment
from workbench.cann_emulator.state import DeviceUse, report_use
from workbench.targets.ascend import npu_smi
from workbench.targets.ascend.acl.sampling import DeviceSamples, Spread, sampled

CAPTURES = Path(__file__).parents[1] / "npu_smi"


def watched(folder: Path, script: str, *, device: int = 0, least: int = 1, **variables: str) -> DeviceSamples:
    """What a watch has seen once this npu-smi was asked for `least` tables."""
    program = folder / "bin/npu-smi"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\n[ "$*" = info ] && echo x >> {folder}/tables\n{script}\n')
    program.chmod(0o755)
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", **variables}
    with sampled(device, interval_s=0.01, environment=environment) as watch:
        _until(lambda: (folder / "tables").exists() and len((folder / "tables").read_text()) > 2 * least)
    return watch.samples()


def _until(condition: object, seconds: float = 120) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def captures(info: str) -> str:
    return (
        f'case "$*" in "info -m") cat {CAPTURES}/mapping.txt;; info) cat {CAPTURES}/{info}.txt;; '
        f"*common*) cat {CAPTURES}/common.txt;; esac"
    )


def test_medians_and_maxima_over_the_block(tmp_path: Path) -> None:
    table = (CAPTURES / "info_23_0_6.txt").read_text()
    for index, watts in enumerate(("100.0", "300.0", "200.0")):
        (tmp_path / f"{index}.txt").write_text(table.replace("101.5", watts))
    script = (
        f'case "$*" in info) n=$(wc -l < {tmp_path}/tables); cat {tmp_path}/$(( (n - 1) % 3 )).txt;; '
        f'"info -m") cat {CAPTURES}/mapping.txt;; *) cat {CAPTURES}/common.txt;; esac'
    )

    found = watched(tmp_path, script, least=6)

    assert found.npu_id == 2
    assert found.power_w is not None
    assert (found.power_w.maximum, found.power_w.minimum) == (300, 100)
    assert found.power_w.median == pytest.approx(200, abs=50)
    assert found.power_w.samples >= 6
    assert found.hbm_used_mb == Spread(median=58626, maximum=58626, minimum=58626, samples=found.power_w.samples)
    assert found.clock_mhz is not None
    assert found.clock_mhz.maximum == 800
    assert found.reasons == {}


def test_a_device_is_found_by_its_logic_id_through_the_visible_ones(tmp_path: Path) -> None:
    found = watched(tmp_path, captures("info_23_0_6"), ASCEND_RT_VISIBLE_DEVICES="1")

    assert found.npu_id == 5
    assert found.power_w is None
    assert found.reasons["power_w"] == "npu-smi does not give it"


def test_what_fails_costs_the_measurement_nothing_and_is_told(tmp_path: Path) -> None:
    found = watched(tmp_path, "echo 'dcmi module initialize failed. ret is -8005'; exit 1")

    assert (found.npu_id, found.power_w, found.clock_mhz) == (None, None, None)
    assert "ret is -8005" in found.reasons["aicore_percent"]


def test_a_device_that_is_not_there_is_told(tmp_path: Path) -> None:
    assert watched(tmp_path, captures("info_23_0_6"), device=7).reasons["power_w"] == (
        "npu-smi lists no card with logic id 7"
    )


def test_without_npu_smi_the_block_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npu_smi, "USUAL_PLACES", ())
    with sampled(environment={"PATH": "/nowhere"}, interval_s=0.01) as watch:
        _until(lambda: "not on PATH" in watch.samples().reasons["power_w"])


def test_an_error_in_the_block_comes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), sampled(environment={"PATH": str(tmp_path)}):
        raise ZeroDivisionError


def test_load_and_memory_of_the_emulated_device_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = emulated_environment(tmp_path)
    monkeypatch.setenv("CANN_EMULATOR_STATE", environment["CANN_EMULATOR_STATE"])
    report_use({0: DeviceUse(hbm_bytes=1 << 30, aicore_percent=50, updated_s=time.time() + 60)})
    try:
        with sampled(environment=environment, interval_s=0.05) as watch:
            _until(lambda: watch.samples().clock_mhz is not None)
    finally:
        report_use({})

    found = watch.samples()
    assert found.aicore_percent is not None
    assert found.aicore_percent.maximum == 50
    assert found.hbm_used_mb is not None
    assert found.hbm_used_mb.median == 3358 + 1024
    assert found.clock_mhz is not None
    assert found.clock_mhz.median == 1800
