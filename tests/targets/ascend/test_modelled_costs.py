"""What a session states of an emulated device, by which its calls are timed."""

from collections.abc import Iterator

import onnx
import pytest

from tests.emulated_cann import emulated_environment, switched_on
from tests.targets.encoder import ids, save, tiny_encoder
from workbench.evaluation.modelled_clock import modelled_call
from workbench.graph.read import load_graph, read_model
from workbench.targets.ascend.lowering import atc_form
from workbench.targets.ascend.settings import AscendCompile
from workbench.targets.ascend.target import AscendTarget
from workbench.targets.base import DeviceSession, StatesCosts, times_of
from workbench.values.candidate import Candidate, Precision, Quantization, Serving
from workbench.values.errors import MeasureError
from workbench.values.modelled_times.costs import at_errors


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

    assert found.clock.name.startswith("Ascend910B3, int8-workbench")
    assert at_errors(found.clock).call_ms([found.costs])[0, 0] == found.ms
    assert parts.host_to_device_ms + parts.execute_ms + parts.device_to_host_ms == pytest.approx(found.ms)
    assert min(parts.host_to_device_ms, parts.execute_ms, parts.device_to_host_ms) > 0


def test_a_library_of_the_vendor_states_nothing(session: DeviceSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.cann_emulator import acl

    assert isinstance(session, StatesCosts)
    session.run(dict(ids(1, 8)))
    monkeypatch.delattr(acl, "emulated")  # the one thing in which it differs from a real library here

    assert session.costs() is None
