"""Every number of the time model has an origin; a fitted file goes over the shipped one."""

from pathlib import Path

import pytest

from workbench.values.errors import ConfigError
from workbench.values.modelled_times.device_data import OVERRIDE_VARIABLE, PARAMETERS, load_device_data

OVERRIDE = """\
version: 1
soc_version: Ascend910B3
parameters:
  kernel_launch_us: {value: 3.25, kind: measured, origin: "a test"}
"""


def test_every_parameter_says_where_it_comes_from() -> None:
    data = load_device_data("Ascend910B3")

    assert {*PARAMETERS, "power.idle_w"} <= set(data.origins)
    assert all(kind.fitted_on for kind in data.kinds.values())
    assert {kind.error_class for kind in data.kinds.values()} <= {m for e in data.errors.values() for m in e.moves}
    for name, origin in data.origins.items():
        kind, _, words = origin.partition(": ")
        assert kind in ("source", "fitted", "measured", "inferred"), name
        assert len(words) > 5, name


def test_platform_figures_are_those_of_the_platform_file() -> None:
    """atc.md §7.2: 295 TFLOPS in float16 and 590 TOPS in INT8 for 910B3, at 20 cores and 1800 MHz."""
    data = load_device_data("Ascend910B3")
    peak = 2 * data.cube_cores * data.clock_mhz * 1e6

    assert (data.cube_cores, data.vector_cores, data.clock_mhz, data.hbm_gib, data.l2_mib) == (20, 40, 1800, 64, 192)
    assert round(peak * data.cube_macs_float16 / 1e12) == 295
    assert round(peak * data.cube_macs_int8 / 1e12) == 590


def test_an_override_replaces_what_it_names_for_its_own_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fitted.yaml"
    file.write_text(OVERRIDE)
    monkeypatch.setenv(OVERRIDE_VARIABLE, str(file))

    changed, other = load_device_data("Ascend910B3"), load_device_data("Ascend910B1")

    assert changed.kernel_launch_us == 3.25
    assert changed.origins["kernel_launch_us"] == "measured: a test"
    assert other.kernel_launch_us != 3.25
    assert changed.vector_efficiency == other.vector_efficiency


def test_an_override_that_is_wrong_is_refused_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line, message in (
        ('  warp_factor: {value: 1, kind: measured, origin: "x"}', "warp_factor.*no parameter of the time model"),
        ('  vector_efficiency: {value: 0, kind: measured, origin: "x"}', "must be positive"),
        ("  vector_efficiency: {value: 0.5}", "kind: missing"),
        ('  vector_efficiency: {value: 0.5, kind: guessed, origin: "x"}', "'guessed' is not allowed"),
    ):
        file = tmp_path / "fitted.yaml"
        file.write_text(OVERRIDE + line + "\n")
        monkeypatch.setenv(OVERRIDE_VARIABLE, str(file))
        with pytest.raises(ConfigError, match=message):
            load_device_data("Ascend910B3")
