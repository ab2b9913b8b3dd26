"""Cards in the service's metrics: the last reading, and nothing where the last look failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.emulated_cann import emulated_environment
from workbench.load.server import read_samples, readings_in
from workbench.serve.cards import DeviceGauges, Place, device_gauges
from workbench.serve.metrics import Metrics
from workbench.values.device_use import DeviceReading
from workbench.values.errors import ToolchainError

READING = DeviceReading(
    memory_bytes=3e9, power_w=120.5, utilization_percent=40.0, temperature_c=51.0, memory_total_bytes=64e9
)


def text(gauges: DeviceGauges) -> str:
    metrics = Metrics()
    metrics.registry.register(gauges)
    return metrics.text().decode()


def test_what_is_shown_is_what_a_load_reads_again_and_a_card_that_cannot_be_read_any_more_is_counted() -> None:
    said = [READING]

    def read() -> DeviceReading:
        if not said:
            raise ToolchainError("it hangs")
        return said.pop()

    gauges = DeviceGauges({"0": read, "1": lambda: DeviceReading(power_w=90.0)})
    gauges.look()
    found = readings_in(read_samples(text(gauges)))
    assert found["0"] == replace(READING, memory_total_bytes=None)
    assert found["1"] == DeviceReading(power_w=90.0)

    gauges.look()
    assert readings_in(read_samples(text(gauges))).keys() == {"1"}
    assert 'workbench_device_reading_failures_total{device="0"} 1.0' in text(gauges)


def test_a_card_is_read_by_its_targets_own_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in emulated_environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    assert device_gauges("onnxruntime", [Place(environment={})]) is None
    gauges = device_gauges("ascend910b3", [Place(card="0", environment={})])
    assert gauges is not None

    gauges.look()
    gauges.look()  # by the card that was found

    found = readings_in(read_samples(text(gauges)))["0"]
    assert found.power_w is not None
    assert found.power_w > 50
    assert found.utilization_percent == 0.0
    assert 'workbench_device_memory_total_bytes{device="0"} 6.8719476736e+10' in text(gauges)
