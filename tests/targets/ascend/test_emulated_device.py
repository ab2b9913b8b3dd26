"""msprof, the overflow check and npu-smi on a model that runs on the emulated device, as they would on a real one."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.emulated_cann import emulated_environment
from workbench.targets.ascend.npu_smi import overview, watched
from workbench.targets.ascend.overflow import read_overflows, write_overflow_config
from workbench.targets.ascend.profiling import profile

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
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("device"))


def test_msprof_tells_where_the_time_of_a_program_goes(device: Device, tmp_path: Path) -> None:
    found = profile(device.command(1), tmp_path, environment=device.environment)

    products = [o for o in found.operators if "MatMul" in o.op_type]
    assert [operator.calls for operator in products] == [5]
    assert found.operators_us > 0
    assert sum(operator.share for operator in found.operators) == pytest.approx(1)
    assert found.int8_share == 0
    assert found.modelled


@pytest.mark.parametrize(("value", "overflowed"), [(1.0, False), (40000.0, True)])
def test_the_overflow_check_finds_what_float16_cannot_hold(
    device: Device, tmp_path: Path, value: float, overflowed: bool
) -> None:
    """40000 is a float16; twice that is none."""
    config = write_overflow_config(tmp_path)
    subprocess.run(
        device.command(value, str(config)),
        env=device.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=True,
    )

    found = read_overflows(tmp_path / "overflow", device.home, tmp_path / "decoded")

    assert bool(found) is overflowed
    assert all(overflow.unit == "AI Core" and overflow.suspect for overflow in found)
    operators = [overflow.operator for overflow in found]
    assert all(one is not None and one.tensors and not one.beyond_already for one in operators)


def test_npu_smi_shows_the_process_and_its_memory_and_forgets_them(device: Device) -> None:
    before = overview(device.environment)
    with device.running() as process, watched(0, interval_s=0.05, environment=device.environment) as watch:
        during = overview(device.environment)
        while not any(reading.memory_bytes for reading in watch.readings):
            assert process.poll() is None
    after = overview(device.environment)

    assert [p.pid for p in during.processes] == [process.pid]
    assert during.cards[0].hbm_used_mb is not None
    assert before.cards[0].hbm_used_mb is not None
    assert during.cards[0].hbm_used_mb >= before.cards[0].hbm_used_mb
    assert before.processes == after.processes == ()
    assert after.cards[0].hbm_used_mb == before.cards[0].hbm_used_mb
