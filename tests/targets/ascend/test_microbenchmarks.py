"""The emulated device in the target's hands: micro-benchmarks, and what calls cost."""

import json
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest

from tests.emulated_cann import emulated_environment, switched_on
from workbench.evaluation.modelled_latency import modelled_call
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.microbenchmarks import MEASUREMENTS, main
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.targets.base import DeviceSession, StatesCosts, times_of
from workbench.testing.encoder import ids, save, tiny_encoder
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.errors import ConfigError, MeasureError
from workbench.values.modelled_times.costs import at_errors
from workbench.values.modelled_times.device_data import load_device_data
from workbench.values.modelled_times.device_model import timing_model
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
    clock = timing_model(load_device_data("Ascend910B3"), "a test")

    units = {unknown.name: unknown.unit for unknown in clock.unknowns}
    assert units.items() >= {name: unit for name, (_, unit) in MEASUREMENTS.items()}.items()


@pytest.fixture(scope="module", params=["static", "gears"])
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceSession]:
    folder, shapes = tmp_path_factory.mktemp("costs"), request.param
    onnx.save(atc_form(load_graph(read_model(save(tiny_encoder(), folder / "model.onnx")))), folder / "lowered.onnx")
    candidate = Candidate(
        target="ascend910b3",
        precision=Precision(mode="force_fp16"),
        quantization=Quantization(),
        compile=AscendCompile(batches=(1, 4), sequence_bins=(8, 16), shapes=shapes),
        serving=Serving(batch=1),
    )
    (folder / "set").mkdir()
    with switched_on(emulated_environment(folder)):
        artifact = AscendTarget().compile(folder / "lowered.onnx", candidate, folder / "set")
        opened = AscendTarget().open(artifact, folder / "set", candidate)
        assert isinstance(opened, DeviceSession)
        yield opened
        opened.close()


def test_before_a_call_there_are_no_costs(session: DeviceSession) -> None:
    assert isinstance(session, StatesCosts)

    with pytest.raises(MeasureError, match="there are no costs"):
        session.costs()


@pytest.mark.parametrize(("batch", "length"), [(1, 7), (4, 16), (9, 16)], ids=["padded", "whole", "three turns"])
def test_stated_costs_come_to_the_time_of_the_call(session: DeviceSession, batch: int, length: int) -> None:
    found = modelled_call(session, dict(ids(batch, length)))
    parts = times_of(session)

    assert found.model.name.startswith("Ascend910B3, int8-workbench")
    assert at_errors(found.model).call_ms([found.costs])[0, 0] == found.ms
    assert parts.host_to_device_ms + parts.execute_ms + parts.device_to_host_ms == pytest.approx(found.ms)
    assert min(parts.host_to_device_ms, parts.execute_ms, parts.device_to_host_ms) > 0


def test_a_library_of_the_vendor_states_nothing(session: DeviceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.cann_emulator import acl

    assert isinstance(session, StatesCosts)
    session.run(dict(ids(1, 8)))
    monkeypatch.delattr(acl, "emulated")  # the one thing in which it differs from a real library here

    assert session.costs() is None
