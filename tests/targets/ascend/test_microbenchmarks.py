"""Micro-benchmarks on the emulated device: they find what its clock has, and nothing else that is in the times."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment, switched_on
from workbench.cann_emulator.cost_statement import clock_statement
from workbench.cann_emulator.device_data import load_device_data
from workbench.targets.ascend.microbenchmarks import MEASUREMENTS, main
from workbench.values.errors import ConfigError
from workbench.values.modelled_times.measured import read_measured

OTHER = """\
version: 1
soc_version: Ascend910B3
parameters:
  gear_us: {value: 25, kind: inferred, origin: "a test"}
  host_to_device_gb_per_s: {value: 13, kind: inferred, origin: "a test"}
"""
QUICK = ["--calls", "1", "--rows", "320", "--elements", "262144"]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A device that differs from the shipped one; the folder for its files."""
    folder = tmp_path_factory.mktemp("device")
    (folder / "other.yaml").write_text(OTHER)
    environment = emulated_environment(folder, CANN_EMULATOR_DEVICE_DATA=str(folder / "other.yaml"))
    with pytest.MonkeyPatch.context() as patch:
        # the library reads its device data once a process, and another test may have had it before
        from workbench.cann_emulator.acl import clock, emulated

        for cached in (clock._timing, clock.copy_ns, emulated.clock):
            cached.cache_clear()
        with switched_on(environment):
            patch.chdir(folder)
            yield folder
    for cached in (clock._timing, clock.copy_ns, emulated.clock):
        cached.cache_clear()


@pytest.mark.parametrize(("name", "value"), [("gear", 25.0), ("copy_bandwidth", 13.0)])
def test_a_micro_benchmark_finds_what_the_device_has(device: Path, name: str, value: float) -> None:
    file = device / f"{name}.json"

    assert main([name, "--to", str(file), *QUICK]) == 0

    found = json.loads(file.read_text())
    assert found["measured"][name]["value"] == pytest.approx(value, rel=0.01)
    assert found["emulated"] is True
    with pytest.raises(ConfigError, match="measured on an emulated device"):
        read_measured(file)


def test_values_of_another_device_are_not_mixed_in(device: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = device / "real.json"
    file.write_text(json.dumps({"version": 1, "device": "Ascend910B3", "emulated": False, "measured": {}}))

    assert main(["gear", "--to", str(file), *QUICK]) == 1
    assert "another device" in capsys.readouterr().err


def test_every_micro_benchmark_settles_an_error_in_its_unit() -> None:
    clock = clock_statement(load_device_data("Ascend910B3"), "a test")

    units = {unknown.name: unknown.unit for unknown in clock.unknowns}
    assert units.items() >= {name: unit for name, (_, unit) in MEASUREMENTS.items()}.items()
