"""The emulated device in the target's hands: micro-benchmarks, costs, msprof, overflow check, npu-smi."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulated_cann import emulated_environment, switched_on
from workbench.evaluation.modelled_latency import modelled_call
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.microbenchmarks import MEASUREMENTS, main
from workbench.targets.ascend.npu_smi import overview, watched
from workbench.targets.ascend.overflow import read_overflows, write_overflow_config
from workbench.targets.ascend.profiling import profile
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


# As a user writes it: arguments are the OM, the value to feed, and the acl.json; it ends when its input does
CLIENT = """\
import acl, numpy, sys
assert acl.init(*sys.argv[3:]) == 0
assert acl.rt.set_device(0) == 0
model, ret = acl.mdl.load_from_file(sys.argv[1])
assert ret == 0, ret
description = acl.mdl.create_desc()
acl.mdl.get_desc(description, model)
sizes = acl.mdl.get_input_size_by_index(description, 0), acl.mdl.get_output_size_by_index(description, 0)
places = [acl.rt.malloc(size, 0)[0] for size in sizes]
fed = numpy.full((16, 64), float(sys.argv[2]), numpy.float32).tobytes()
assert acl.rt.memcpy(places[0], sizes[0], acl.util.bytes_to_ptr(fed), len(fed), 1) == 0
buffers = [acl.create_data_buffer(place, size) for place, size in zip(places, sizes)]
sets = [acl.mdl.create_dataset() for _ in buffers]
for dataset, buffer in zip(sets, buffers):
    acl.mdl.add_dataset_buffer(dataset, buffer)
for _ in range(5):
    assert acl.mdl.execute(model, *sets) == 0
print("ran", flush=True)
sys.stdin.read()
for dataset, buffer, place in zip(sets, buffers, places):
    acl.mdl.destroy_dataset(dataset), acl.destroy_data_buffer(buffer), acl.rt.free(place)
acl.mdl.unload(model), acl.mdl.destroy_desc(description), acl.rt.reset_device(0)
assert acl.finalize() == 0
"""


class Device:
    def __init__(self, folder: Path) -> None:
        self.environment = emulated_environment(folder)
        self.home = Path(self.environment["ASCEND_HOME_PATH"])
        self.om, self.client = folder / "net.om", folder / "client.py"
        self.client.write_text(CLIENT)
        weight = numpy_helper.from_array(np.eye(64, dtype=np.float32) * 2, "weight")
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "weight"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [16, 64])],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, [16, 64])],
            [weight],
        )
        onnx.save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "net.onnx"
        )
        command = ["atc", "--model=net.onnx", "--framework=5", "--output=net", "--soc_version=Ascend910B3"]
        done = subprocess.run(
            command, env=self.environment, cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout

    def command(self, value: float, *more: str) -> list[str]:
        return [sys.executable, str(self.client), str(self.om), str(value), *more]

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        """A process that holds the device until the block ends."""
        with subprocess.Popen(
            self.command(1), env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ran\n"
                yield process
            finally:
                process.communicate(timeout=300)
        assert process.returncode == 0


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("device"))


def test_msprof_tells_where_the_time_of_a_program_goes(card: Device, tmp_path: Path) -> None:
    found = profile(card.command(1), tmp_path, environment=card.environment)

    products = [o for o in found.operators if "MatMul" in o.op_type]
    assert [operator.calls for operator in products] == [5]
    assert found.operators_us > 0
    assert sum(operator.share for operator in found.operators) == pytest.approx(1)
    assert found.int8_share == 0
    assert found.modelled


@pytest.mark.parametrize(("value", "overflowed"), [(1.0, False), (40000.0, True)])
def test_the_overflow_check_finds_what_float16_cannot_hold(
    card: Device, tmp_path: Path, value: float, overflowed: bool
) -> None:
    """40000 is a float16; twice that is none."""
    config = write_overflow_config(tmp_path)
    subprocess.run(
        card.command(value, str(config)),
        env=card.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=True,
    )

    found = read_overflows(tmp_path / "overflow", card.home, tmp_path / "decoded")

    assert bool(found) is overflowed
    assert all(overflow.unit == "AI Core" and overflow.suspect for overflow in found)
    operators = [overflow.operator for overflow in found]
    assert all(one is not None and one.tensors and not one.beyond_already for one in operators)


def test_npu_smi_shows_the_process_and_its_memory_and_forgets_them(card: Device) -> None:
    before = overview(card.environment)
    with card.running() as process, watched(0, interval_s=0.05, environment=card.environment) as watch:
        during = overview(card.environment)
        while not any(reading.memory_bytes for reading in watch.readings):
            assert process.poll() is None
    after = overview(card.environment)

    assert [p.pid for p in during.processes] == [process.pid]
    assert during.cards[0].hbm_used_mb is not None
    assert before.cards[0].hbm_used_mb is not None
    assert during.cards[0].hbm_used_mb >= before.cards[0].hbm_used_mb
    assert before.processes == after.processes == ()
    assert after.cards[0].hbm_used_mb == before.cards[0].hbm_used_mb
